"""Frames of both websocket protocols, there and back, and what is no frame."""

from __future__ import annotations

import contextlib
import json
import string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jupyter_server.services.kernels.connection.base import (
    deserialize_binary_message,
    deserialize_msg_from_ws_v1,
    serialize_binary_message,
    serialize_msg_to_ws_v1,
)

from kernel_gateway.messaging.message import OutMessage
from kernel_gateway.web.codec import (
    V1_PROTOCOL,
    MalformedFrame,
    decode_frame,
    encode_frame,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)
OBJECTS = st.dictionaries(st.text(), JSON, max_size=3)
MESSAGES = st.builds(
    OutMessage,
    channel=st.sampled_from(["iopub", "shell", "control", "stdin"]),
    header=OBJECTS.map(lambda extra: {**extra, "msg_id": "m", "msg_type": "stream"}),
    parent_header=OBJECTS,
    metadata=OBJECTS,
    content=OBJECTS,
    buffers=st.lists(st.binary(max_size=20), max_size=3).map(tuple),
)
PARTS = ("header", "parent_header", "metadata", "content")


@given(MESSAGES)
def test_a_message_survives_the_v1_protocol(message: OutMessage) -> None:
    frame = encode_frame(message, V1_PROTOCOL)
    decoded = decode_frame(frame, V1_PROTOCOL)
    assert decoded.channel == message.channel
    assert decoded.data == {part: getattr(message, part) for part in PARTS}
    assert decoded.buffers == message.buffers


@given(MESSAGES)
def test_v1_frames_are_those_of_jupyter_server(message: OutMessage) -> None:
    ours = encode_frame(message, V1_PROTOCOL)
    channel, parts = deserialize_msg_from_ws_v1(ours)
    assert channel == message.channel
    assert [json.loads(part) for part in parts[:4]] == [getattr(message, p) for p in PARTS]
    assert tuple(parts[4:]) == message.buffers
    theirs = serialize_msg_to_ws_v1(parts, channel)
    assert decode_frame(theirs, V1_PROTOCOL) == decode_frame(ours, V1_PROTOCOL)


@given(MESSAGES)
def test_a_legacy_frame_is_text_without_buffers_and_says_so(message: OutMessage) -> None:
    frame = encode_frame(message, None)
    assert isinstance(frame, str)
    data = decode_frame(frame, None).data
    assert data["channel"] == message.channel
    assert data["content"] == message.content
    assert data["buffers"] == []
    dropped = data["metadata"].get("lambda_kernel", {})
    expected = len(message.buffers) or None
    told = dropped.get("buffers_dropped") if isinstance(dropped, dict) else None
    assert told == expected


@given(MESSAGES)
def test_a_legacy_client_that_reads_binary_gets_the_buffers(message: OutMessage) -> None:
    frame = encode_frame(message, None, reads_binary=True)
    if not message.buffers:
        assert isinstance(frame, str)
        return
    assert isinstance(frame, bytes)
    decoded = decode_frame(frame, None)
    assert decoded.data == message.to_dict()
    assert decoded.buffers == message.buffers
    theirs = deserialize_binary_message(frame.replace(b'"date"', b'"datf"'))
    assert tuple(map(bytes, theirs["buffers"])) == message.buffers


@given(OBJECTS, st.lists(st.binary(max_size=20), max_size=3))
def test_legacy_binary_frames_of_jupyter_server_are_read(
    content: dict[str, Any], buffers: list[bytes]
) -> None:
    frame = serialize_binary_message({"content": content, "buffers": buffers})
    decoded = decode_frame(frame, None)
    assert decoded.data == {"content": content}
    assert list(decoded.buffers) == buffers


@given(st.binary(max_size=200) | st.text(alphabet=string.printable, max_size=200))
def test_any_bytes_and_text_are_read_or_refused(frame: bytes | str) -> None:
    for protocol in (None, V1_PROTOCOL):
        with contextlib.suppress(MalformedFrame):
            decode_frame(frame, protocol)


@given(MESSAGES, st.data())
def test_a_truncated_or_flipped_v1_frame_is_read_or_refused(
    message: OutMessage, data: st.DataObject
) -> None:
    frame = encode_frame(message, V1_PROTOCOL)
    assert isinstance(frame, bytes)
    cut = data.draw(st.integers(0, len(frame) - 1))
    for broken in (
        frame[:cut],
        frame[:cut] + bytes([data.draw(st.integers(0, 255))]) + frame[cut + 1 :],
    ):
        with contextlib.suppress(MalformedFrame):
            decode_frame(broken, V1_PROTOCOL)


@pytest.mark.parametrize("count", [0, 1, 5, 1025, 2**63])
def test_a_v1_frame_with_an_impossible_number_of_offsets_is_refused(count: int) -> None:
    with pytest.raises(MalformedFrame, match="offsets"):
        decode_frame(count.to_bytes(8, "little") + b"\0" * 4096, V1_PROTOCOL)


def test_values_that_json_does_not_know_are_sent_as_text() -> None:
    message = OutMessage(
        channel="iopub",
        header={"msg_id": "m", "msg_type": "x"},
        content={"path": {1: 2}, "other": string.Template("t").template},
    )
    assert json.loads(str(encode_frame(message, None)))["content"]["path"] == {"1": 2}
