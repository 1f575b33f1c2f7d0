"""What a replay costs: `python -m tests.benchmarks.replaying`.

A session of 40 cells of pandas, replayed one after the other and from pinned states. Containers are
warm; the ratio holds for this number of cores only.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.benchmarks.rows import row
from tests.integration.driver import Gateway, a_gateway

CELLS = 40
ROUNDS = 2
ROWS = 200_000
FIRST = f"""
import numpy as np, pandas as pd
rng = np.random.default_rng(1)
df = pd.DataFrame({{"k": rng.integers(0, 100, {ROWS}), "v": rng.random({ROWS})}})
df.to_csv("sales.csv", index=False)
"""
CODE = """
part = pd.read_csv("sales.csv").sample(frac=0.9, random_state={n})
part["day"] = part["k"] % 7
total_{n} = part.groupby(["day", "k"])["v"].agg(["mean", "std", "max"]).sort_values("mean")
total_{n}.head()
"""


def memory_mb(pid: int) -> float:
    """Return what a process holds in memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def replayed(gateway: Gateway, body: dict[str, Any]) -> tuple[float, str]:
    """Return how long a replay took, and what became of its cells."""
    began = time.perf_counter()
    answer = gateway.rest("POST", "/api/replays", json={**body, "keep_files": False})
    took_s = time.perf_counter() - began
    counts = Counter(cell["standing"] for cell in answer.json()["cells"])
    return took_s, ", ".join(f"{count} {standing}" for standing, count in counts.items())


def main() -> None:
    """Print the table."""
    with (
        tempfile.TemporaryDirectory(dir="/tmp") as folder,
        a_gateway(Path(folder) / "state") as gateway,
    ):
        client = gateway.session()
        for code in (FIRST, *(CODE.format(n=n) for n in range(1, CELLS))):
            assert client.execute(code).reply["status"] == "ok"
        body = {"kernel_id": client.kernel_id}
        # As many containers as pinned cells run at once.
        replayed(gateway, {**body, "mode": "pinned", "only": list(range(1, 9))})
        before_mb = memory_mb(gateway.process.pid)
        best_s: dict[str, float] = {}
        for _ in range(ROUNDS):
            for mode in ("sequential", "pinned"):
                took_s, cells = replayed(gateway, {**body, "mode": mode})
                row(f"replay of {CELLS} cells, {mode} (s)", f"{took_s:.1f}", cells)
                best_s[mode] = min(took_s, best_s.get(mode, took_s))
        ratio = best_s["sequential"] / best_s["pinned"]
        row("  sequential / pinned, best of each", f"{ratio:.2f}", f"{os.cpu_count()} cores")
        after_mb = memory_mb(gateway.process.pid)
        row("  the gateway's memory (MB)", f"{before_mb:.0f} → {after_mb:.0f}")
        client.close()


if __name__ == "__main__":
    main()
