"""The four buckets: made at start, the overflow bucket swept."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from kernel_gateway.errors import StartError
from lambda_kernel.contract.keys import Stack

OVERFLOW_AGE = timedelta(days=1)
PREPARE_TIMEOUT_S = 20.0
POLL_S = 0.02


async def prepare_buckets(client: Any, stack: Stack, *, locks_records: bool = False) -> None:
    """Make the four buckets where they are missing; S3 may still be starting.

    Args:
        client: an S3 client with the gateway's rights.
        stack: names of the buckets.
        locks_records: the records bucket, where it is made now, can hold Object Lock.

    Raises:
        StartError: S3 does not let itself be used.
    """
    deadline = time.monotonic() + PREPARE_TIMEOUT_S
    while True:
        try:
            await asyncio.to_thread(_prepare, client, stack, locks_records)
        except (ClientError, BotoCoreError) as error:
            if time.monotonic() > deadline:
                raise StartError(f"the buckets cannot be made: {error}") from error
            await asyncio.sleep(POLL_S)
        else:
            return


def _prepare(client: Any, stack: Stack, locks_records: bool) -> None:
    there = {bucket["Name"] for bucket in client.list_buckets()["Buckets"]}
    for bucket in stack.buckets:
        if bucket not in there:
            locks = locks_records and bucket == stack.records
            client.create_bucket(
                Bucket=bucket, **({"ObjectLockEnabledForBucket": True} if locks else {})
            )
    client.put_bucket_versioning(
        Bucket=stack.workspaces, VersioningConfiguration={"Status": "Enabled"}
    )


def sweep_overflow(client: Any, stack: Stack, *, handler_digest: str, now: datetime) -> int:
    """Delete what has been in the overflow bucket for more than a day; return how many objects.

    SeaweedFS accepts a lifecycle rule, but when it acts is its own affair; the staged handler
    in use must stay whatever its age.

    Args:
        client: an S3 client with the gateway's rights.
        stack: names of the buckets.
        handler_digest: the handler in use.
        now: the time, with its zone.
    """
    kept = f"handler/{handler_digest}/"
    old = [
        {"Key": entry["Key"]}
        for entry in _entries(client, stack.overflow)
        if now - entry["LastModified"] > OVERFLOW_AGE and not entry["Key"].startswith(kept)
    ]
    for key in old:
        client.delete_object(Bucket=stack.overflow, **key)
    return len(old)


def _entries(client: Any, bucket: str) -> Iterator[dict[str, Any]]:
    for page in client.get_paginator("list_objects_v2").paginate(Bucket=bucket):
        yield from page.get("Contents", ())
