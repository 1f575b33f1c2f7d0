"""What a replay's comparison says of notebooks that ran twice in a stock ipykernel.

``python -m tests.notebooks.twice [NAME…]``: a table, and each cell that is not the same.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from kernel_gateway.replay.cells import CellPair, Execution
from kernel_gateway.replay.compare import compared
from kernel_gateway.replay.rules import Rules
from kernel_gateway.replay.verdicts import Standing
from tests.notebooks.comparing import run_stock
from tests.notebooks.sources import packages_python, read_sources


def main(names: list[str]) -> None:
    """Run the notebooks whose names contain one of ``names`` (all of them without any) twice."""
    python, rules = packages_python(), Rules.load()
    total: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    print(f"{'notebook':28}{'cells':>6}{'identical':>11}{'equivalent':>11}{'different':>11}")
    for source in read_sources():
        if names and not any(name in source.name for name in names):
            continue
        notebooks = [source.obtain(), source.obtain()]
        for notebook in notebooks:
            with tempfile.TemporaryDirectory() as folder:
                run_stock(notebook, python, Path(folder))
        pairs = [
            _pair(number, *cells)
            for number, cells in enumerate(zip(*(n.cells for n in notebooks), strict=True), 1)
        ]
        verdicts = [compared(pair, rules) for pair in pairs]
        counts = Counter(str(verdict.standing) for verdict in verdicts)
        total += counts
        reasons.update({reason.code for verdict in verdicts for reason in verdict.all_reasons})
        _print_row(source.name, counts)
        for pair, verdict in zip(pairs, verdicts, strict=True):
            if verdict.standing not in (Standing.IDENTICAL, Standing.EQUIVALENT):
                print(f"  cell {pair.number}: {verdict.all_reasons[0]}\n    {verdict.first}")
    _print_row("all", total)
    print("\n".join(f"{count:6} {code}" for code, count in reasons.most_common()))


def _print_row(name: str, counts: Counter[str]) -> None:
    shown = (Standing.IDENTICAL, Standing.EQUIVALENT, Standing.DIFFERENT)
    columns = "".join(f"{counts[standing]:11}" for standing in shown)
    print(f"{name:28}{counts.total():6}{columns}", flush=True)


def _pair(number: int, one: Any, other: Any) -> CellPair:
    return CellPair(
        number=number,
        cell_id=None,
        execution_count=number,
        source=one.source,
        recorded=_execution(one),
        replayed=_execution(other),
    )


def _execution(cell: Any) -> Execution:
    enames = [output.ename for output in cell.outputs if output.output_type == "error"]
    return Execution(
        status="error" if enames else "ok",
        ename=enames[0] if enames else None,
        outputs=tuple(cell.outputs),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
