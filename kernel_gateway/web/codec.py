"""Frames of a kernel's websocket as messages and back: the v1 protocol and the legacy one.

Source: jupyter_server, "WebSocket kernel wire protocols".
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_gateway.messaging.message import OutMessage
from lambda_kernel.contract.frames import MAX_NESTING, NestedTooDeeply, read_json

V1_PROTOCOL = "v1.kernel.websocket.jupyter.org"
V1_PARTS = ("header", "parent_header", "metadata", "content")
MAX_PARTS = 1024
"""Offsets in one frame; a frame that names more is refused before they are read."""

LEGACY_BUFFERS_NOTICE = "buffers_dropped"


class MalformedFrame(ValueError):
    """A websocket frame is not what its protocol says; the text says where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedFrame:
    """What a frame holds before anybody looked at the message in it.

    Attributes:
        data: decoded JSON of the message's parts.
        channel: as the v1 protocol names it, None where the message itself does.
        buffers: binary parts.
    """

    data: Any
    channel: str | None = None
    buffers: tuple[bytes, ...] = field(default=())


def decode_frame(frame: str | bytes, subprotocol: str | None) -> DecodedFrame:
    """Return what a client's frame holds.

    A text frame is a legacy message whatever was negotiated: no v1 message is text.

    Args:
        frame: as it came.
        subprotocol: the negotiated one, None for legacy.

    Raises:
        MalformedFrame: it is truncated, has offsets outside of it, or is not JSON.
    """
    if isinstance(frame, str):
        return DecodedFrame(data=_json(frame, "the message"))
    if subprotocol == V1_PROTOCOL:
        return _decode_v1(frame)
    return _decode_legacy_binary(frame)


def encode_frame(
    message: OutMessage, subprotocol: str | None, *, reads_binary: bool = False
) -> str | bytes:
    """Return ``message`` as a frame.

    On the legacy protocol buffers are dropped and the metadata says so: JupyterLab's server reads
    binary frames there as UTF-8 and the cell would hang.

    Source: gateway.md, pitfall 3.

    Args:
        message: what to send.
        subprotocol: the negotiated one, None for legacy.
        reads_binary: the client of a legacy connection takes binary frames.
    """
    if subprotocol == V1_PROTOCOL:
        return _encode_v1(message)
    if message.buffers and reads_binary:
        return _encode_legacy_binary(message)
    data = message.to_dict()
    data["buffers"] = []
    if message.buffers:
        notice = {LEGACY_BUFFERS_NOTICE: len(message.buffers)}
        own = {**message.metadata.get("lambda_kernel", {}), **notice}
        data["metadata"] = {**message.metadata, "lambda_kernel": own}
    return _dump(data)


def split_v1(frame: bytes) -> tuple[str, list[bytes]]:
    """Return the channel and the parts of a v1 frame: four of JSON, then buffers.

    Raises:
        MalformedFrame: it is truncated, or has offsets outside of it.
    """
    count = _number(frame, 0)
    if not len(V1_PARTS) + 2 <= count <= MAX_PARTS:
        raise MalformedFrame(f"the frame names {count} offsets")
    if len(frame) < 8 * (count + 1):
        raise MalformedFrame("the frame ends within its offsets")
    offsets = [_number(frame, 8 * (i + 1)) for i in range(count)]
    channel, *parts = _slices(frame, offsets, first=8 * (count + 1))
    try:
        return channel.decode(), parts
    except UnicodeDecodeError:
        raise MalformedFrame("the channel is not UTF-8") from None


def join_v1(channel: str, parts: Sequence[bytes]) -> bytes:
    """Return a v1 frame of a channel and parts as `split_v1` gives them."""
    pieces = [channel.encode(), *parts]
    offsets = [8 * (len(pieces) + 2)]
    for piece in pieces:
        offsets.append(offsets[-1] + len(piece))
    return b"".join([struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets), *pieces])


def _decode_v1(frame: bytes) -> DecodedFrame:
    name, parts = split_v1(frame)
    data = {
        part: _json(raw, part) for part, raw in zip(V1_PARTS, parts[: len(V1_PARTS)], strict=True)
    }
    return DecodedFrame(data=data, channel=name, buffers=tuple(parts[len(V1_PARTS) :]))


def _encode_v1(message: OutMessage) -> bytes:
    parts = [_dump(getattr(message, part)).encode() for part in V1_PARTS]
    return join_v1(message.channel, [*parts, *message.buffers])


def _decode_legacy_binary(frame: bytes) -> DecodedFrame:
    if len(frame) < 4:
        raise MalformedFrame("the frame ends within its number of parts")
    (count,) = struct.unpack_from("!I", frame)
    if not 1 <= count <= MAX_PARTS:
        raise MalformedFrame(f"the frame names {count} parts")
    if len(frame) < 4 * (count + 1):
        raise MalformedFrame("the frame ends within its offsets")
    offsets = [*struct.unpack_from(f"!{count}I", frame, 4), len(frame)]
    message, *buffers = _slices(frame, offsets, first=4 * (count + 1))
    return DecodedFrame(data=_json(message, "the message"), buffers=tuple(buffers))


def _encode_legacy_binary(message: OutMessage) -> bytes:
    parts = [_dump(message.to_dict()).encode(), *message.buffers]
    offsets = [4 * (len(parts) + 1)]
    for part in parts[:-1]:
        offsets.append(offsets[-1] + len(part))
    return b"".join([struct.pack(f"!{len(parts) + 1}I", len(parts), *offsets), *parts])


def _slices(frame: bytes, offsets: Sequence[int], *, first: int) -> list[bytes]:
    previous = first
    for offset in offsets:
        if not previous <= offset <= len(frame):
            raise MalformedFrame("an offset lies outside the frame or before another")
        previous = offset
    return [frame[start:end] for start, end in itertools.pairwise(offsets)]


def _number(frame: bytes, start: int) -> int:
    if len(frame) < start + 8:
        raise MalformedFrame("the frame ends within its number of offsets")
    return int.from_bytes(frame[start : start + 8], "little")


def _json(text: str | bytes, name: str) -> Any:
    try:
        return read_json(text.encode() if isinstance(text, str) else text)
    except NestedTooDeeply:
        raise MalformedFrame(f"{name} is nested more than {MAX_NESTING} levels deep") from None
    except ValueError:
        raise MalformedFrame(f"{name} is not JSON") from None


def _dump(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), default=str)
