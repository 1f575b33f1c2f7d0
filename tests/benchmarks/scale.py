"""Many kernels, many clients, many cells on one gateway: `python -m tests.benchmarks scale`.

`python -m tests.benchmarks.soak` is the part of it that looks for leaks.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import requests
from websockets.asyncio.client import ClientConnection, connect

from tests.benchmarks import gateway_core
from tests.benchmarks.rows import Row
from tests.benchmarks.soak import end_kernels, held, many_cells
from tests.integration.driver import Gateway, a_gateway

IDLE_KERNELS = 5_000
WEBSOCKETS = 500
RUNNING_CELLS = 50
CONNECTS = 1_000
QUEUED = 1_000
AT_ONCE = 8

T = TypeVar("T")
R = TypeVar("R")


def measure(row: Row, folder: Path) -> None:
    """Print the rows, from a gateway with nothing to one with 5,000 kernels."""
    asyncio.run(gateway_core.endure(row))
    state = folder / "scale"
    with a_gateway(state) as gateway:
        gateway.session().close()
        running_cells(row, gateway)
        queued_cells(row, gateway)
        asyncio.run(_clients(row, gateway))
        many_cells(row, gateway)
    with a_gateway(state) as gateway:
        idle_kernels(row, gateway)
    began = time.perf_counter()
    with a_gateway(state) as gateway:
        ready_s = time.perf_counter() - began
        listing_ms, count = _listing(gateway)
        row(f"start of a gateway with {count:,} records (s)", f"{ready_s:.1f}")
        row("  its memory (MB)", f"{held(gateway).gateway_mb:.0f}")
        row("  GET /api/kernels", f"{listing_ms:.0f}", f"kernels {count:,}")


def running_cells(row: Row, gateway: Gateway) -> None:
    """Run cells of 50 kernels at once: as many run as there are containers, the others wait."""
    clients = [gateway.session() for _ in range(RUNNING_CELLS)]
    most = 0
    began = time.perf_counter()
    cells = [c.submit(f"import time; time.sleep(1); print({i})") for i, c in enumerate(clients)]
    with ThreadPoolExecutor(RUNNING_CELLS) as pool:
        waiting = [
            pool.submit(client.wait, cell, timeout_s=600)
            for client, cell in zip(clients, cells, strict=True)
        ]
        while not all(each.done() for each in waiting):
            most = max(most, len(held(gateway).serving))
            time.sleep(0.2)
        for each in waiting:
            each.result()
    elapsed_s = time.perf_counter() - began
    right = sum(cell.stdout == f"{i}\n" for i, cell in enumerate(cells))
    told = sum("waiting for a free one" in cell.stderr for cell in cells)
    row(
        f"{RUNNING_CELLS} kernels running sleep(1) at once (s)",
        f"{elapsed_s:.1f}",
        f"right answers {right}   containers at most {most}   told that they wait {told}",
    )
    end_kernels(gateway, clients)


def queued_cells(row: Row, gateway: Gateway) -> None:
    """Queue more cells in one kernel than may wait; the first takes its time, then fails."""
    client = gateway.session()
    began = time.perf_counter()
    client.submit("import time; time.sleep(3); 1/0")
    asked = [client.submit("1").msg_id for _ in range(QUEUED + 100)]
    ends: dict[str, str] = {}
    while len(ends) < len(asked) + 1:
        message = client.receive(60)
        if message["header"]["msg_type"] == "execute_reply":
            content = message["content"]
            end = content.get("ename", content["status"])
            ends[message["parent_header"]["msg_id"]] = end
    elapsed_s = time.perf_counter() - began
    counts = Counter(ends[msg_id] for msg_id in asked)
    row(
        f"{len(asked):,} cells queued behind one that fails after 3 s (s)",
        f"{elapsed_s:.1f}",
        "   ".join(f"{name} {count}" for name, count in sorted(counts.items())),
    )
    end_kernels(gateway, [client])


async def _clients(row: Row, gateway: Gateway) -> None:
    """Open 500 websockets; then connect and go away again and again."""
    kernel_ids = [
        gateway.rest("POST", "/api/kernels", json={}).json()["id"] for _ in range(WEBSOCKETS // 10)
    ]
    before = await asyncio.to_thread(held, gateway)
    sockets = await _each(
        (kernel_ids[i % len(kernel_ids)] for i in range(WEBSOCKETS)),
        lambda kernel_id: _connected(gateway, kernel_id),
    )
    opened = await asyncio.to_thread(held, gateway)
    pings_ms, answers_ms = [], []
    for socket in sockets:
        began = time.perf_counter()
        await (await socket.ping())
        pings_ms.append((time.perf_counter() - began) * 1000)
    for socket in sockets[:100]:
        began = time.perf_counter()
        await _kernel_info(socket)
        answers_ms.append((time.perf_counter() - began) * 1000)
    kb = (opened.gateway_mb - before.gateway_mb) * 1000 / WEBSOCKETS
    row(f"{WEBSOCKETS} websockets: memory of each (kB)", f"{kb:.0f}")
    row("  ping of one of them", f"{statistics.median(pings_ms):.2f}", _p95(pings_ms))
    row("  kernel_info, sent on to 10 of them", f"{statistics.median(answers_ms):.1f}")
    await _each(sockets, lambda socket: socket.close())

    async def come_and_go(kernel_id: str) -> None:
        await (await _connected(gateway, kernel_id)).close()

    storms = []
    for _ in range(3):
        began = time.perf_counter()
        await _each((kernel_ids[i % len(kernel_ids)] for i in range(CONNECTS)), come_and_go)
        after = await asyncio.to_thread(held, gateway)
        storms.append((time.perf_counter() - began, after))
    row(
        f"{CONNECTS:,} clients that come and go (s)",
        f"{storms[-1][0]:.1f}",
        "gateway, after each of 3 times: "
        + ", ".join(f"{each.gateway_mb:.0f} MB" for _, each in storms),
        f"descriptors before {before.gateway_descriptors}, "
        f"after {storms[-1][1].gateway_descriptors}",
    )
    for kernel_id in kernel_ids:
        await asyncio.to_thread(gateway.rest, "DELETE", f"/api/kernels/{kernel_id}")


async def _each(items: Iterable[T], action: Callable[[T], Awaitable[R]]) -> list[R]:
    """Return what ``action`` gives for each item, some at once."""
    at_once = asyncio.Semaphore(AT_ONCE * 4)

    async def one(item: T) -> R:
        async with at_once:
            return await action(item)

    return await asyncio.gather(*map(one, items))


async def _connected(gateway: Gateway, kernel_id: str) -> ClientConnection:
    url = gateway.url.replace("http", "ws", 1)
    return await connect(
        f"{url}/api/kernels/{kernel_id}/channels?session_id={time.monotonic_ns():x}",
        additional_headers={"Authorization": f"token {gateway.token}"},
        compression=None,
    )


async def _kernel_info(socket: ClientConnection) -> None:
    header = {"msg_id": f"{time.monotonic_ns():x}", "msg_type": "kernel_info_request"}
    message: dict[str, Any] = {"header": {**header, "session": "s", "username": "u"}}
    await socket.send(json.dumps({**message, "channel": "shell", "content": {}}))
    while True:
        answer = json.loads(await socket.recv())
        is_reply = answer["header"]["msg_type"] == "kernel_info_reply"
        if is_reply and answer["parent_header"].get("msg_id") == header["msg_id"]:
            return


def idle_kernels(row: Row, gateway: Gateway) -> None:
    """Start 5,000 kernels that nobody uses."""
    before = held(gateway)

    def post(session: requests.Session) -> float:
        began = time.perf_counter()
        made = session.post(f"{gateway.url}/api/kernels", json={}, timeout=120)
        assert made.status_code == 201, made.text
        return (time.perf_counter() - began) * 1000

    sessions = [requests.Session() for _ in range(AT_ONCE)]
    for session in sessions:
        session.headers["Authorization"] = f"token {gateway.token}"
    with ThreadPoolExecutor(AT_ONCE) as pool:
        began = time.perf_counter()
        some = IDLE_KERNELS // AT_ONCE
        list(pool.map(lambda session: [post(session) for _ in range(some)], sessions))
        elapsed_s = time.perf_counter() - began
    after = held(gateway)
    kb = (after.gateway_mb - before.gateway_mb) * 1000 / IDLE_KERNELS
    row(f"{IDLE_KERNELS:,} idle kernels: memory of each in the gateway (kB)", f"{kb:.1f}")
    row("  started in a second", f"{IDLE_KERNELS / elapsed_s:.0f}", f"{AT_ONCE} clients at once")
    latest_ms = [post(sessions[0]) for _ in range(50)]
    row("  POST /api/kernels beside them", f"{statistics.median(latest_ms):.1f}", _p95(latest_ms))
    listing_ms, count = _listing(gateway)
    row("  GET /api/kernels", f"{listing_ms:.0f}", f"kernels {count:,}")
    client = gateway.session()
    client.execute("1+1")
    cells_ms = []
    for _ in range(20):
        began = time.perf_counter()
        client.execute("1+1")
        cells_ms.append((time.perf_counter() - began) * 1000)
    row("  1+1 beside them", f"{statistics.median(cells_ms):.1f}", _p95(cells_ms))
    end_kernels(gateway, [client])


def _listing(gateway: Gateway) -> tuple[float, int]:
    times_ms, count = [], 0
    for _ in range(5):
        began = time.perf_counter()
        count = len(gateway.rest("GET", "/api/kernels").json())
        times_ms.append((time.perf_counter() - began) * 1000)
    return statistics.median(times_ms), count


def _p95(times_ms: list[float]) -> str:
    return f"p95 {sorted(times_ms)[int(len(times_ms) * 0.95)]:.1f}"
