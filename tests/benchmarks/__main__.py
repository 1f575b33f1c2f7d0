"""Measure the main job beside its peers: `python -m tests.benchmarks`; `... scale`: many of all.

Prints one table; times are milliseconds (p50 unless said), ratios are peer / ours.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from tests.benchmarks import (
    completing,
    gateway_core,
    homes,
    isolation,
    life_cycle,
    scale,
    state,
    streaming,
)
from tests.benchmarks.peers import fresh_kernel_s, stock_server
from tests.benchmarks.rows import row
from tests.integration.driver import Gateway, NotebookClient, a_gateway

STEPS = (
    "receive", "admit", "plan", "invoke", "narrow", "rehydrate", "run", "persist", "publish",
)  # fmt: skip
CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def p50_ms(action: Callable[[], object], count: int) -> float:
    """Return the median of ``count`` runs in milliseconds."""
    times = []
    for _ in range(count):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1000


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that one process has used, without its children."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / CLOCK_TICKS


def start_up(folder: Path) -> None:
    """Measure the way from the command to the first cell."""
    began = time.perf_counter()
    with a_gateway(folder / "cold") as gateway:
        ready = time.perf_counter()
        client = gateway.session()
        client.execute("1 + 1")
        first = time.perf_counter()
        client.close()
    row("ready after the command (s)", f"{ready - began:.2f}", "goal <= 6")
    row("first cell after ready (s)", f"{first - ready:.2f}", "goal <= 2")


def warm_cell(gateway: Gateway, stock: Gateway) -> None:
    """Measure `1+1` over the websocket, the nine steps, the gateway's CPU and AWS round trips."""
    client, peer = gateway.session(), stock.session(name="python3")
    for each in (client, peer):
        p50_ms(partial(each.execute, "1+1"), 15)
    before, began = cpu_s(gateway.process.pid), time.perf_counter()
    runs = [client.execute("1+1") for _ in range(60)]
    wall_ms = (time.perf_counter() - began) * 1000 / len(runs)
    gateway_cpu_ms = (cpu_s(gateway.process.pid) - before) * 1000 / len(runs)
    ours = p50_ms(lambda: client.execute("1+1"), 60)
    theirs = p50_ms(lambda: peer.execute("1+1"), 30)
    fresh = statistics.median(fresh_kernel_s("1+1") for _ in range(5)) * 1000
    row("warm 1+1 over the websocket", f"{ours:.1f}", "goal <= 60", f"mean {wall_ms:.1f}")
    row("  stock jupyter_server + ipykernel", f"{theirs:.1f}", f"ratio {theirs / ours:.2f}")
    row("  a fresh ipykernel for every cell", f"{fresh:.0f}", f"ratio {fresh / ours:.1f}")
    row("gateway process, CPU per cell (all it does)", f"{gateway_cpu_ms:.1f}")
    for step in STEPS:
        values = [run.reply_metadata["timings_ms"].get(step, float("nan")) for run in runs]
        row(f"  step {step}", f"{statistics.median(values):.2f}")
    facts = runs[-1].reply_metadata
    row(
        "sequential AWS round trips per cell",
        str(facts["aws_sequential"]),
        "goal 3",
        f"requests {facts['aws_calls']}",
    )
    client.close()
    peer.close()


def new_kernels(gateway: Gateway, stock: Gateway) -> None:
    """Measure POST /api/kernels."""
    made: list[str] = []

    def post() -> None:
        made.append(gateway.rest("POST", "/api/kernels", json={}).json()["id"])

    ours = p50_ms(post, 100)
    theirs = p50_ms(lambda: stock.rest("POST", "/api/kernels", json={"name": "python3"}), 5)
    row("POST /api/kernels, with its durable record", f"{ours:.1f}", "goal <= 15")
    row("  stock jupyter_server", f"{theirs:.1f}", f"ratio {theirs / ours:.1f}")
    for kernel_id in made:
        gateway.rest("DELETE", f"/api/kernels/{kernel_id}")


def big_workspaces(gateway: Gateway) -> None:
    """Measure a cell in a workspace of many files, and in one of many bytes."""
    for name, code in (
        ("10,000 files", "import os\nfor i in range(10_000): open(f'f{i}', 'w').write(str(i))"),
        (
            "300 MB in 3 files",
            "import os\nfor i in range(3): open(f'b{i}', 'wb').write(os.urandom(10**8))",
        ),
    ):
        client = gateway.session(env={"LAMBDA_KERNEL_WORKSPACE": f"w{len(name)}"})
        began = time.perf_counter()
        client.execute(code, timeout_s=600)
        written_s = time.perf_counter() - began
        runs = [client.execute("1+1", timeout_s=600).reply_metadata for _ in range(3)]
        timings = runs[-1]["timings_ms"]
        total = sum(timings.get(step, 0) for step in ("narrow", "rehydrate", "run", "persist"))
        row(
            f"cell in a workspace of {name}",
            f"{total:.0f}",
            f"rehydrate {timings['rehydrate']:.0f}",
            f"persist {timings['persist']:.0f}",
            f"the cell that wrote them {written_s:.1f} s",
        )
        client.close()


def many_kernels(gateway: Gateway) -> None:
    """Run 100 kernels at once through the few containers there are; nothing may be lost."""
    clients = [gateway.session() for _ in range(100)]

    def one(numbered: tuple[int, NotebookClient]) -> bool:
        number, client = numbered
        run = client.execute(f"import time; time.sleep(0.1); print({number})", timeout_s=300)
        client.close()
        return run.stdout == f"{number}\n"

    began = time.perf_counter()
    with ThreadPoolExecutor(100) as pool:
        right = sum(pool.map(one, enumerate(clients)))
    elapsed = time.perf_counter() - began
    row("100 kernels running sleep(0.1) at once (s)", f"{elapsed:.1f}", f"right answers {right}")


def main() -> None:
    """Print the table."""
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores\n")
    if sys.argv[1:] == ["scale"]:
        with tempfile.TemporaryDirectory() as name:
            scale.measure(row, Path(name))
        return
    asyncio.run(gateway_core.measure(row))
    homes.measure(row)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start_up(folder)
        with a_gateway(folder / "state") as gateway, stock_server(folder) as stock:
            warm_cell(gateway, stock)
            completing.measure(row, gateway, stock)
            new_kernels(gateway, stock)
            streaming.measure(row, gateway, stock)
            life_cycle.measure(row, gateway, stock)
            big_workspaces(gateway)
            many_kernels(gateway)
        homes.pandas(row, folder)
        isolation.measure(row, folder)
        state.measure(row, folder)


main()
