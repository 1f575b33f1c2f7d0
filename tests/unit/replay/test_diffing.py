"""Two texts side by side."""

from __future__ import annotations

import time

from kernel_gateway.replay.diffing import Piece, Row, rows
from tests.unit.replay.examples import RULES


def shown(recorded: str | None, replayed: str | None) -> list[Row]:
    return rows(recorded, replayed, "stream/stdout", RULES)


def marked(side: tuple[Piece, ...]) -> str:
    return "".join(f"[{piece.text}]" if piece.is_changed else piece.text for piece in side)


def test_lines_far_from_a_difference_are_left_out_and_counted() -> None:
    lines = [f"line {number}" for number in range(100)]
    other = [*lines]
    other[50] = "line L"
    found = shown("\n".join(lines), "\n".join(other))
    assert [(row.kind, row.left_out) for row in found] == [
        ("gap", 47),
        *[("same", 0)] * 3,
        ("changed", 0),
        *[("same", 0)] * 3,
        ("gap", 46),
    ]
    changed = found[4]
    assert changed.recorded is not None
    assert changed.replayed is not None
    assert changed.recorded.number == 51
    assert marked(changed.recorded.pieces) == "line [50]"
    assert marked(changed.replayed.pieces) == "line [L]"


def test_a_line_that_a_rule_makes_equal_is_alike_and_still_marked() -> None:
    (row,) = shown("took 1.5 s", "took 2.5 s")
    assert row.kind == "alike"
    assert row.recorded is not None
    assert marked(row.recorded.pieces) == "took [1].5 s"


def test_a_line_more_has_nothing_beside_it() -> None:
    found = shown("a\nc\n", "a\nb\nc\n")
    assert [(row.recorded and row.recorded.number, row.replayed and row.replayed.number)
            for row in found] == [(1, 1), (None, 2), (2, 3)]  # fmt: skip


def test_a_text_that_is_not_there_has_no_line() -> None:
    assert [row.recorded for row in shown(None, "a\nb\n")] == [None, None]
    assert shown(None, None) == []


def test_a_long_line_is_cut_around_what_differs() -> None:
    (row,) = shown("x" * 1000 + " a", "x" * 1000 + " b")
    assert row.recorded is not None
    assert marked(row.recorded.pieces) == "…" + "x" * 59 + " [a]"


def test_hostile_texts_cost_little() -> None:
    began = time.process_time()
    one = "\n".join("ab" * 1000 for _ in range(5000))
    other = "\n".join("ba" * 1000 for _ in range(5000))
    assert len(shown(one, other)) < 1000
    shown("\n".join(str(number % 3) for number in range(5000)), "\n".join("021" * 900))
    # Minutes, were every line and word of it laid against every other.
    assert time.process_time() - began < 30
