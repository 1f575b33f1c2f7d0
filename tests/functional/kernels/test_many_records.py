"""A gateway that starts on thousands of records serves at once, and reads them meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from kernel_gateway.dispatch.invoker import InMemoryInvoker
from kernel_gateway.environments.environment import Environment
from kernel_gateway.errors import NotFound
from kernel_gateway.kernels.directory import RECORDS_AT_ONCE
from kernel_gateway.kernels.registry import KernelRegistry
from kernel_gateway.objects import MemoryObjectStore
from tests.functional.kernels.conftest import DIGEST, STACK

if TYPE_CHECKING:
    from tests.functional.kernels.conftest import World

RECORDS_COUNT = 40


@dataclass
class SlowRecords(MemoryObjectStore):
    """A store that answers for no kernel record until it may, but for those that are asked by name.

    Attributes:
        quick_ids: kernels whose record is answered at once.
        may_go: lets the others be answered.
        asked: keys of records, in the order in which they were asked for.
        waiting_count, most_waiting: how many wait now, and did at most.
    """

    quick_ids: frozenset[str] = frozenset()
    may_go: asyncio.Event = field(default_factory=asyncio.Event)
    asked: list[str] = field(default_factory=list)
    waiting_count: int = 0
    most_waiting: int = 0

    async def get(self, bucket: str, key: str) -> Any:
        if key.startswith("kernels/"):
            self.asked.append(key)
            if not any(kernel_id in key for kernel_id in self.quick_ids):
                self.waiting_count += 1
                self.most_waiting = max(self.most_waiting, self.waiting_count)
                await self.may_go.wait()
                self.waiting_count -= 1
        return await super().get(bucket, key)


async def opened(world: World, quick_ids: Iterable[str] = ()) -> tuple[KernelRegistry, SlowRecords]:
    store = SlowRecords(objects=world.store.objects, quick_ids=frozenset(quick_ids))
    registry = await KernelRegistry.open(
        stack=STACK,
        handler_digest=DIGEST,
        store=store,
        invoker=InMemoryInvoker(world.function),
        environments={"lambda-python": Environment(timeout_s=30)},
    )
    return registry, store


@pytest.fixture
async def ids(world: World) -> list[str]:
    """Kernels of an earlier gateway, oldest first."""
    made = [(await world.client()).kernel.kernel_id for _ in range(RECORDS_COUNT)]
    await world.registry.close()
    return made


async def test_it_serves_before_it_has_read_them(world: World, ids: list[str]) -> None:
    registry, store = await opened(world)
    assert registry.all() == []

    listing = asyncio.create_task(registry.refresh())
    await world.turns()
    assert not listing.done()
    assert store.most_waiting == RECORDS_AT_ONCE

    store.may_go.set()
    await listing
    await registry.complete()
    assert [kernel.kernel_id for kernel in registry.all()] == ids
    assert len(store.asked) == RECORDS_COUNT
    await registry.close()


async def test_a_kernel_that_is_asked_for_is_read_before_the_others(
    world: World, ids: list[str]
) -> None:
    registry, store = await opened(world, quick_ids=ids[-1:])

    kernel = await registry.reach(await registry.find(ids[-1]), takes=True)
    client = world.attached(kernel)
    await client.run("print a")

    assert kernel.is_held
    assert world.function.ran == ["print a"]
    store.may_go.set()
    await registry.complete()
    # What was read meanwhile does not stand in the place of the kernel that is used.
    assert registry.get(ids[-1]) is kernel
    assert kernel.is_held
    assert len(registry.all()) == RECORDS_COUNT
    await registry.close()


async def test_a_kernel_that_nobody_has_is_not_waited_for(world: World, ids: list[str]) -> None:
    nobodys = ids[0][:-4] + "0000"
    registry, _ = await opened(world, quick_ids=[nobodys])
    with pytest.raises(NotFound):
        await registry.find(nobodys)
    await registry.close()


async def test_a_kernel_that_ends_while_they_are_read_does_not_come_back(
    world: World, ids: list[str]
) -> None:
    registry, store = await opened(world, quick_ids=ids[:1])
    await registry.find(ids[0])
    await registry.shutdown(ids[0])

    store.may_go.set()
    await registry.complete()

    assert [kernel.kernel_id for kernel in registry.all()] == ids[1:]
    await registry.close()


async def test_a_gateway_that_ends_does_not_wait_for_them(world: World, ids: list[str]) -> None:
    registry, store = await opened(world)
    await world.turns()
    assert store.waiting_count == RECORDS_AT_ONCE

    await registry.close()

    assert len(store.asked) == RECORDS_AT_ONCE
    assert store.waiting_count == RECORDS_AT_ONCE  # cut off while they waited


async def test_a_request_reads_a_record_once(world: World, ids: list[str]) -> None:
    registry, store = await opened(world, quick_ids=ids)
    await registry.complete()
    store.asked.clear()

    kernel = await registry.reach(await registry.find(ids[0]), takes=False)

    assert not kernel.is_held
    assert store.asked == [f"kernels/{ids[0]}.json"]
    await registry.close()


async def test_a_request_sees_what_became_of_a_kernel_elsewhere(
    world: World, ids: list[str]
) -> None:
    here, _ = await opened(world, quick_ids=ids)
    await here.complete()
    there, _ = await opened(world, quick_ids=ids)
    await there.reach(await there.find(ids[0]), takes=True)
    await there.shutdown(ids[0])

    with pytest.raises(NotFound):
        await here.find(ids[0])

    await here.close()
    await there.close()
