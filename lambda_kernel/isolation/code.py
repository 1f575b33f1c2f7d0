"""Our own code, sealed in memory: what user code leaves on disk can never become part of it.

User code runs under the user id of the serving process and could rewrite the unpacked handler.
Therefore stage 2 and every zygote import ``lambda_kernel`` from a sealed memfd.
"""

from __future__ import annotations

import fcntl
import io
import os
import zipfile
from pathlib import Path

_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


def sealed_package(package: Path) -> int:
    """Return a descriptor of an immutable zip archive of the Python files of ``package``."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for path in sorted(package.rglob("*.py")):
            archive.writestr(str(path.relative_to(package.parent)), path.read_bytes())
    descriptor = os.memfd_create("lambda_kernel", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(descriptor, "wb", closefd=False) as writer:
        writer.write(buffer.getbuffer())
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
    return descriptor


def import_path(descriptor: int) -> str:
    """Return the ``sys.path`` entry under which a process that holds ``descriptor`` imports."""
    return f"/proc/self/fd/{descriptor}"
