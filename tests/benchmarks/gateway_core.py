"""What a kernel costs in the gateway: memory while idle, CPU per start and per cell.

Lambda and S3 are in memory, so that what is measured is the gateway's own.
"""

from __future__ import annotations

import asyncio
import gc
import json
import statistics
import time
import tracemalloc
from collections.abc import AsyncGenerator, Callable

from kernel_gateway.dispatch.invoker import InMemoryInvoker
from kernel_gateway.environments.environment import Environment
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.kernels.options import KernelOptions
from kernel_gateway.kernels.registry import KernelRegistry
from kernel_gateway.messaging.message import InMessage, OutMessage
from kernel_gateway.objects import MemoryObjectStore
from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Commit, digest_of
from lambda_kernel.contract.frames import FrameKind, FrameWriter, invocation_key
from lambda_kernel.contract.invocation import Head, Invocation
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.outcome import Outcome, Status

FRAME_KEY = bytes(32)
DIGEST = "d" * 64
KERNELS = 2_000
CELLS = 500


async def function(payload: bytes) -> AsyncGenerator[bytes, None]:
    """Answer as a container whose cell printed a result; the commit is made up."""
    invocation = Invocation.from_dict(json.loads(payload))
    key = invocation_key(FRAME_KEY, invocation.request_id, invocation.nonce)
    writer = FrameWriter(key)
    yield writer.write(FrameKind.STARTED, {})
    content = {"data": {"text/plain": "2"}, "metadata": {}, "execution_count": 1}
    yield writer.write(FrameKind.MESSAGE, {"msg_type": "execute_result", "content": content})
    outcome = Outcome(status=Status.OK, started=True, committed=False, nonce=invocation.nonce)
    stored = Commit(
        kernel_id=invocation.kernel_id,
        scope_hash=invocation.scope.hash,
        seq=invocation.seq,
        parent=invocation.parent_head,
        request_id=invocation.request_id,
        execution_count=invocation.execution_count,
        outcome=outcome,
    ).to_bytes()
    head = Head(seq=invocation.seq, digest=digest_of(stored))
    done = Outcome(
        status=Status.OK, started=True, committed=True, head=head, nonce=invocation.nonce
    )
    yield writer.write(FrameKind.REPLY, {"content": {"status": "ok"}, "metadata": {}})
    yield writer.write(FrameKind.OUTCOME, done.to_dict(), [stored])


async def execute(kernel: LambdaKernel, code: str = "1+1") -> None:
    """Run a cell to its end."""
    done = asyncio.Event()

    def sink(message: OutMessage) -> None:
        if message.content.get("execution_state") == "idle":
            done.set()

    kernel.attach(sink)
    header = {"msg_id": "m", "msg_type": "execute_request", "session": "s", "username": "u"}
    kernel.receive(InMessage(header=header, content={"code": code}), sink)
    await done.wait()
    kernel.detach(sink)


async def _opened(store: MemoryObjectStore, invoker: InMemoryInvoker) -> KernelRegistry:
    stack = Stack()
    await store.put(stack.overflow, keys.frame_key_key(DIGEST), FRAME_KEY)
    return await KernelRegistry.open(
        stack=stack,
        handler_digest=DIGEST,
        store=store,
        invoker=invoker,
        environments={"lambda-python": Environment()},
    )


async def measure(row: Callable[..., object]) -> None:
    """Measure and report line by line: name, value, goals."""
    store, stack, invoker = MemoryObjectStore(), Stack(), InMemoryInvoker(function)
    registry = await _opened(store, invoker)

    async def start() -> LambdaKernel:
        options, _ = KernelOptions.from_env({})
        return await registry.start(Identity(user="u1"), spec_name="lambda-python", options=options)

    kernel = await start()
    await execute(kernel)
    cpu_s = time.process_time()
    for _ in range(CELLS):
        await execute(kernel)
    cell_ms = (time.process_time() - cpu_s) / CELLS * 1e3
    row("gateway CPU of steps 1-4 and 9, Lambda and S3 in memory", f"{cell_ms:.2f}", "goal <= 5")

    durations_ms = []
    for _ in range(200):
        begin_s = time.perf_counter()
        await start()
        durations_ms.append((time.perf_counter() - begin_s) * 1e3)
    row("start of a kernel, S3 in memory", f"{statistics.median(durations_ms):.3f}")

    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    kernels = [await start() for _ in range(KERNELS)]
    fresh = await _held(registry, store, stack)
    for each in kernels:
        await execute(each)
    for each in kernels:
        registry.services.manifests.drop(each.kernel_id)
        registry.services.history.drop(each.kernel_id)
    invoker.payloads.clear()
    used = await _held(registry, store, stack)
    tracemalloc.stop()
    row("idle kernel, never used (bytes)", f"{(fresh - before) / KERNELS:.0f}", "goal <= 2048")
    row("idle kernel, used, out of the caches (bytes)", f"{(used - before) / KERNELS:.0f}")
    row("  tasks, processes and descriptors of idle kernels", f"{len(asyncio.all_tasks()) - 1}")
    await registry.close()


async def endure(row: Callable[..., object], cells: int = 10_000) -> None:
    """Run many cells of kernels that come and go; report what is held after each fifth."""
    store, invoker = MemoryObjectStore(), InMemoryInvoker(function)
    registry = await _opened(store, invoker)
    tracemalloc.start()
    for part in range(1, 6):
        for _ in range(cells // 500):
            options, _ = KernelOptions.from_env({})
            owner = Identity(user="u1")
            kernel = await registry.start(owner, spec_name="lambda-python", options=options)
            for _ in range(100):
                await execute(kernel)
            await registry.shutdown(kernel.kernel_id)
        invoker.payloads.clear()
        held = await _held(registry, store, Stack())
        name = f"held after {part * cells // 5:,} cells, Lambda and S3 in memory (kB)"
        row(name, f"{held / 1000:.0f}", f"tasks {len(asyncio.all_tasks()) - 1}")
    tracemalloc.stop()
    await registry.close()


async def _held(registry: KernelRegistry, store: MemoryObjectStore, stack: Stack) -> int:
    while others := asyncio.all_tasks() - {asyncio.current_task()}:
        await asyncio.wait(others)
    # The records in the store in memory are not the gateway's memory.
    lease_id = registry.services.replica.lease_id
    places = [(stack.overflow, keys.frame_key_key(DIGEST))]
    places += [(stack.records, keys.replica_lease_key(lease_id))] if lease_id else []
    kept = {place: store.objects[place] for place in places}
    store.objects.clear()
    store.modified.clear()
    store.objects.update(kept)
    await asyncio.sleep(0)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]
