"""Puts the handler archive and its frame key where the execution role reads them."""

from __future__ import annotations

import secrets
from typing import Any

from kernel_gateway.environments.handler_archive import HandlerArchive
from lambda_kernel.contract import keys
from lambda_kernel.contract.frames import MAC_BYTES


def stage_handler(client: Any, stack: keys.Stack, archive: HandlerArchive) -> str:
    """Store ``archive`` and a fresh frame key; return the URI for ``LKG_HANDLER_URI``.

    The frame key is drawn anew at every start: containers read it once when they start, and none of
    them outlives the service.

    Args:
        client: an S3 client with the gateway's rights.
        stack: names of the buckets.
        archive: what to stage.

    Source: storage.md, "Frames".
    """
    frame_key = secrets.token_bytes(MAC_BYTES)
    client.put_object(Bucket=stack.overflow, Key=keys.frame_key_key(archive.digest), Body=frame_key)
    key = keys.handler_key(archive.digest)
    client.put_object(Bucket=stack.overflow, Key=key, Body=archive.content)
    return f"s3://{stack.overflow}/{key}"
