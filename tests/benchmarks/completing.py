"""Completion at the pace of somebody who types; beside stock Jupyter, and beside a cell."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.benchmarks.peers import stock_server
from tests.benchmarks.rows import Row, row
from tests.integration.driver import Gateway, NotebookClient, a_gateway

SESSION = """
import numpy as np, pandas as pd
import matplotlib.pyplot as plt
words = ['a']
df = pd.DataFrame({'alpha': [1, 2]})
open('data.csv', 'w').close()
"""
CODES = ("words.", "np.lin", "df.", "open('da", "import itertoo", "'a'.isal", "plt.", "pri")
COUNT = 6
WARM_UP_COUNT = 2
KEYSTROKE_S = 0.15
"""Between the keystrokes of somebody who types 80 words a minute."""
REHEARSED_S = 30.0
"""For a container to have parsed what jedi needs, which it does while nothing is asked of it."""


def measure(row: Row, gateway: Gateway, stock: Gateway) -> None:
    """Measure both with the same codes, and cells of ours in the same minute."""
    ours, theirs = gateway.session(), stock.session(name="python3")
    for client in (ours, theirs):
        client.execute(SESSION)
    _wait_until_rehearsed(ours)
    all_ms: list[float] = []
    for code in CODES:
        found, static_count = _answer_times_ms(ours, code)
        all_ms += found
        goal = "goal <= 150" if code == "plt." else "goal <= 60"
        row(f"complete {code}", *_shown(found), goal, f"static {static_count}")
        row("  stock jupyter_server + ipykernel", *_shown(_answer_times_ms(theirs, code)[0]))
    all_ms.sort()
    p95 = all_ms[int(len(all_ms) * 0.95)]
    row("complete, all of these", *_shown(all_ms), f"p95 {p95:.1f}", "goal <= 150")
    row("  1+1 in the same minute", *_shown(_times_ms(lambda: ours.execute("1+1"))))
    ours.close()
    theirs.close()


def _shown(times_ms: list[float]) -> tuple[str, str]:
    return f"{statistics.median(times_ms):.1f}", f"max {max(times_ms):.1f}"


def _times_ms(action: Callable[[], object]) -> list[float]:
    times = []
    for _ in range(COUNT + WARM_UP_COUNT):
        time.sleep(KEYSTROKE_S)
        began = time.perf_counter()
        action()
        times.append((time.perf_counter() - began) * 1000)
    return times[WARM_UP_COUNT:]


def _answer_times_ms(client: NotebookClient, code: str) -> tuple[list[float], int]:
    """Return how long completions of ``code`` took, and how many did not know a match."""
    found: list[list[str]] = []
    times_ms = _times_ms(lambda: found.append(_complete(client, code)))
    return times_ms, found.count([])


def _complete(client: NotebookClient, code: str) -> list[str]:
    reply = client.request("complete_request", {"code": code, "cursor_pos": len(code)})
    matches: list[str] = reply["matches"]
    return matches


def _wait_until_rehearsed(client: NotebookClient) -> None:
    """Return when jedi answers, of which a static answer knows nothing."""
    ends = time.monotonic() + REHEARSED_S
    while "splitlines" not in _complete(client, "''.join(words).spl"):
        assert time.monotonic() < ends, "no container answers"
        time.sleep(1.0)


if __name__ == "__main__":
    with (
        tempfile.TemporaryDirectory() as name,
        a_gateway(Path(name) / "state") as gateway,
        stock_server(Path(name)) as stock,
    ):
        measure(row, gateway, stock)
