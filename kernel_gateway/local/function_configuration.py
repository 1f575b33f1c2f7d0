"""What the local Lambda service says of a function.

Its deployment package is what its containers start with: the bootstrap, and the file that begins
them. The handler is staged apart, as on AWS, and has a digest of its own.

Source: AWS Lambda API reference, GetFunctionConfiguration.
"""

from __future__ import annotations

import base64
import hashlib
import platform
import uuid
from datetime import UTC, datetime
from typing import Any

from kernel_gateway.environments.handler_archive import zip_files
from kernel_gateway.local.warm_container import Function

_ARCHITECTURES = {"aarch64": "arm64"}


def configuration_of(function: Function) -> dict[str, Any]:
    """Return it, of the code as it is now: the next container runs it."""
    package = zip_files({name: path.read_bytes() for name, path in function.code.items()})
    digest = hashlib.sha256(package).digest()
    changed_s = max((path.stat().st_mtime for path in function.code.values()), default=0.0)
    changed = datetime.fromtimestamp(changed_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.000+0000")
    machine = platform.machine()
    described = {
        "FunctionName": function.name,
        "FunctionArn": function.arn,
        "Runtime": "provided.al2023",
        "Handler": "handler.handler",
        "CodeSize": len(package),
        "CodeSha256": base64.b64encode(digest).decode("ascii"),
        "Timeout": int(function.timeout_s),
        "MemorySize": function.memory_mb,
        "LastModified": changed,
        "Version": "$LATEST",
        "PackageType": "Zip",
        "Architectures": [_ARCHITECTURES.get(machine, machine)],
        "State": "Active",
        "LastUpdateStatus": "Successful",
    }
    return {**described, "RevisionId": str(uuid.uuid5(uuid.NAMESPACE_URL, repr(described)))}
