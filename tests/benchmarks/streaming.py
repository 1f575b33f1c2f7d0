"""Output on its way to a client: how late lines are, how many go through; beside stock Jupyter."""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

from tests.benchmarks.peers import stock_server
from tests.benchmarks.rows import Row, row
from tests.integration.driver import Gateway, NotebookClient, a_gateway

LINES = 10_000
SLOW_LINES = 60
PRINT_TIMES = f"""
import time
for _ in range({SLOW_LINES}):
    print(time.time())
    time.sleep(0.03)
"""
PRINT_LINES = f"for i in range({LINES}): print('line', i)"
PRINT_1_MB = "print('x' * 1_000_000)"
ROUNDS = 5


def measure(row: Row, gateway: Gateway, stock: Gateway) -> None:
    """Measure both with the same cells."""
    ours, theirs = gateway.session(), stock.session(name="python3")
    found = {"": ours, "  stock jupyter_server + ipykernel": theirs}
    for client in found.values():
        client.execute("import time")
    for name, client in found.items():
        late_ms = sorted(_late_ms(client))
        p95 = late_ms[int(len(late_ms) * 0.95)]
        p50 = statistics.median(late_ms)
        notes = ("p95", f"{p95:.1f}", "max", f"{late_ms[-1]:.1f}", "" if name else "goal <= 150")
        row(name or "a printed line is at the client", f"{p50:.1f}", *notes)
    for name, client in found.items():
        first_s, whole_s = _best(client, PRINT_LINES)
        first = f"first line after {first_s * 1000:.0f} ms"
        row(name or "10,000 lines (lines/s)", f"{LINES / whole_s:,.0f}", first)
    for name, client in found.items():
        _, whole_s = _best(client, PRINT_1_MB)
        row(name or "a cell that prints 1 MB", f"{whole_s * 1000:.0f}")
    for client in found.values():
        client.close()


def _late_ms(client: NotebookClient) -> list[float]:
    """Return how long each line was on its way."""
    late: list[float] = []
    execution = client.submit(PRINT_TIMES)
    while not execution.done:
        message = client.receive(30)
        now = time.time()
        if message["parent_header"].get("msg_id") != execution.msg_id:
            continue
        execution.messages.append(message)
        if message["header"]["msg_type"] == "stream":
            printed = message["content"]["text"].split()
            late += [(now - float(text)) * 1000 for text in printed]
    return late


def _best(client: NotebookClient, code: str) -> tuple[float, float]:
    """Return when the first output came and when the cell was over, in the best of some runs."""
    runs = []
    for _ in range(ROUNDS):
        began, first = time.perf_counter(), 0.0
        execution = client.submit(code)
        while not execution.done:
            message = client.receive(60)
            if message["parent_header"].get("msg_id") == execution.msg_id:
                execution.messages.append(message)
                if message["header"]["msg_type"] == "stream" and not first:
                    first = time.perf_counter()
        runs.append((first - began, time.perf_counter() - began))
    return min(runs, key=lambda run: run[1])


def main() -> None:
    """Print these rows alone."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with a_gateway(folder / "state") as gateway, stock_server(folder) as stock:
            measure(row, gateway, stock)


if __name__ == "__main__":
    main()
