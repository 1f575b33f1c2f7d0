"""What the terminal is told, and the exit codes."""

from __future__ import annotations

import pytest

from kernel_gateway.errors import ConfigError
from kernel_gateway.replay.cells import CellPair
from kernel_gateway.replay.summary import exit_code, fail_on_option, summary
from kernel_gateway.replay.verdicts import Standing
from tests.unit.replay.examples import pair, ran, report_of, stream

SAME = pair(ran(stream("1")), ran(stream("1")))
EQUIVALENT = pair(ran(stream("took 1 s")), ran(stream("took 2 s")))
DIFFERENT = pair(ran(stream("a\n1")), ran(stream("a\n2")), source="\nprint(x)")
FAILED = pair(ran(), ran(status="error", ename="KeyError"))
FIXED = pair(ran(status="error", ename="KeyError"), ran())
UNAVAILABLE = pair(ran(), None, reason="unavailable: a.csv")
SKIPPED = pair(ran(), None, reason="skipped: not in --only")


def test_counts_come_first_then_each_cell_that_is_not_the_same() -> None:
    assert summary(report_of(SAME, EQUIVALENT, DIFFERENT)).split("\n") == [
        "2 of 3 cells came out the same",
        "",
        "  = identical        1",
        "  ≈ equivalent       1",
        "  ≠ different        1",
        "",
        "≠ cell 1 [1] different: print(x)",
        "    text-differs stdout (from line 2)",
        "    - 1",
        "    + 2",
    ]


def test_nothing_of_a_cell_reaches_the_terminal_as_it_is() -> None:
    hostile = "\x1b]0;owned\x07\x1b[2J\r\u202e\x9b1m"
    cells = [
        pair(ran(stream(hostile)), ran(stream("x")), source=hostile),
        pair(ran(files={hostile: "1"}), ran()),
        pair(ran(), ran(status="error", ename=hostile)),
        pair(ran(), None, reason=f"unavailable: {hostile}"),
    ]
    said = summary(report_of(*cells))
    assert all(character.isprintable() for character in said.replace("\n", ""))
    assert "⟨ESC⟩]0;owned⟨BEL⟩" in said


def test_a_long_list_is_cut_and_says_so() -> None:
    said = summary(report_of(*[DIFFERENT] * 50))
    assert said.endswith("10 cells more are in the report")
    assert said.count("≠ cell") == 40


@pytest.mark.parametrize(
    ("cells", "fail_on", "code"),
    [
        ([SAME, EQUIVALENT], "different,failed", 0),
        ([SAME, EQUIVALENT], "different,failed,equivalent", 1),
        ([SAME, DIFFERENT], "different,failed", 1),
        ([SAME, DIFFERENT], "failed", 0),
        ([SAME, FAILED], "different,failed", 1),
        ([SAME, FIXED], "different,failed", 0),
        ([SAME, FIXED], "fixed", 1),
        ([SAME, UNAVAILABLE], "different,failed", 4),
        ([DIFFERENT, UNAVAILABLE], "different,failed", 1),
        ([SAME, SKIPPED], "different,failed", 0),
        ([SKIPPED, SKIPPED], "different,failed", 5),
        ([], "different,failed", 5),
        ([SAME, DIFFERENT], "", 0),
    ],
)
def test_the_exit_code_says_what_came_of_it(cells: list[CellPair], fail_on: str, code: int) -> None:
    assert exit_code(report_of(*cells), fail_on_option(fail_on)) == code


def test_without_a_choice_whatever_is_not_equivalent_fails() -> None:
    assert exit_code(report_of(SAME, EQUIVALENT)) == 0
    assert [exit_code(report_of(cell)) for cell in (DIFFERENT, FAILED, FIXED)] == [1, 1, 1]


def test_fail_on_names_verdicts() -> None:
    assert fail_on_option("different, failed") == {Standing.DIFFERENT, Standing.FAILED}
    with pytest.raises(ConfigError, match="--fail-on: 'otherwise' is no verdict to fail on"):
        fail_on_option("otherwise")
    with pytest.raises(ConfigError, match="identical"):
        fail_on_option("identical")
