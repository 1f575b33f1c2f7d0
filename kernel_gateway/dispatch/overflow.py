"""Requests too large for Lambda's payload go through the overflow bucket."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import dataclass

from kernel_gateway.dispatch.failures import CellRefused
from kernel_gateway.errors import PAYLOAD_TOO_LARGE
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract import keys
from lambda_kernel.contract.invocation import INLINE_REQUEST_BYTES, SCHEMA, Invocation

OFF_LOOP_CHARACTERS = 500_000
"""Encoding longer code would hold up every other kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Payload:
    """What is sent to the function.

    Attributes:
        body: the event, JSON.
        overflowed: whether it is a pointer to ``requests/<request id>``.
    """

    body: bytes
    overflowed: bool = False


async def payload_of(
    invocation: Invocation, store: ObjectStore, bucket: str, *, limit_bytes: int
) -> Payload:
    """Return the event for the function, after storing the invocation where it is too large.

    Args:
        invocation: what the event says.
        store: where a large one goes.
        bucket: the overflow bucket.
        limit_bytes: a larger one is refused.

    Raises:
        CellRefused: PayloadTooLarge.
        StorageError: the invocation could not be stored.
    """
    code = invocation.msg.content.get("code", "")
    if len(code) > OFF_LOOP_CHARACTERS:
        body = await asyncio.to_thread(_encoded, invocation)
    else:
        body = _encoded(invocation)
    if len(body) > limit_bytes:
        raise CellRefused(
            PAYLOAD_TOO_LARGE, f"it has {len(body):,} bytes, the limit is {limit_bytes:,}"
        )
    if len(body) <= INLINE_REQUEST_BYTES:
        return Payload(body=body)
    await store.put(bucket, keys.request_key(invocation.request_id), body)
    pointer = {
        "request_id": invocation.request_id,
        "digest": hashlib.sha256(body).hexdigest(),
        "size_bytes": len(body),
    }
    return Payload(
        body=json.dumps({"schema": SCHEMA, "pointer": pointer}).encode(), overflowed=True
    )


def _encoded(invocation: Invocation) -> bytes:
    return json.dumps(invocation.to_dict(), separators=(",", ":")).encode("ascii")
