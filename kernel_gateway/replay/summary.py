"""What a terminal says of a replay, and the exit code of the command."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel_gateway.errors import ConfigError
from kernel_gateway.replay.report_html import GLYPHS, SAME, headline
from kernel_gateway.replay.verdicts import NOT_RUN, FirstDifference, Reason, Standing
from kernel_gateway.replay.visible import visible

if TYPE_CHECKING:
    from kernel_gateway.replay.report import ComparedCell, Report

DEFAULT_FAIL_ON = frozenset({Standing.DIFFERENT, Standing.FAILED, Standing.FIXED})
MAX_CELLS = 40
MAX_CHARACTERS = 100
EXIT_SAME, EXIT_DIFFERENT, EXIT_NOT_RUN, EXIT_NOTHING = 0, 1, 4, 5


def summary(report: Report) -> str:
    """Return counts and the cells that are not the same; nothing of it acts on a terminal."""
    lines = [headline(report), ""]
    width = max((len(standing) for standing in report.counts), default=0)
    lines += [
        f"  {GLYPHS[standing]} {standing:<{width}} {count:>7,}"
        for standing, count in report.counts.items()
    ]
    others = [cell for cell in report.cells if cell.verdict.standing not in SAME]
    if others:
        lines.append("")
    for cell in others[:MAX_CELLS]:
        lines += _cell_lines(cell)
    if len(others) > MAX_CELLS:
        lines.append(f"{len(others) - MAX_CELLS:,} cells more are in the report")
    return "\n".join(lines)


def exit_code(report: Report, fail_on: frozenset[Standing] = DEFAULT_FAIL_ON) -> int:
    """Return the exit code of a replay: 0, 1, 4 or 5, see README."""
    counts = report.counts
    if any(counts.get(standing) for standing in fail_on):
        return EXIT_DIFFERENT
    if counts.get(Standing.UNAVAILABLE):
        return EXIT_NOT_RUN
    if all(cell.verdict.standing in NOT_RUN for cell in report.cells):
        return EXIT_NOTHING
    return EXIT_SAME


def fail_on_option(text: str) -> frozenset[Standing]:
    """Return what ``--fail-on`` names, separated by commas.

    Raises:
        ConfigError: a name is no verdict.
    """
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = [str(standing) for standing in Standing if standing is not Standing.IDENTICAL]
    for name in names:
        if name not in known:
            raise ConfigError(
                f"--fail-on: {name!r} is no verdict to fail on; there are {', '.join(known)}"
            )
    return frozenset(Standing(name) for name in names)


def _cell_lines(cell: ComparedCell) -> list[str]:
    verdict, pair = cell.verdict, cell.pair
    title = next((line.strip() for line in pair.source.splitlines() if line.strip()), "")
    glyph = GLYPHS[verdict.standing]
    lines = [
        f"{glyph} cell {pair.number} [{pair.execution_count}] {verdict.standing}: {_cut(title)}"
    ]
    counted = [reason for reason in verdict.all_reasons if not reason.code.startswith("state-")]
    lines += [f"    {_said(reason)}" for reason in counted[:3]]
    if len(counted) > 3:
        lines.append(f"    and {len(counted) - 3:,} more")
    return lines + (_difference_lines(verdict.first) if verdict.first is not None else [])


def _said(reason: Reason) -> str:
    parts = [reason.code, reason.where, f"({reason.detail})" if reason.detail else ""]
    return _cut(" ".join(part for part in parts if part))


def _difference_lines(first: FirstDifference) -> list[str]:
    sides = (("-", first.recorded), ("+", first.replayed))
    return [f"    {sign} {_cut(line)}" for sign, line in sides if line is not None]


def _cut(text: str) -> str:
    return visible(text[:MAX_CHARACTERS]) + ("…" if len(text) > MAX_CHARACTERS else "")
