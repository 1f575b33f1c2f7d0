"""A journal's entries: read strictly, and held together by their digests."""

from __future__ import annotations

import json
import uuid
from base64 import b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gateway.audit.chain import (
    BrokenChain,
    CellFinished,
    CellInterrupted,
    CellStarted,
    Entry,
    Event,
    KernelRestarted,
    Outputs,
    RecordedMessage,
    SessionClosed,
    digest_of,
    messages_from_bytes,
    messages_to_bytes,
    verified,
)
from kernel_gateway.audit.grouping import incomplete
from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.schema import InvalidField

KERNEL_ID = str(uuid.UUID(int=7))


def started(request_id: str, **changes: Any) -> CellStarted:
    fields: dict[str, Any] = {
        "request_id": request_id,
        "seq": 1,
        "parent": None,
        "execution_count": 1,
        "timeout_s": 30.0,
        "header": {"msg_id": f"m-{request_id}", "session": "s"},
        "content": {"code": "1"},
    }
    return CellStarted(**fields | changes)


def finished(request_id: str, **changes: Any) -> CellFinished:
    header = {"msg_id": "r", "msg_type": "execute_reply", "session": "k"}
    reply = RecordedMessage(header=header, content={"status": "ok"})
    fields: dict[str, Any] = {"request_id": request_id, "status": "ok", "reply": reply}
    return CellFinished(**fields | changes)


def a_journal(*events: Event, epoch: int = 0) -> list[bytes]:
    stored: list[bytes] = []
    for number, event in enumerate(events, 1):
        entry = Entry(
            kernel_id=KERNEL_ID,
            number=number,
            previous=digest_of(stored[-1]) if stored else "",
            epoch=epoch,
            time="2026-01-01T00:00:00.000000Z",
            event=event,
        )
        stored.append(entry.to_bytes())
    return stored


JOURNAL = a_journal(
    started("a"),
    finished("a", head=Head(seq=1, digest="d" * 64)),
    started("b"),
    CellInterrupted(request_id="b"),
    finished("b", status="error", failure="CellInterrupted"),
    KernelRestarted(),
    started("c"),
    SessionClosed(reason="shut down"),
)

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(st.text(), json_values, max_size=4)
headers = st.fixed_dictionaries(
    {"msg_id": st.text(), "msg_type": st.text(), "session": st.text()},
    optional={"more": json_values},
)
messages = st.builds(
    RecordedMessage,
    header=headers,
    metadata=json_objects,
    content=json_objects,
    buffers=st.lists(st.binary().map(lambda part: b64encode(part).decode())).map(tuple),
)
events = st.one_of(
    st.builds(
        CellStarted,
        request_id=st.text(),
        seq=st.integers(),
        parent=st.none() | st.builds(Head, seq=st.integers(), digest=st.text()),
        execution_count=st.integers(),
        timeout_s=st.floats(allow_nan=False),
        header=json_objects,
        metadata=json_objects,
        content=json_objects,
    ),
    st.builds(
        CellFinished,
        request_id=st.text(),
        status=st.sampled_from(["ok", "error", "lost"]),
        reply=messages,
        outputs=st.builds(Outputs, messages=st.tuples(messages)),
    ),
    st.builds(SessionClosed, reason=st.text()),
)


@given(events)
def test_what_was_written_is_read_again(event: Event) -> None:
    (stored,) = a_journal(event)

    assert Entry.from_bytes(stored).event == event
    assert stored.isascii()


@given(st.lists(messages, max_size=3))
def test_messages_of_an_own_object_are_read_again(found: list[RecordedMessage]) -> None:
    assert messages_from_bytes(messages_to_bytes(found)) == tuple(found)


def test_text_that_is_no_unicode_and_numbers_that_are_none_are_kept() -> None:
    content = {"text": "\ud800 \x00 \x1b]0;x\x07", "size": float("inf")}
    (stored,) = a_journal(started("a", content=content))

    event = Entry.from_bytes(stored).event
    assert isinstance(event, CellStarted)
    assert event.content == content


def test_a_journal_is_read_in_order_with_the_cell_that_has_no_end() -> None:
    entries = verified(KERNEL_ID, JOURNAL)

    assert [entry.number for entry in entries] == list(range(1, 9))
    assert [cell.request_id for cell in incomplete(entries)] == ["c"]


@pytest.mark.parametrize(
    "broken",
    [
        JOURNAL[1:],
        [*JOURNAL[:3], *JOURNAL[4:]],
        [*JOURNAL[:3], JOURNAL[2], *JOURNAL[3:]],
        [*JOURNAL[:2], JOURNAL[3], JOURNAL[2], *JOURNAL[4:]],
        [*JOURNAL[:2], JOURNAL[2].replace(b'"code":"1"', b'"code":"2"'), *JOURNAL[3:]],
        [*JOURNAL[:2], *a_journal(started("a"), finished("x"), started("b"))[2:], *JOURNAL[3:]],
        [*JOURNAL[:2], b"{", *JOURNAL[3:]],
        [*JOURNAL[:2], JOURNAL[2].replace(b'"epoch":0', b'"epoch":9'), JOURNAL[3]],
    ],
    ids=["head cut", "gap", "twice", "swapped", "changed", "foreign", "truncated", "epoch"],
)
def test_a_journal_that_was_tampered_with_is_refused(broken: list[bytes]) -> None:
    with pytest.raises(BrokenChain, match="entry"):
        verified(KERNEL_ID, broken)


def test_a_journal_that_an_earlier_version_wrote_unsigned_is_read() -> None:
    stored: list[bytes] = []
    for each in JOURNAL:
        data = json.loads(each) | {"schema": 1}
        data["previous"] = digest_of(stored[-1]) if stored else ""
        stored.append(json.dumps(data).encode())

    assert verified(KERNEL_ID, stored)[-1].event == SessionClosed(reason="shut down")


def test_another_kernels_journal_is_refused() -> None:
    with pytest.raises(BrokenChain, match="another kernel"):
        verified(str(uuid.UUID(int=8)), JOURNAL)


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"schema": 3}, "entry.schema"),
        ({"type": "cell_paused"}, "entry.type"),
        ({"number": 0}, "entry.number"),
        ({"previous": "x"}, "entry.number"),
        ({"kernel_id": "../../x"}, "entry.kernel_id"),
        ({"epoch": "0"}, "entry.epoch"),
        ({"more": 1}, "entry.more"),
        ({"event": []}, "entry.event"),
        ({"event": {"request_id": "a"}}, "entry.event.seq"),
    ],
)
def test_an_entry_that_is_not_one_is_refused_by_name(change: dict[str, Any], path: str) -> None:
    data = json.loads(JOURNAL[0]) | change

    with pytest.raises(InvalidField) as refused:
        Entry.from_bytes(json.dumps(data).encode())

    assert refused.value.path == path


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"header": {}}, "message.header.msg_id"),
        ({"header": {"msg_id": "m", "msg_type": 1, "session": "s"}}, "message.header.msg_type"),
        ({"buffers": ["!"]}, "message.buffers"),
        ({"content": []}, "content"),
    ],
)
def test_a_stored_message_that_no_client_could_be_sent_is_refused(
    change: dict[str, Any], path: str
) -> None:
    header = {"msg_id": "m", "msg_type": "stream", "session": "s"}
    data = [{"header": header, "metadata": {}, "content": {}, "buffers": []} | change]

    with pytest.raises(InvalidField, match=path):
        messages_from_bytes(json.dumps(data).encode())
