"""The response stream: frames with a sequence number and a MAC, messages with binary parts.

A *message* is a JSON object and binary buffers. The child hands messages to the serving process
as length-prefixed parts; the serving process sends them on as authenticated frames.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import math
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

CHILD_MESSAGE_TYPES = frozenset(
    {
        "stream",
        "display_data",
        "update_display_data",
        "execute_result",
        "error",
        "clear_output",
        "comm_open",
        "comm_msg",
        "comm_close",
        "input_request",
    }
)
"""The Jupyter messages that are taken from a child. Source: storage.md, "From a child"."""

MAX_FRAME_BYTES = 64 * 1024 * 1024
MAX_PARTS = 1024
MAX_NESTING = 100
"""Of arrays and objects in a message: what walks through one recurses."""

MAC_BYTES = 32

_LENGTH = struct.Struct("!I")
_HEAD = struct.Struct("!QB")
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{\]}]', re.DOTALL)


class BadFrame(ValueError):
    """A frame is malformed, too large, out of order or not authentic; the stream ends here."""


class NestedTooDeeply(BadFrame):
    """A message has more levels of arrays and objects than MAX_NESTING."""


class FrameKind(IntEnum):
    """What a frame carries."""

    STARTED = 1
    """User code begins to run; empty message."""
    MESSAGE = 2
    """A Jupyter message of the cell: ``{"msg_type", "content", "metadata"}`` and buffers."""
    REPLY = 3
    """The reply body: ``{"msg_type", "content", "metadata"}``."""
    OUTCOME = 4
    """The last frame: an Outcome. Its one buffer, if any, is the stored commit: where that is small
    it spares the gateway a GET before the next cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One authenticated frame."""

    kind: FrameKind
    data: dict[str, Any]
    buffers: tuple[bytes, ...] = field(default=())


def invocation_key(frame_key: bytes, request_id: str, nonce: str) -> bytes:
    """Return the key of one invocation's frames and control objects.

    Args:
        frame_key: the secret beside the staged handler, at least 32 bytes.
        request_id: 32 hex digits.
        nonce: 32 hex digits.

    Source: storage.md, "Frames".
    """
    if len(frame_key) < MAC_BYTES:
        raise ValueError("the frame key must be at least 32 bytes long")
    return hmac.new(frame_key, f"{request_id}{nonce}".encode(), hashlib.sha256).digest()


def pack_parts(data: dict[str, Any], buffers: Sequence[bytes | memoryview] = ()) -> bytes:
    """Return a message as one byte string: part count, part lengths, parts.

    Raises:
        NestedTooDeeply: `unpack_parts` would refuse it.
    """
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=True).encode("ascii")
    check_nesting(text)
    parts = [text, *(bytes(b) for b in buffers)]
    lengths = b"".join(_LENGTH.pack(len(part)) for part in parts)
    return b"".join([_LENGTH.pack(len(parts)), lengths, *parts])


def unpack_parts(body: bytes) -> tuple[dict[str, Any], tuple[bytes, ...]]:
    """Return the JSON object and the buffers of a packed message.

    Raises:
        BadFrame: the lengths do not add up, or the first part is not a JSON object or is nested
            too deeply.
    """
    if len(body) < _LENGTH.size:
        raise BadFrame("a message is cut short")
    (count,) = _LENGTH.unpack_from(body)
    offset = _LENGTH.size * (count + 1)
    if not 1 <= count <= MAX_PARTS or len(body) < offset:
        raise BadFrame("a message has an impossible number of parts")
    parts = []
    for i in range(count):
        (length,) = _LENGTH.unpack_from(body, _LENGTH.size * (i + 1))
        parts.append(body[offset : offset + length])
        offset += length
    if offset != len(body):
        raise BadFrame("the parts of a message do not add up to its length")
    data = read_json(parts[0])
    if not isinstance(data, dict):
        raise BadFrame("a message is not a JSON object")
    return data, tuple(parts[1:])


def read_json(text: bytes) -> Any:
    """Return the value that strict JSON (UTF-8, no NaN or infinite number) describes.

    Raises:
        BadFrame: it is not JSON.
        NestedTooDeeply: it has too many levels.
    """
    check_nesting(text)
    try:
        # As text: for bytes, Python guesses the encoding, which hides brackets from the check.
        return _DECODER.decode(text.decode())
    except (ValueError, RecursionError):
        raise BadFrame("a message is not JSON") from None


def check_nesting(text: bytes) -> None:
    """Check that JSON is not nested too deeply, without recursing into it.

    Raises:
        NestedTooDeeply: it is.
    """
    if text.count(b"[") + text.count(b"{") <= MAX_NESTING:
        return
    depth = 0
    # Strings are matched whole, as brackets in them open nothing; an unfinished one is no JSON.
    for found in _BRACKETS.finditer(text):
        first = found[0][0]
        if first in b"[{":
            depth += 1
            if depth > MAX_NESTING:
                raise NestedTooDeeply(f"a message is nested too deeply (over {MAX_NESTING} levels)")
        elif first in b"]}":
            depth -= 1


def _no_number(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        # 1e999 is JSON, but what is written of it again would not be.
        raise ValueError("a number is too large")
    return value


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_no_number)


class PartsReader:
    """Cuts the child's byte stream into messages; the child is not trusted."""

    def __init__(self, max_bytes: int = MAX_FRAME_BYTES) -> None:
        self._buffer = bytearray()
        self._max_bytes = max_bytes

    def feed(self, chunk: bytes) -> Iterator[tuple[dict[str, Any], tuple[bytes, ...]]]:
        """Yield the messages that ``chunk`` completes (raises BadFrame)."""
        self._buffer += chunk
        for body in _cut(self._buffer, self._max_bytes):
            yield unpack_parts(body)


def length_prefixed(body: bytes) -> bytes:
    """Return ``body`` as PartsReader expects it on the wire."""
    return _LENGTH.pack(len(body)) + body


class FrameWriter:
    """Numbers and authenticates frames."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._next_seq = 0

    def write(
        self, kind: FrameKind, data: dict[str, Any], buffers: Sequence[bytes | memoryview] = ()
    ) -> bytes:
        """Return the bytes of the next frame.

        Raises:
            BadFrame: it would be larger than MAX_FRAME_BYTES.
        """
        head = _HEAD.pack(self._next_seq, kind)
        body = pack_parts(data, buffers)
        size = len(head) + len(body) + MAC_BYTES
        if size > MAX_FRAME_BYTES:
            raise BadFrame(f"a frame of {size} bytes is over the limit of {MAX_FRAME_BYTES}")
        self._next_seq += 1
        mac = hmac.new(self._key, head + body, hashlib.sha256).digest()
        return b"".join([_LENGTH.pack(size), head, body, mac])


class FrameReader:
    """Checks and decodes frames as the bytes of a response stream arrive."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._next_seq = 0
        self._buffer = bytearray()
        self._ended = False

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Yield the frames that ``chunk`` completes.

        Raises:
            BadFrame: a frame is malformed, out of order, forged, or follows the outcome.
        """
        self._buffer += chunk
        for raw in _cut(self._buffer, MAX_FRAME_BYTES):
            yield self._check(raw)

    def _check(self, raw: bytes) -> Frame:
        if self._ended:
            raise BadFrame("a frame follows the outcome")
        if len(raw) < _HEAD.size + MAC_BYTES:
            raise BadFrame("a frame is cut short")
        signed, mac = raw[:-MAC_BYTES], raw[-MAC_BYTES:]
        if not hmac.compare_digest(hmac.new(self._key, signed, hashlib.sha256).digest(), mac):
            raise BadFrame("a frame is not authentic")
        seq, kind = _HEAD.unpack_from(signed)
        if seq != self._next_seq:
            raise BadFrame(f"frame {self._next_seq} was expected, {seq} came")
        try:
            frame_kind = FrameKind(kind)
        except ValueError:
            raise BadFrame(f"frame kind {kind} is unknown") from None
        data, buffers = unpack_parts(signed[_HEAD.size :])
        self._next_seq += 1
        self._ended = frame_kind is FrameKind.OUTCOME
        return Frame(kind=frame_kind, data=data, buffers=buffers)


def _cut(buffer: bytearray, max_bytes: int) -> Iterator[bytes]:
    while len(buffer) >= _LENGTH.size:
        (length,) = _LENGTH.unpack_from(buffer)
        if length > max_bytes:
            raise BadFrame(f"a frame of {length} bytes is over the limit of {max_bytes}")
        end = _LENGTH.size + length
        if len(buffer) < end:
            return
        body = bytes(buffer[_LENGTH.size : end])
        del buffer[:end]
        yield body
