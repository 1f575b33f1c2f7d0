"""Where a deployment's parts are, as one value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from lambda_kernel.contract.keys import Stack


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """One deployment as the gateway reaches it.

    Attributes:
        stack: names of buckets, roles and functions.
        region: AWS region.
        handler_digest: SHA-256 (hex) of the staged handler that the functions run.
        s3_endpoint: URL, or None for AWS's own.
        lambda_endpoint: URL, or None for AWS's own.
        access_key_id: the gateway's own credentials; None = boto3's default chain.
        secret_access_key: likewise.
    """

    stack: Stack
    region: str
    handler_digest: str
    s3_endpoint: str | None = None
    lambda_endpoint: str | None = None
    access_key_id: str | None = None
    secret_access_key: str | None = field(default=None, repr=False)

    def client_arguments(self, service: str) -> dict[str, Any]:
        """Return the keyword arguments of ``boto3.client`` for ``s3`` or ``lambda``."""
        endpoint = {"s3": self.s3_endpoint, "lambda": self.lambda_endpoint}[service]
        return {
            "region_name": self.region,
            "endpoint_url": endpoint,
            "aws_access_key_id": self.access_key_id,
            "aws_secret_access_key": self.secret_access_key,
        }
