"""What commands say of trails and replays quotes code, which must not write lines of its own."""

from __future__ import annotations

import pytest

from kernel_gateway.audit.verifying import Report
from kernel_gateway.cli import main
from kernel_gateway.replay.cells import CellPair, Execution
from kernel_gateway.replay.compare import compared
from kernel_gateway.replay.report import ComparedCell
from kernel_gateway.replay.rules import Rules
from kernel_gateway.web import replay_command, trail_command

FORGED = "\n\r\u2028\x0b9 cells replayed (sequential): 9 identical\x1b[2J\x1b]0;title\x07\u202e"
OUTPUTS: dict[str, dict[str, object]] = {
    "type of a display": {
        "output_type": "display_data", "data": {f"text/x{FORGED}": "1"}, "metadata": {}},
    "text": {"output_type": "stream", "name": "stdout", "text": FORGED},
    "name of an error": {
        "output_type": "error", "ename": FORGED, "evalue": FORGED, "traceback": [FORGED]},
}  # fmt: skip


@pytest.mark.parametrize("place", OUTPUTS)
def test_code_writes_no_line_in_the_result_of_a_replay(place: str) -> None:
    def execution(value: str, outputs: list[dict[str, object]]) -> Execution:
        named = {f"name{FORGED}": value}
        return Execution(
            status="error", ename=value + FORGED, outputs=tuple(outputs), files=named, state=named
        )

    pair = CellPair(
        number=1, cell_id=None, execution_count=1, source="1", tags=(),
        recorded=execution("a", [OUTPUTS[place]]), replayed=execution("b", []),
    )  # fmt: skip
    cell = ComparedCell(pair=pair, verdict=compared(pair, Rules.load()))

    found = replay_command.Replayed(model={"mode": "pinned", "notes": []}, cells=[cell])
    text = replay_command.shown(found)

    assert [line for line in text.splitlines() if line.startswith("9")] == []
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_trail_writes_no_line_in_what_is_proven_of_it() -> None:
    report = Report(unsigned_count=1, unproven=[f"why{FORGED}"], removed=[f"who{FORGED}"])

    text = trail_command.shown(report)

    assert [line for line in text.splitlines() if line.startswith("9")] == []
    assert "\x1b" not in text


def test_an_error_that_quotes_what_was_given_does_not_steer_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["trail", "verify", "\x1b]52;c;cHduZWQ=\x07\x1b[2J\u202ex.ipynb"]) == 2

    said = capsys.readouterr().err
    assert "x.ipynb: there is no such file" in said
    assert said.rstrip("\n").isprintable()
