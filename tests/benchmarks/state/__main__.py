"""Measure sessions that survive their processes: ``python -m tests.benchmarks.state [PART...]``.

Parts: goals, battery, product (all, if none is named). LKG_BENCH_PEERS names a folder with a
virtual environment that has the peers already.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from tests.benchmarks import state
from tests.benchmarks.rows import row

if __name__ == "__main__":
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores")
    with tempfile.TemporaryDirectory() as name:
        state.measure(row, Path(name), sys.argv[1:])
