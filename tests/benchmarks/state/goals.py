"""The engine by itself beside its peers: one process, a fork for each cell, storage in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from tests.benchmarks.rows import Row
from tests.benchmarks.state.operations import (
    ARRAY,
    OPERATIONS,
    CellCost,
    Operation,
    small_variables,
)
from tests.benchmarks.state.peers import PEERS, PeerFailed, Peers

REPEATS = 5
PEER_REPEATS = 2
GROWTH = (10, 100, 1000, 3000, 10_000)
UNREAD_MB = (1, 10, 100, 500, 2000)


class Engine:
    """A process that measures sessions (see ``phases``)."""

    def __enter__(self) -> Engine:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.state.phases"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={"PATH": "/usr/bin:/bin", "PYTHONHASHSEED": "0", "PYTHONPATH": ":".join(sys.path)},
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def costs(
        self, setup: Sequence[str], cell: str, *, with_pagemap: bool = True, repeats: int = REPEATS
    ) -> list[CellCost]:
        """Return what a cell costs, each time it is run (raises RuntimeError: it failed)."""
        job = {"setup": list(setup), "cell": cell, "with_pagemap": with_pagemap, "repeats": repeats}
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return [CellCost(**cost) for cost in answer["costs"]]


def measure(row: Row, peers: Peers) -> None:
    """Print the operations with everybody's figures, then how ours grow."""
    print("\nThe engine by itself; CPU ms of the best run (wall ms), MB written\n")
    with Engine() as engine:
        bare = min(engine.costs((), "1+1", repeats=8), key=lambda cost: cost.cpu_ms)
        row(
            "what a child does while it waits for its cell",
            f"{bare.ahead_ms:.1f}",
            "not in the rest",
        )
        for operation in OPERATIONS:
            _ours(row, engine, operation, bare)
            _theirs(row, operation, peers)
        _growth(row, engine, bare)
        raw_pickle(row)


def _ours(row: Row, engine: Engine, operation: Operation, bare: CellCost) -> None:
    for with_pagemap in (True, False) if operation.bare_pagemap else (True,):
        costs = engine.costs(operation.setup, operation.cell, with_pagemap=with_pagemap)
        name = operation.name if with_pagemap else "  without the page table"
        _row_of(row, name, min(costs, key=lambda cost: cost.cpu_ms), bare, operation.goal)


def _row_of(row: Row, name: str, cost: CellCost, bare: CellCost, goal: str) -> None:
    state_ms = cost.cpu_ms - bare.run_ms
    row(
        name,
        f"{cost.cpu_ms:.1f}",
        f"({cost.wall_ms:.0f})",
        f"state {state_ms:.1f} = restore {cost.restore_ms:.1f} + save {cost.save_ms:.1f}"
        f" + loading {max(0.0, cost.run_ms - bare.run_ms):.1f}",
        f"mapped {cost.asked_bytes / 1e6:.1f} MB, wrote {cost.written_bytes / 1e6:.2f} MB",
        f"goal {goal}" if goal else "",
    )


def _theirs(row: Row, operation: Operation, peers: Peers) -> None:
    job = {"setup": operation.setup, "cell": operation.cell, "repeats": PEER_REPEATS}
    for peer in PEERS:
        try:
            best: dict[str, Any] = min(peers.do(peer, job), key=lambda cost: cost["cpu_ms"])
        except PeerFailed as failure:
            row(f"  {peer}", "-", str(failure))
            continue
        notes = [f"({best['wall_ms']:.0f})", f"wrote {best['written_bytes'] / 1e6:.2f} MB"]
        if "back_cpu_ms" in best:
            notes.append(f"checkout {best['back_cpu_ms']:.1f} ({best['back_wall_ms']:.0f})")
        row(f"  {peer}", f"{best['cpu_ms']:.1f}", *notes)


def _growth(row: Row, engine: Engine, bare: CellCost) -> None:
    for count in GROWTH:
        best = min(engine.costs(small_variables(count), "1+1"), key=lambda cost: cost.cpu_ms)
        _row_of(row, f"1+1 beside {count:,} small variables", best, bare, "state <= 5 ms")
    for size_mb in UNREAD_MB:
        setup = (f"import numpy as np\na = np.ones({size_mb * 125_000})",)
        best = min(engine.costs(setup, "1+1"), key=lambda cost: cost.cpu_ms)
        _row_of(row, f"1+1 beside an unread array of {size_mb:,} MB", best, bare, "state <= 5 ms")
    best = min(engine.costs((ARRAY,), "float(a[0])"), key=lambda cost: cost.cpu_ms)
    _row_of(row, "one element of an array of 100 MB read", best, bare, "")


def raw_pickle(row: Row) -> None:
    """Print what the interpreter itself needs for the large dict and list."""
    code = (
        "import gc, pickle, time; gc.disable(); v = {}; b = pickle.dumps(v, 5); del v\n"
        "best = 9e9\n"
        "for _ in range(3):\n"
        "    t = time.process_time(); x = pickle.loads(b)\n"
        "    best = min(best, time.process_time() - t); del x\n"
        "print(best * 1000)"
    )
    for name, value in (
        ("dict", "{str(i): i for i in range(1_000_000)}"),
        ("list", "list(range(1_000_000))"),
    ):
        done = subprocess.run(
            [sys.executable, "-c", code.replace("v = {}", f"v = {value}", 1)],
            capture_output=True,
            text=True,
            check=True,
        )
        row(f"  pickle.loads alone, {name} of 1e6 elements", f"{float(done.stdout):.1f}")
