"""Thousands of cells in real containers; what must not grow: `python -m tests.benchmarks.soak`.

LKG_BENCH_CELLS says how many cells. The last rows say what each 1,000 cells have added, from the
second sample on: what is loaded or filled once is in the first.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.benchmarks.rows import Row, row
from tests.integration.driver import Gateway, NotebookClient, a_gateway

CELLS = int(os.environ.get("LKG_BENCH_CELLS", "2000"))
KERNELS = 8
PARTS = 10
CODES = (
    "1+1",
    "print('a line')",
    "n = globals().get('n', 0) + 1; n",
    "open('written.txt', 'w').write('x' * 1000)",
    "import sys; print('a warning', file=sys.stderr)",
    "{'a': list(range(100))}",
)
OVERFLOW = "lkg-overflow"
EXPIRING = ("requests/", "control/")


@dataclass(frozen=True, slots=True)
class Held:
    """What the processes of one gateway hold.

    Attributes:
        gateway_mb, gateway_descriptors, gateway_threads: of the gateway itself.
        service_mb, service_descriptors: of the local Lambda service.
        serving: megabytes and descriptors of each serving process, by its id.
        tmp_count, tmp_mb: what stands in /tmp of the containers, all together.
    """

    gateway_mb: float
    gateway_descriptors: int
    gateway_threads: int
    service_mb: float
    service_descriptors: int
    serving: dict[int, tuple[float, int]]
    tmp_count: int
    tmp_mb: float

    def __str__(self) -> str:
        serving = self.serving.values()
        return (
            f"gateway {self.gateway_mb:.0f} MB, {self.gateway_descriptors} descriptors   "
            f"Lambda service {self.service_mb:.0f} MB, {self.service_descriptors}   "
            f"{len(serving)} serving processes, the largest {max(s[0] for s in serving):.0f} MB, "
            f"{max(s[1] for s in serving)}   /tmp {self.tmp_count} files and folders"
        )


def held(gateway: Gateway) -> Held:
    """Return what the processes of ``gateway`` hold now."""
    own = psutil.Process(gateway.process.pid)
    service, serving, tmp_count, tmp_bytes = own, {}, 0, 0
    for process in own.children(recursive=True):
        # Children of cells come and go meanwhile.
        with suppress(psutil.Error):
            command = " ".join(process.cmdline())
            if process.name() == "bwrap":
                continue
            if "-m kernel_gateway.local" in command:
                service = process
            elif "-m lambda_kernel --stage-2" in command:
                serving[process.pid] = (_mb(process), process.num_fds())
                count, size_bytes = _contents(Path(f"/proc/{process.pid}/root/tmp"))
                tmp_count, tmp_bytes = tmp_count + count, tmp_bytes + size_bytes
    return Held(
        gateway_mb=_mb(own),
        gateway_descriptors=own.num_fds(),
        gateway_threads=own.num_threads(),
        service_mb=_mb(service),
        service_descriptors=service.num_fds(),
        serving=serving,
        tmp_count=tmp_count,
        tmp_mb=tmp_bytes / 1e6,
    )


def _mb(process: psutil.Process) -> float:
    return float(process.memory_info().rss) / 1e6


def _contents(folder: Path) -> tuple[int, int]:
    """Return number and bytes of what is under a folder, which cells change meanwhile."""
    count = size_bytes = 0
    for parent, folders, names in os.walk(folder):
        for name in folders + names:
            with suppress(OSError):
                size_bytes += (Path(parent) / name).lstat().st_size
                count += 1
    return count, size_bytes


def many_cells(row: Row, gateway: Gateway) -> None:
    """Run many cells in some kernels at once; memory and descriptors must stay what they are."""
    seen: list[tuple[int, Held]] = []
    count = max(1, CELLS // KERNELS // PARTS)
    right, began = 0, time.perf_counter()
    for part in range(PARTS):
        # Kernels come and go too.
        clients = [gateway.session() for _ in range(KERNELS)]
        with ThreadPoolExecutor(KERNELS) as pool:
            right += sum(pool.map(_run, clients, [count] * KERNELS))
        end_kernels(gateway, clients)
        seen.append(((part + 1) * count * KERNELS, held(gateway)))
        row(f"  held after {seen[-1][0]:,} cells", "", str(seen[-1][1]))
    total = seen[-1][0]
    row(f"{total:,} cells (cells/s)", f"{total / (time.perf_counter() - began):.1f}")
    row("  that ended well", f"{right:,}")
    _slopes(row, seen)
    with gateway.owners_client("s3") as client:
        for prefix in EXPIRING:
            found = client.list_objects_v2(Bucket=OVERFLOW, Prefix=prefix)["KeyCount"]
            row(f"  objects left in {OVERFLOW}/{prefix}", f"{found}")


def _run(client: NotebookClient, count: int) -> int:
    codes = [CODES[i % len(CODES)] for i in range(count)]
    return sum(client.execute(code, timeout_s=300).reply["status"] == "ok" for code in codes)


MEASURES: dict[str, Callable[[Held], float]] = {
    "gateway (MB)": lambda held: held.gateway_mb,
    "gateway, descriptors": lambda held: held.gateway_descriptors,
    "gateway, threads": lambda held: held.gateway_threads,
    "Lambda service (MB)": lambda held: held.service_mb,
    "Lambda service, descriptors": lambda held: held.service_descriptors,
    "a serving process, the mean (MB)": lambda held: _mean(s[0] for s in held.serving.values()),
    "a serving process, descriptors": lambda held: _mean(s[1] for s in held.serving.values()),
    "files and folders in /tmp of containers": lambda held: held.tmp_count,
    "/tmp of containers (MB)": lambda held: held.tmp_mb,
}


def _slopes(row: Row, seen: list[tuple[int, Held]]) -> None:
    for name, measure in MEASURES.items():
        points = [(cells / 1000, measure(each)) for cells, each in seen[1:]]
        middle_x, middle_y = _mean(x for x, _ in points), _mean(y for _, y in points)
        spread = sum((x - middle_x) ** 2 for x, _ in points)
        slope = sum((x - middle_x) * (y - middle_y) for x, y in points) / spread
        row(f"  {name}: added by 1,000 cells", f"{slope:+.2f}", f"at the end {points[-1][1]:.1f}")


def _mean(values: Iterable[float]) -> float:
    found = list(values)
    return sum(found) / len(found)


def end_kernels(gateway: Gateway, clients: Iterable[NotebookClient]) -> None:
    """Close the clients and end their kernels."""
    for client in clients:
        client.close()
        gateway.rest("DELETE", f"/api/kernels/{client.kernel_id}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder, a_gateway(Path(folder) / "state") as gateway:
        many_cells(row, gateway)
