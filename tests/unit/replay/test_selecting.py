"""Which cells are replayed, and why others are not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernel_gateway.errors import BadRequest
from kernel_gateway.replay.selecting import ReplayRequest, treatment
from tests.unit.replay.trails import a_cell, facts


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"status": None}, "how it ended is not recorded"),
        ({"status": "lost", "committed": False}, "was lost"),
        ({"status": "error", "failure": "CellTimeout", "committed": False}, "CellTimeout"),
        ({"status": "error", "failure": "ContainerDied", "committed": False}, "ContainerDied"),
        ({"status": "error", "was_interrupted": True}, "was interrupted"),
        ({"msg_type": "comm_msg"}, "widget"),
        ({"gateway": replace(facts(), received_mac="0" * 64)}, "redacted"),
    ],
)
def test_what_its_code_does_not_decide_is_not_run(how: dict[str, Any], why: str) -> None:
    treated = treatment(a_cell(1, **how))
    assert not treated.runs
    assert treated.reason.startswith("not-replayable: ")
    assert why in treated.reason


def test_a_cell_whose_output_was_lost_is_run_for_those_behind_it() -> None:
    treated = treatment(a_cell(1, is_complete=False))
    assert treated.runs
    assert "not recorded" in treated.reason


@pytest.mark.parametrize("failure", [None, "CellOutOfMemory", "CellProcessDied"])
def test_what_its_code_did_is_run_again(failure: str | None) -> None:
    treated = treatment(a_cell(1, status="error", failure=failure, committed=failure is None))
    assert treated.runs
    assert not treated.reason


def test_cells_are_chosen_by_number() -> None:
    cells = [a_cell(n) for n in (1, 2, 3, 4)]
    assert ReplayRequest().selected(cells) == cells
    assert ReplayRequest(begin=3).selected(cells) == cells[2:]
    assert ReplayRequest(only=(4, 2)).selected(cells) == [cells[1], cells[3]]
    assert ReplayRequest(only=(4,)).is_pinned
    for wrong in (ReplayRequest(begin=5), ReplayRequest(only=(1, 0))):
        with pytest.raises(BadRequest, match="1 to 4"):
            wrong.selected(cells)


@pytest.mark.parametrize(
    "how",
    [
        {"begin": 2, "only": (1,)},
        {"begin": 2, "mode": "pinned"},
        {"mode": "pinned", "parameters": {"x": 1}},
        {"parameters": {"x; import os": 1}},
    ],
)
def test_what_contradicts_itself_is_refused(how: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        ReplayRequest(**how)
