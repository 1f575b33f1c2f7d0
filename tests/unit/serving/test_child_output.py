"""What is believed of a child, and how much of it is passed on."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambda_kernel.contract.cell_protocol import SnapshotReport
from lambda_kernel.contract.frames import CHILD_MESSAGE_TYPES
from lambda_kernel.serving import child_messages
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
    assert child_messages.reply(body("execute_reply", {"status": "ok"}), "execute") is not None


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
    sent = passed([flood, body("error", {"ename": "E"})], 5000)
    assert "error" in [m.msg_type for m in sent]


def test_refused_messages_are_counted() -> None:
    output = Output(lambda message: None, 100)
    output.message(body("status", {}), ())
    assert output.dropped_count == 1


@given(text=st.text(), cut=st.integers(min_value=0, max_value=20))
def test_text_is_decoded_across_reads(text: str, cut: int) -> None:
    raw = text.encode("utf-8", "surrogatepass")
    sent: list[ChildMessage] = []
    output = Output(sent.append, 10**6)
    output.raw("stdout", raw[:cut])
    output.raw("stdout", raw[cut:])
    output.close()
    assert "".join(m.content["text"] for m in sent) == raw.decode("utf-8", "replace")
