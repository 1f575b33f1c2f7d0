"""Messages as values, and replies that need no invocation."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gateway.messaging.message import BadMessage, InMessage, new_header, utc_text
from kernel_gateway.messaging.replies import KernelView, PastInput, reply_content, reply_type

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
PARTS = ["header", "parent_header", "metadata", "content", "channel", "msg_id", "msg_type"]
REQUESTS = [
    "kernel_info_request",
    "is_complete_request",
    "complete_request",
    "inspect_request",
    "history_request",
    "comm_info_request",
    "nonsense_request",
]


FIELDS = ["code", "cursor_pos", "session", "start", "stop", "n", "pattern", "unique", "output"]


def request(msg_type: str, /, **content: Any) -> InMessage:
    return InMessage(header={"msg_id": "m", "msg_type": msg_type}, content=content)


@given(JSON | st.dictionaries(st.sampled_from(PARTS), JSON))
def test_reading_gives_a_message_or_says_what_is_wrong(data: Any) -> None:
    try:
        message = InMessage.read(data)
    except BadMessage:
        return
    assert message.msg_id
    assert message.msg_type
    assert message.channel in {"shell", "control", "stdin"}


def test_what_a_client_may_leave_out_is_filled_in() -> None:
    message = InMessage.read(
        {"header": {"msg_id": "1", "msg_type": "x"}}, buffers=[memoryview(b"b")]
    )

    assert (message.channel, message.content, message.buffers) == ("shell", {}, (b"b",))


def test_ids_at_the_top_level_are_accepted() -> None:
    message = InMessage.read({"msg_id": "1", "msg_type": "x", "channel": "control"})

    assert (message.msg_id, message.msg_type, message.channel) == ("1", "x", "control")


def test_a_header_is_complete() -> None:
    header = new_header("status", session="s", now=datetime(2030, 1, 2, tzinfo=UTC))

    assert header["date"] == "2030-01-02T00:00:00.000000Z"
    assert header["version"] == "5.4"
    assert re.fullmatch("[0-9a-f]{32}", header["msg_id"])
    assert utc_text(datetime(2030, 1, 2, 3, 4, 5, 6, tzinfo=UTC)).endswith(".000006Z")


@given(
    st.sampled_from(REQUESTS),
    st.dictionaries(st.sampled_from(FIELDS), JSON),
    st.sampled_from(["tail", "range", "search", "other"]) | JSON,
)
def test_any_content_gets_a_reply(msg_type: str, content: dict[str, Any], access: Any) -> None:
    history = (PastInput(count=1, source="a"),)

    reply = reply_content(
        request(msg_type, **content, hist_access_type=access), KernelView(history=history)
    )

    assert reply["status"]


@pytest.mark.parametrize(
    ("code", "reply"),
    [
        ("1 + 1", {"status": "complete"}),
        ("for i in x:", {"status": "incomplete", "indent": "    "}),
        ("%%bash\nls", {"status": "incomplete", "indent": ""}),
        ("!ls", {"status": "complete"}),
        ("1 +* 2)", {"status": "invalid"}),
        ("x" * 30_000, {"status": "unknown"}),
        ("a?\n" * 6000, {"status": "unknown"}),
        ("a?\r" * 101, {"status": "unknown"}),
        (None, {"status": "unknown"}),
        ("\x00", {"status": "invalid"}),
    ],
)
def test_is_complete_answers_as_ipython(code: Any, reply: dict[str, Any]) -> None:
    assert reply_content(request("is_complete_request", code=code), KernelView()) == reply


def test_no_feature_is_claimed_that_does_not_work() -> None:
    info = reply_content(request("kernel_info_request"), KernelView())

    assert info["supported_features"] == []
    assert info["language_info"]["name"] == "python"
    assert info["protocol_version"] == "5.4"


def test_a_search_finds_by_glob_and_drops_duplicates() -> None:
    history = [PastInput(count=n, source=s) for n, s in enumerate(["a=1", "b=2", "a=1"], start=1)]

    reply = reply_content(
        request(
            "history_request", hist_access_type="search", pattern="a*", unique=True, output=True
        ),
        KernelView(history=history),
    )

    assert reply["history"] == [(1, 3, ("a=1", None))]


@pytest.mark.parametrize("pattern", ["?" * 100_000, "*?" * 5], ids=["long", "stars"])
def test_a_pattern_that_would_take_for_ever_finds_everything(pattern: str) -> None:
    view = KernelView(history=[PastInput(count=1, source="a"), PastInput(count=2, source="b")])
    asked = request("history_request", hist_access_type="search", pattern=pattern * 2)

    reply = reply_content(asked, view)

    assert [source for _, _, source in reply["history"]] == ["a", "b"]


def test_the_reply_type_replaces_request() -> None:
    assert reply_type("kernel_info_request") == "kernel_info_reply"


def test_is_complete_survives_whatever_ipython_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("input transformation still changing code")

    monkeypatch.setattr("IPython.core.inputtransformer2.TransformerManager.check_complete", fail)

    reply = reply_content(request("is_complete_request", code="a"), KernelView())

    assert reply == {"status": "unknown"}


def test_the_longest_code_that_is_checked_takes_little_time() -> None:
    begun_s = time.process_time()

    reply_content(request("is_complete_request", code="a?\n" * 100), KernelView())

    assert time.process_time() - begun_s < 1
