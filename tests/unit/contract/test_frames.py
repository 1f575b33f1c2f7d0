import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambda_kernel.contract import frames
from lambda_kernel.contract.frames import (
    BadFrame,
    FrameKind,
    FrameReader,
    FrameWriter,
    NestedTooDeeply,
)

KEY = frames.invocation_key(b"k" * 32, "a" * 32, "b" * 32)
JSON = st.dictionaries(st.text(), st.none() | st.integers() | st.text() | st.lists(st.text()))


def a_stream(key: bytes = KEY) -> list[bytes]:
    writer = FrameWriter(key)
    return [
        writer.write(FrameKind.STARTED, {}),
        writer.write(FrameKind.MESSAGE, {"msg_type": "stream"}, [b"one", b""]),
        writer.write(FrameKind.OUTCOME, {"status": "ok"}),
    ]


@given(
    st.lists(st.tuples(JSON, st.lists(st.binary(max_size=50), max_size=3)), max_size=4),
    st.integers(1, 40),
)
def test_frames_survive_any_cut_of_the_stream(
    messages: list[tuple[dict[str, object], list[bytes]]], size: int
) -> None:
    writer, reader = FrameWriter(KEY), FrameReader(KEY)
    raw = b"".join(writer.write(FrameKind.MESSAGE, data, parts) for data, parts in messages)
    pieces = [raw[i : i + size] for i in range(0, len(raw), size)]
    got = [frame for piece in pieces for frame in reader.feed(piece)]
    assert [(f.data, list(f.buffers)) for f in got] == messages


@pytest.mark.parametrize("position", range(3))
def test_a_changed_byte_is_noticed_in_every_frame(position: int) -> None:
    stream = a_stream()
    for offset in range(4, len(stream[position])):
        forged = bytearray(stream[position])
        forged[offset] ^= 1
        reader = FrameReader(KEY)
        for good in stream[:position]:
            list(reader.feed(good))
        with pytest.raises(BadFrame):
            list(reader.feed(bytes(forged)))


@pytest.mark.parametrize(
    "order", [(1, 0, 2), (0, 0), (0, 2, 1), (1,), (0, 1, 1)], ids=lambda o: "-".join(map(str, o))
)
def test_reordered_replayed_and_dropped_frames_are_refused(order: tuple[int, ...]) -> None:
    stream, reader = a_stream(), FrameReader(KEY)
    with pytest.raises(BadFrame):
        [list(reader.feed(stream[i])) for i in order]


def test_nothing_is_believed_after_the_outcome() -> None:
    writer, reader = FrameWriter(KEY), FrameReader(KEY)
    list(reader.feed(writer.write(FrameKind.OUTCOME, {})))
    with pytest.raises(BadFrame, match="follows the outcome"):
        list(reader.feed(writer.write(FrameKind.OUTCOME, {})))


@pytest.mark.parametrize(
    "key",
    [
        frames.invocation_key(b"k" * 32, "a" * 32, "c" * 32),
        frames.invocation_key(b"k" * 32, "b" * 32, "b" * 32),
        frames.invocation_key(b"l" * 32, "a" * 32, "b" * 32),
    ],
)
def test_frames_of_another_invocation_are_refused(key: bytes) -> None:
    with pytest.raises(BadFrame, match="not authentic"):
        list(FrameReader(KEY).feed(a_stream(key)[0]))


@given(st.binary(max_size=200))
def test_noise_is_refused_or_waited_for(noise: bytes) -> None:
    try:
        assert list(FrameReader(KEY).feed(noise)) == []
    except BadFrame:
        return


@given(st.binary(max_size=200))
def test_noise_from_a_child_is_refused_or_read(noise: bytes) -> None:
    try:
        messages = list(frames.PartsReader(1000).feed(noise))
    except BadFrame:
        return
    assert all(isinstance(data, dict) for data, _ in messages)


def test_a_huge_announced_length_is_refused_before_it_is_waited_for() -> None:
    with pytest.raises(BadFrame, match="over the limit"):
        list(frames.PartsReader(1000).feed(b"\xff\xff\xff\xff"))


def test_a_short_frame_key_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        frames.invocation_key(b"short", "a" * 32, "b" * 32)


def packed(text: bytes) -> bytes:
    return struct.pack("!II", 1, len(text)) + text


def nested(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize("depth", [frames.MAX_NESTING + 1, 900, 100_000])
def test_a_message_that_is_nested_too_deeply_is_refused(depth: int) -> None:
    with pytest.raises(NestedTooDeeply):
        frames.unpack_parts(packed(nested(depth)))


def test_brackets_side_by_side_and_in_text_are_no_depth() -> None:
    data = {"text": '[{\\"[' * 1000, "list": [[{}]] * 1000}

    assert frames.unpack_parts(frames.pack_parts(data)) == (data, ())
    assert frames.unpack_parts(packed(nested(frames.MAX_NESTING)))


def test_what_would_be_refused_is_not_packed() -> None:
    with pytest.raises(NestedTooDeeply):
        frames.pack_parts(json.loads(nested(frames.MAX_NESTING + 1)))


@pytest.mark.parametrize("text", [b'"' + b"[" * 200, b'{"a":"' + b"\\" * 201 + b"[" * 200])
def test_a_text_without_end_is_refused(text: bytes) -> None:
    with pytest.raises(BadFrame):
        frames.unpack_parts(packed(text))


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999"])
def test_numbers_that_json_does_not_know_are_refused(number: bytes) -> None:
    with pytest.raises(BadFrame):
        frames.unpack_parts(packed(b'{"a":' + number + b"}"))


def test_text_that_is_not_utf_8_is_refused() -> None:
    with pytest.raises(BadFrame):
        frames.unpack_parts(packed('{"a": 1}'.encode("utf-16")))
