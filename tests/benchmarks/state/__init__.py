"""Sessions that survive their processes: the table of goals, ours and its peers side by side."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from tests.benchmarks.rows import Row
from tests.benchmarks.state import battery, goals, product
from tests.benchmarks.state.peers import PEERS, Peers

PARTS = ("goals", "battery", "product")


def measure(row: Row, folder: Path, parts: Sequence[str] = ()) -> None:
    """Print the parts that are named, or all."""
    wanted = parts or PARTS
    peers = Peers.install(folder)
    listed = ", ".join(f"{name} {peers.versions[name]}" for name in PEERS if not peers.why)
    print(f"\nSessions: ours beside {listed or peers.why}")
    print("Other programs share the machine: CPU time comes first, wall time is in brackets.")
    print(
        f"Load average {os.getloadavg()[0]:.1f}, {os.getloadavg()[1]:.1f} on {os.cpu_count()} cores"
    )
    if "goals" in wanted:
        goals.measure(row, peers)
    if "battery" in wanted:
        battery.measure(row, peers)
    if "product" in wanted:
        product.measure(row, folder)
    print(f"\nLoad average at the end {os.getloadavg()[0]:.1f}")
