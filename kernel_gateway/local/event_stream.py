"""Encodes ``application/vnd.amazon.eventstream``, the answer of InvokeWithResponseStream."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping

CONTENT_TYPE = "application/vnd.amazon.eventstream"

_PRELUDE = struct.Struct("!II")
_CRC = struct.Struct("!I")
_STRING = 7
"""Type number of a string header. Source: Amazon event stream encoding."""


def payload_chunk(payload: bytes) -> bytes:
    """Return the ``PayloadChunk`` event that carries ``payload``."""
    return event("PayloadChunk", "application/octet-stream", payload)


def invoke_complete(error_code: str | None = None, error_details: str | None = None) -> bytes:
    """Return the last event, ``InvokeComplete``.

    Args:
        error_code: the function's error type where it failed.
        error_details: the error object as JSON text, likewise.
    """
    body = {"ErrorCode": error_code, "ErrorDetails": error_details}
    content = json.dumps({name: value for name, value in body.items() if value is not None})
    return event("InvokeComplete", "application/json", content.encode())


def event(event_type: str, content_type: str, payload: bytes) -> bytes:
    """Return one event: prelude, headers, payload, each guarded by a CRC-32."""
    headers = _headers(
        {":message-type": "event", ":event-type": event_type, ":content-type": content_type}
    )
    total = _PRELUDE.size + _CRC.size + len(headers) + len(payload) + _CRC.size
    prelude = _PRELUDE.pack(total, len(headers))
    message = b"".join([prelude, _CRC.pack(zlib.crc32(prelude)), headers, payload])
    return message + _CRC.pack(zlib.crc32(message))


def _headers(headers: Mapping[str, str]) -> bytes:
    parts = []
    for name, value in headers.items():
        raw_name, raw_value = name.encode(), value.encode()
        parts.append(struct.pack("!B", len(raw_name)) + raw_name)
        parts.append(struct.pack("!BH", _STRING, len(raw_value)) + raw_value)
    return b"".join(parts)
