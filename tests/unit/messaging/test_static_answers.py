"""What is said of code without a container."""

from __future__ import annotations

import pytest

from kernel_gateway.messaging.message import InMessage
from kernel_gateway.messaging.static_answers import static_answer


def asked(code: str, cursor: int | None = None, msg_type: str = "complete_request") -> InMessage:
    content = {"code": code, "cursor_pos": len(code) if cursor is None else cursor}
    return InMessage(header={"msg_id": "1", "msg_type": msg_type}, content=content)


@pytest.mark.parametrize(
    ("code", "matches", "begin"),
    [
        ("pri", ["price", "print"], 0),
        ("x = 1\nwhi", ["while"], 6),
        ("\N{SNAKE}\N{SNAKE} = impor", ["import"], 5),
        ("%timei", ["%timeit"], 0),
        ("%%timei", ["%%timeit"], 0),
        ("price.", [], 6),
        ("price.re", [], 8),
        ("open('pri", [], 9),
        ("", [], 0),
    ],
)
def test_words_are_completed_as_far_as_they_are_known(
    code: str, matches: list[str], begin: int
) -> None:
    reply = static_answer(asked(code), ["price"])

    assert (reply["matches"], reply["cursor_start"], reply["cursor_end"]) == (
        *(matches, begin),
        len(code),
    )


def test_what_stands_behind_the_cursor_does_not_count() -> None:
    assert static_answer(asked("impor; x", 5), [])["matches"] == ["import"]


def test_the_types_say_what_a_match_is() -> None:
    types = static_answer(asked("pri"), ["price"])["metadata"]["_jupyter_types_experimental"]

    assert [(t["text"], t["type"]) for t in types] == [("price", "instance"), ("print", "function")]


def test_an_inspection_finds_nothing() -> None:
    reply = static_answer(asked("print", msg_type="inspect_request"), [])

    assert reply == {"status": "ok", "found": False, "data": {}, "metadata": {}}
