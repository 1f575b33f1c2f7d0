"""What is believed of a child, and how much of it is passed on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambda_kernel.contract.frames import CHILD_MESSAGE_TYPES
from lambda_kernel.contract.snapshot_report import SnapshotReport
from lambda_kernel.serving import child_messages, message_shapes
from lambda_kernel.serving.child_messages import ChildMessage
from lambda_kernel.serving.output import Output

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def body(msg_type: Any, content: Any, metadata: Any = None) -> dict[str, Any]:
    return {"msg_type": msg_type, "content": content, "metadata": metadata or {}}


@given(data=st.dictionaries(st.sampled_from(["msg_type", "content", "metadata", "x"]), JSON))
def test_whatever_a_child_says_is_a_listed_message_or_nothing(data: dict[str, Any]) -> None:
    found = child_messages.message(data, ())
    assert found is None or found.msg_type in CHILD_MESSAGE_TYPES


@given(
    data=st.dictionaries(
        st.sampled_from(["size_bytes", "index", "keep", "new", "patched", "lost", "kind"]), JSON
    )
)
def test_whatever_a_child_says_of_its_snapshot_is_checked(data: dict[str, Any]) -> None:
    found = child_messages.snapshot(data)
    assert found is None or SnapshotReport.from_dict(found.to_dict()) == found


@pytest.mark.parametrize("msg_type", ["status", "execute_reply", "execute_input", "shutdown_reply"])
def test_messages_that_only_the_gateway_may_send_are_refused(msg_type: str) -> None:
    assert child_messages.message(body(msg_type, {}), ()) is None


def test_only_the_reply_of_the_right_type_is_taken() -> None:
    assert child_messages.reply(body("execute_reply", {"status": "ok"}), "complete") is None
    assert child_messages.reply(body("execute_reply", {"status": 1}), "execute") is None
    answer = {"status": "ok", "execution_count": 1}
    assert child_messages.reply(body("execute_reply", answer), "execute") is not None


ERROR = {"ename": "E", "evalue": "", "traceback": ["E"]}
DISPLAY = {"data": {"text/plain": "1"}, "metadata": {}, "transient": {}}
COMM = {"comm_id": "c", "data": {}}
GOOD: dict[str, dict[str, Any]] = {
    "stream": {"name": "stdout", "text": "x"},
    "display_data": DISPLAY,
    "update_display_data": {**DISPLAY, "transient": {"display_id": "d"}},
    "execute_result": {**DISPLAY, "execution_count": 1},
    "error": ERROR,
    "clear_output": {"wait": True},
    "comm_open": {**COMM, "target_name": "t"},
    "comm_msg": COMM,
    "comm_close": COMM,
    "input_request": {"prompt": "?", "password": False},
}
BAD: list[tuple[str, dict[str, Any]]] = [
    ("stream", {"name": "other"}),
    ("stream", {"name": ["stdout"]}),
    ("stream", {"text": 1}),
    ("stream", {"text": None}),
    ("display_data", {"data": []}),
    ("display_data", {"data": "x"}),
    ("display_data", {"metadata": None}),
    ("display_data", {"transient": {"display_id": 1}}),
    ("update_display_data", {"transient": {}}),
    ("execute_result", {"execution_count": "1"}),
    ("execute_result", {"execution_count": True}),
    ("error", {"ename": None}),
    ("error", {"evalue": 1}),
    ("error", {"traceback": "text"}),
    ("error", {"traceback": [1]}),
    ("clear_output", {"wait": "no"}),
    ("comm_open", {"target_name": None}),
    ("comm_open", {"target_module": 1}),
    ("comm_msg", {"comm_id": {}}),
    ("comm_close", {"data": []}),
    ("input_request", {"prompt": 1}),
    ("input_request", {"password": "yes"}),
]


def test_every_type_that_is_taken_has_a_shape() -> None:
    assert GOOD.keys() == CHILD_MESSAGE_TYPES == message_shapes.MESSAGES.keys()
    for msg_type, content in GOOD.items():
        found = child_messages.message(body(msg_type, {**content, "unknown": 1}), ())
        assert found is not None
        assert found.content == content


@pytest.mark.parametrize(("msg_type", "wrong"), BAD)
def test_a_message_that_a_client_could_not_read_is_refused(
    msg_type: str, wrong: dict[str, Any]
) -> None:
    assert child_messages.message(body(msg_type, GOOD[msg_type] | wrong), ()) is None


@pytest.mark.parametrize("msg_type", ["stream", "error", "comm_open", "execute_result"])
def test_a_message_without_what_it_is_for_is_refused(msg_type: str) -> None:
    assert child_messages.message(body(msg_type, {}), ()) is None


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("execute", {"status": "ok", "execution_count": "1"}),
        ("execute", {"status": "ok", "execution_count": 1, "payload": [1]}),
        ("execute", {"status": "ok", "execution_count": 1, "payload": {}}),
        ("execute", {"status": "ok", "execution_count": 1, "user_expressions": {"a": 1}}),
        ("execute", {"status": "error", "execution_count": 1}),
        ("execute", {"status": "error", **ERROR, "traceback": None}),
        ("execute", {"status": "fine", "execution_count": 1}),
        ("execute", {"status": ["ok"], "execution_count": 1}),
        ("complete", {"matches": [1], "cursor_start": 0, "cursor_end": 0}),
        ("complete", {"matches": [], "cursor_start": "0", "cursor_end": 0}),
        ("inspect", {"found": 1}),
        ("inspect", {"found": True, "data": []}),
    ],
)
def test_a_reply_that_a_client_could_not_read_is_refused(
    kind: str, content: dict[str, Any]
) -> None:
    assert child_messages.reply(body(f"{kind}_reply", content), kind) is None


def passed(messages: list[dict[str, Any]], max_bytes: int) -> list[ChildMessage]:
    sent: list[ChildMessage] = []
    output = Output(sent.append, max_bytes)
    for data in messages:
        output.message(data, ())
    output.close()
    return sent


def test_output_is_cut_at_the_limit_and_told() -> None:
    sent = passed([body("stream", {"name": "stdout", "text": "x" * 3000})] * 3, 5000)
    kept = sum(len(m.content["text"]) for m in sent if m.content["name"] == "stdout")
    assert kept <= 5000
    assert "were cut" in sent[-1].content["text"]


def test_an_error_after_too_much_output_is_passed_on() -> None:
    flood = body("stream", {"name": "stdout", "text": "x" * 9000})
    sent = passed([flood, body("error", ERROR)], 5000)
    assert "error" in [m.msg_type for m in sent]


def test_refused_messages_are_counted_and_told_once() -> None:
    sent = passed([body("status", {}), body("stream", {"name": "stdout", "text": 1})], 100)
    assert [m.content["text"] for m in sent] == [
        "[output] 2 malformed messages of the cell were left out\n"
    ]


def test_stream_text_that_follows_its_own_kind_is_one_message() -> None:
    lines = [body("stream", {"name": "stdout", "text": f"{i}\n"}) for i in range(10_000)]
    other = body("stream", {"name": "stderr", "text": "x"})
    sent = passed([*lines, other, *lines[:2], body("clear_output", {}), lines[0]], 100_000)
    assert [m.content.get("name", "-") for m in sent] == [
        *("stdout", "stderr", "stdout", "-", "stdout")
    ]
    assert sent[0].content["text"].count("\n") == 10_000


def test_messages_count_as_what_they_cost_on_their_way() -> None:
    sent = passed([body("display_data", {"data": {"text/plain": "1"}})] * 1000, 100_000)
    shown = [m for m in sent if m.msg_type == "display_data"]
    assert 100 < len(shown) < 200


@pytest.mark.parametrize(
    "value",
    [10**4000, [10**4000] * 10, {"a": {"b": [10**40] * 1000}}],
    ids=["one", "array", "nested"],
)
def test_long_numbers_count_with_their_digits(value: Any) -> None:
    sent = passed([body("display_data", {"data": {"application/json": value}})] * 100, 100_000)
    shown = [m for m in sent if m.msg_type == "display_data"]
    assert 0 < sum(len(json.dumps(m.content)) for m in shown) <= 200_000


@given(text=st.text(), cut=st.integers(min_value=0, max_value=20))
def test_text_is_decoded_across_reads(text: str, cut: int) -> None:
    raw = text.encode("utf-8", "surrogatepass")
    sent: list[ChildMessage] = []
    output = Output(sent.append, 10**6)
    output.raw("stdout", raw[:cut])
    output.raw("stdout", raw[cut:])
    output.close()
    assert "".join(m.content["text"] for m in sent) == raw.decode("utf-8", "replace")
