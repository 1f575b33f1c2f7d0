"""A new kernel's first result, interrupts, and what an idle kernel holds; beside stock."""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import psutil

from tests.benchmarks.rows import Row
from tests.integration.driver import Gateway, NotebookClient

NEW_KERNELS = 5
INTERRUPTS = 5
IDLE_KERNELS = {"ours": 200, "stock": 3}
LOOP = "print('begun', flush=True)\nwhile True: pass"
STOCK = "  stock jupyter_server + ipykernel"


def measure(row: Row, gateway: Gateway, stock: Gateway) -> None:
    """Print the rows."""
    first = {
        name: statistics.median(_first_result_s(server, spec) for _ in range(NEW_KERNELS))
        for name, server, spec in (("ours", gateway, None), ("stock", stock, "python3"))
    }
    row("POST /api/kernels to the first result", f"{first['ours'] * 1000:.0f}")
    row(STOCK, f"{first['stock'] * 1000:.0f}", f"ratio {first['stock'] / first['ours']:.1f}")
    late = {
        "ours": _interrupted_ms(gateway, None),
        "stock": _interrupted_ms(stock, "python3"),
    }
    row("interrupt_request to KeyboardInterrupt", f"{late['ours']:.0f}", "goal <= 500")
    row(STOCK, f"{late['stock']:.0f}", f"ratio {late['stock'] / late['ours']:.2f}")
    kb = {
        "ours": _idle_kb(gateway, None, IDLE_KERNELS["ours"]),
        "stock": _idle_kb(stock, "python3", IDLE_KERNELS["stock"]),
    }
    row("idle kernel, in the server and its processes (kB)", f"{kb['ours']:.0f}")
    row(STOCK, f"{kb['stock']:.0f}")


def _session(server: Gateway, spec: str | None) -> NotebookClient:
    return server.session(**({} if spec is None else {"name": spec}))


def _end(client: NotebookClient) -> None:
    client.close()
    client.gateway.rest("DELETE", f"/api/kernels/{client.kernel_id}")


def _first_result_s(server: Gateway, spec: str | None) -> float:
    began = time.perf_counter()
    client = _session(server, spec)
    assert client.execute("1+1").result == "2"
    elapsed_s = time.perf_counter() - began
    _end(client)
    return elapsed_s


def _interrupted_ms(server: Gateway, spec: str | None) -> float:
    """Return how long a loop runs on after the interrupt was asked for, in the median."""
    client = _session(server, spec)
    times_ms = []
    for _ in range(INTERRUPTS):
        loop = client.submit(LOOP)
        began = 0.0
        while not loop.done:
            message = client.receive(60)
            if message["parent_header"].get("msg_id") != loop.msg_id:
                continue
            loop.messages.append(message)
            if message["header"]["msg_type"] == "stream" and not began:
                began = time.perf_counter()
                client.gateway.rest("POST", f"/api/kernels/{client.kernel_id}/interrupt")
            elif message["header"]["msg_type"] == "error":
                assert message["content"]["ename"] == "KeyboardInterrupt"
                times_ms.append((time.perf_counter() - began) * 1000)
    _end(client)
    return statistics.median(times_ms)


def _idle_kb(server: Gateway, spec: str | None, count: int) -> float:
    """Return by how much each idle kernel makes the server and its processes grow."""
    before = _pss_kb(server)
    body = {} if spec is None else {"name": spec}
    made = [server.rest("POST", "/api/kernels", json=body).json() for _ in range(count)]
    if spec is not None:
        # Its process is there once it has answered.
        for kernel in made:
            client = NotebookClient(server, kernel["id"], server.token)
            client.execute("1")
            client.close()
    grown_kb = _pss_kb(server) - before
    for kernel in made:
        server.rest("DELETE", f"/api/kernels/{kernel['id']}")
    return grown_kb / count


def _pss_kb(server: Gateway) -> float:
    """Return the memory of the server and, of stock's, of its kernels; shared pages once."""
    own = psutil.Process(server.process.pid)
    kernels = [p for p in own.children(recursive=True) if "ipykernel" in " ".join(p.cmdline())]
    return sum(_one_pss_kb(process.pid) for process in [own, *kernels])


def _one_pss_kb(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return float(line.split()[1])
    raise AssertionError(f"process {pid} has no memory")
