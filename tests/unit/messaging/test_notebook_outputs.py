"""Messages of a cell as outputs of a notebook file."""

from __future__ import annotations

from typing import Any

import nbformat
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gateway.messaging.message import OutMessage
from kernel_gateway.messaging.notebook_outputs import outputs_of


def message(msg_type: str, **content: Any) -> OutMessage:
    return OutMessage(channel="iopub", header={"msg_type": msg_type}, content=content)


def stream(text: str, name: str = "stdout") -> OutMessage:
    return message("stream", name=name, text=text)


def display(text: str, display_id: str | None = None, msg_type: str = "display_data") -> OutMessage:
    transient = {} if display_id is None else {"display_id": display_id}
    return message(msg_type, data={"text/plain": text}, metadata={}, transient=transient)


def clear(*, wait: bool) -> OutMessage:
    return message("clear_output", wait=wait)


def texts(*messages: OutMessage) -> list[str]:
    return [o.get("text") or o["data"]["text/plain"] for o in outputs_of(messages)]


def test_stream_text_that_follows_itself_is_one_output() -> None:
    found = outputs_of([stream("a"), stream("b"), stream("e", "stderr"), stream("c")])
    assert [(o["name"], o["text"]) for o in found] == [
        ("stdout", "ab"),
        ("stderr", "e"),
        ("stdout", "c"),
    ]


def test_a_display_between_parts_the_stream() -> None:
    assert texts(stream("a"), display("D"), stream("b")) == ["a", "D", "b"]


def test_an_update_changes_every_display_with_its_id_and_adds_none() -> None:
    shown = [display("1", "x"), display("other", "y"), display("2", "x")]
    assert texts(*shown) == ["2", "other", "2"]
    assert texts(*shown, display("3", "x", "update_display_data")) == ["3", "other", "3"]
    assert texts(display("3", "nobody's", "update_display_data")) == []


def test_clear_output_takes_away_what_was_there_now_or_with_the_next_output() -> None:
    assert texts(stream("a"), clear(wait=False)) == []
    assert texts(stream("a"), clear(wait=True)) == ["a"]
    assert texts(stream("a"), clear(wait=True), stream("b")) == ["b"]
    assert texts(stream("a"), clear(wait=True), clear(wait=False), stream("b"), stream("c")) == [
        "bc"
    ]


def test_an_update_after_a_clear_finds_nothing() -> None:
    assert (
        texts(display("1", "x"), clear(wait=False), display("2", "x", "update_display_data")) == []
    )


def test_what_is_no_output_is_left_out_and_what_is_broken_too() -> None:
    others = [message("status", execution_state="busy"), message("comm_open", comm_id="c")]
    assert outputs_of([*others, message("stream"), stream("a")])[0]["text"] == "a"


ANY = st.sampled_from(
    [
        stream("a"),
        stream("e", "stderr"),
        display("1", "x"),
        display("2"),
        display("3", "x", "update_display_data"),
        clear(wait=True),
        clear(wait=False),
        message("error", ename="E", evalue="v", traceback=["t"]),
        message("execute_result", data={"text/plain": "1"}, metadata={}, execution_count=3),
        message("status", execution_state="busy"),
    ]
)


@given(st.lists(ANY, max_size=12))
def test_whatever_comes_is_a_valid_notebook_cell(messages: list[OutMessage]) -> None:
    cell = nbformat.v4.new_code_cell("code")
    cell.outputs = [nbformat.from_dict(output) for output in outputs_of(messages)]
    nbformat.validate(nbformat.v4.new_notebook(cells=[cell]))
    for first, second in zip(cell.outputs, cell.outputs[1:], strict=False):
        assert not first.get("name") == second.get("name") != None  # noqa: E711


@pytest.mark.parametrize("metadata", [{}, {"isolated": True}])
def test_a_result_keeps_its_number_and_metadata(metadata: dict[str, Any]) -> None:
    content = {"data": {"text/html": "<b>"}, "metadata": metadata, "execution_count": 7}
    assert outputs_of([message("execute_result", **content)]) == [
        {"output_type": "execute_result", **content}
    ]
