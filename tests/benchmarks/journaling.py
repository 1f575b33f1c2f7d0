"""What the journal costs a cell: `python -m tests.benchmarks.journaling`.

The gateway's core with its journal in a real gateway's S3, everything else in memory. Every second
cell runs unrecorded, so that both kinds see the same load of the machine.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

from kernel_gateway.audit.key_folder import KeyFolder
from kernel_gateway.config import Deployment
from kernel_gateway.dispatch.invoker import InMemoryInvoker
from kernel_gateway.environments.environment import Environment
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.options import KernelOptions
from kernel_gateway.kernels.recorder import CellRecorder, Recorded
from kernel_gateway.kernels.registry import KernelRegistry
from kernel_gateway.objects import MemoryObjectStore, S3ObjectStore, StoredObject
from kernel_gateway.settings import read_deployment
from lambda_kernel.contract import keys
from lambda_kernel.contract.keys import Stack
from tests.benchmarks.gateway_core import DIGEST, FRAME_KEY, execute, function
from tests.benchmarks.rows import row
from tests.integration.driver import a_gateway

CELLS = 400
WARM_UP_CELLS = 20


class JournalInS3(MemoryObjectStore):
    """Keeps journals in S3 and notes each request for one; what else there is stays in memory."""

    def __init__(self, s3: S3ObjectStore) -> None:
        super().__init__()
        self._s3 = s3
        self.requests: list[str] = []

    async def get(self, bucket: str, key: str) -> StoredObject:
        """Return the object."""
        if not self._is_journal(key):
            return await super().get(bucket, key)
        return await self._s3.get(bucket, key)

    async def put(self, bucket: str, key: str, body: bytes, **conditions: Any) -> str:
        """Store ``body`` and return its ETag."""
        if not self._is_journal(key):
            return await super().put(bucket, key, body, **conditions)
        return await self._s3.put(bucket, key, body, **conditions)

    async def list(self, bucket: str, prefix: str) -> AsyncIterator[str]:
        """Yield the keys under ``prefix`` in order."""
        own = super().list(bucket, prefix)
        found = self._s3.list(bucket, prefix) if self._is_journal(prefix) else own
        async for key in found:
            yield key

    def _is_journal(self, key: str) -> bool:
        if not (key.startswith("audit/") and "/j/" in key):
            return False
        self.requests.append(key)
        return True


class Stopwatch:
    """Stands before a recorder: every second cell is not recorded, the others are timed."""

    def __init__(self, recorder: CellRecorder) -> None:
        self._started = recorder.started
        self._finished: Callable[..., None] = recorder.finished
        # The recorder is the registry's own, and its cells find these two first.
        vars(recorder).update(started=self.started, finished=self.finished)
        self.is_on = True
        self.before_ms: list[float] = []
        self.after_ms: list[float] = []

    async def started(self, *args: Any) -> Recorded:
        """Record that a cell is about to be sent."""
        if not self.is_on:
            return Recorded.NO
        began_s = time.perf_counter()
        found = await self._started(*args)
        self.before_ms.append((time.perf_counter() - began_s) * 1e3)
        return found

    def finished(self, *args: Any, **more: Any) -> None:
        """Record how a cell ended."""
        *others, on_written = args
        began_s = time.perf_counter()

        def written() -> None:
            self.after_ms.append((time.perf_counter() - began_s) * 1e3)
            on_written()

        self._finished(*others, written, **more)


async def measure(deployment: Deployment, state_dir: Path) -> None:
    """Print what cells with and without journal take."""
    s3 = S3ObjectStore.create(deployment)
    store, stack = JournalInS3(s3), Stack()
    await store.put(stack.overflow, keys.frame_key_key(DIGEST), FRAME_KEY)
    sent_at: list[int] = []

    async def noting(payload: bytes) -> AsyncGenerator[bytes, None]:
        sent_at.append(len(store.requests))
        async for chunk in function(payload):
            yield chunk

    registry = await KernelRegistry.open(
        stack=stack,
        handler_digest=DIGEST,
        store=store,
        invoker=InMemoryInvoker(noting),
        environments={"lambda-python": Environment()},
        sealer=KeyFolder(state_dir),
    )
    recorder = registry.services.recorder
    watch = Stopwatch(recorder)
    options, _ = KernelOptions.from_env({})
    kernel = await registry.start(Identity(user="u1"), spec_name="lambda-python", options=options)
    walls_ms: dict[bool, list[float]] = {True: [], False: []}
    requests: list[int] = []
    for number in range(-WARM_UP_CELLS, CELLS):
        watch.is_on = number % 2 == 0
        before, began_s = len(store.requests), time.perf_counter()
        await execute(kernel)
        walls_ms[watch.is_on].append((time.perf_counter() - began_s) * 1e3)
        if watch.is_on:
            requests.append(sent_at[-1] - before)
        # As a person's cells: the end of the one before is durable when the next one comes.
        await recorder.flush()
    _report(watch, walls_ms, requests)
    await registry.close()
    s3.close()


def _report(watch: Stopwatch, walls_ms: dict[bool, list[float]], requests: list[int]) -> None:
    warm = WARM_UP_CELLS // 2
    before, after = watch.before_ms[warm:], watch.after_ms[warm:]
    on, off = walls_ms[True][warm:], walls_ms[False][warm:]
    cost = statistics.median(on) - statistics.median(off)
    load = f"load {os.getloadavg()[0]:.1f}"
    row("journal before the Invoke, p50 (ms)", *_percentiles(before), "goal <= 8", load)
    row("  sequential requests for it, most", f"{max(requests[warm:])}", "goal <= 1")
    row("journal after the reply, which does not wait, p50 (ms)", *_percentiles(after))
    row("cell, Lambda in memory, recorded, p50 (ms)", *_percentiles(on))
    row("  unrecorded", *_percentiles(off), f"difference {cost:.2f}")


def _percentiles(times_ms: list[float]) -> tuple[str, str]:
    ordered = sorted(times_ms)
    return f"{statistics.median(ordered):.2f}", f"p95 {ordered[len(ordered) * 95 // 100]:.2f}"


def main() -> None:
    """Print the table."""
    with tempfile.TemporaryDirectory() as folder, a_gateway(Path(folder) / "state") as gateway:
        deployment = read_deployment(str(gateway.state_dir / "run" / "deployment.json"))
        assert deployment is not None
        asyncio.run(measure(deployment, gateway.state_dir))


if __name__ == "__main__":
    main()
