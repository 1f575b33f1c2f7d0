"""Several gateways on one S3: one of them serves a kernel, and what it loses is fenced off."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from kernel_gateway.dispatch.run import DispatchSettings
from kernel_gateway.errors import HeldElsewhere, Moved, NotFound, StorageError
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.kernels.lease import ReplicaSettings
from kernel_gateway.kernels.registry import KernelRegistry
from lambda_kernel.contract.commit import Commit

if TYPE_CHECKING:
    from tests.functional.kernels.conftest import Client, World

LEASE_S = 15.0
STATE, RECORDS = "lkg-state", "lkg-records"


@dataclass
class Clock:
    """What one machine shows."""

    now_s: float

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Site:
    """Two gateways whose clocks have nothing to do with each other."""

    world: World
    a: KernelRegistry
    b: KernelRegistry
    clocks: tuple[Clock, Clock] = field(default_factory=lambda: (Clock(5.0), Clock(9e5)))

    def wait(self, seconds: float) -> None:
        for clock in self.clocks:
            clock.now_s += seconds

    async def reached(self, kernel_id: str, *, takes: bool = True) -> LambdaKernel:
        """Return the kernel at the second gateway, as a request gets it."""
        return await self.b.reach(await self.b.find(kernel_id), takes=takes)

    async def taken_over(self, kernel_id: str) -> Client:
        """Return a client of the kernel at the second gateway, which has waited long enough."""
        with pytest.raises(HeldElsewhere):
            await self.reached(kernel_id)
        self.wait(LEASE_S)
        return self.world.attached(await self.reached(kernel_id))

    def commits(self) -> list[Commit]:
        objects = sorted(self.world.store.objects.items())
        return [Commit.from_bytes(body) for (bucket, _), body in objects if bucket == STATE]


@pytest.fixture
def dispatch_settings() -> DispatchSettings:
    return DispatchSettings(max_concurrency=1, claim_pauses_s=(0.0,), max_wait_s=10.0)


@pytest.fixture
async def site(world: World) -> AsyncIterator[Site]:
    await world.registry.close()
    clocks = Clock(5.0), Clock(9e5)
    a, b = [
        await world.reopen(
            lease_clock=clock,
            replica_settings=ReplicaSettings(
                replica_id=name, url=f"http://{name}", lease_s=LEASE_S
            ),
        )
        for name, clock in zip("ab", clocks, strict=True)
    ]
    world.registry = a
    yield Site(world, a, b, clocks)
    world.function.release.set()
    await b.close()


def reply_of(messages: list[Any]) -> dict[str, Any]:
    (reply,) = [m.content for m in messages if m.msg_type == "execute_reply"]
    found: dict[str, Any] = reply
    return found


async def busy(client: Client) -> None:
    """Return when a cell of the kernel has begun, or waits for a container."""
    async with asyncio.timeout(10):
        while client.kernel.execution_state != "busy":  # noqa: ASYNC110
            await asyncio.sleep(0)


async def test_a_new_kernel_is_held_by_the_first_write_of_its_record(site: Site) -> None:
    client = await site.world.client()

    stored = json.loads(
        site.world.store.objects[RECORDS, f"kernels/{client.kernel.kernel_id}.json"]
    )

    assert stored["holder"] == site.a.services.replica.lease_id
    assert stored["epoch"] == 0
    puts = [key for key in site.world.store.put_keys if key.startswith("kernels/")]
    assert len(puts) == 1


async def test_a_kernel_that_another_gateway_serves_is_refused_with_its_address(site: Site) -> None:
    client = await site.world.client()

    for takes in (True, False):
        with pytest.raises(HeldElsewhere) as held:
            await site.reached(client.kernel.kernel_id, takes=takes)

        assert held.value.url == "http://a"
        assert 0 < held.value.retry_after_s <= LEASE_S


async def test_a_lease_that_is_renewed_is_never_taken(site: Site) -> None:
    client = await site.world.client()
    for _ in range(5):
        with pytest.raises(HeldElsewhere):
            await site.reached(client.kernel.kernel_id)
        site.wait(LEASE_S * 0.7)
        await site.a.services.replica.keep_up()


async def test_a_lease_that_expired_is_taken_with_a_higher_epoch(site: Site) -> None:
    client = await site.world.client()
    await client.run("print a")

    later = await site.taken_over(client.kernel.kernel_id)
    messages = await later.run("print b")

    assert reply_of(messages)["execution_count"] == 2
    first, second = site.world.function.invocations
    assert (first.epoch, second.epoch) == (0, 1)
    assert second.parent_head is not None
    assert second.parent_head.seq == first.seq


async def test_a_cell_of_a_gateway_that_lost_the_kernel_cannot_commit(site: Site) -> None:
    client = await site.world.client()
    await client.run("print a")
    running, queued = client.execute("wait"), client.execute("print never")
    await site.world.function.began.wait()
    moved: list[LambdaKernel] = []
    site.a.on_moved = moved.append

    later = await site.taken_over(client.kernel.kernel_id)
    site.b.get(client.kernel.kernel_id)
    await site.a.services.replica.keep_up()

    reply = reply_of(await client.done(running))
    assert reply["ename"] == "KernelMoved"
    assert "not known yet" in reply["evalue"]
    assert reply_of(await client.done(queued)) == {"status": "aborted"}
    assert reply_of(await client.run("print late"))["ename"] == "DeadKernel"
    site.world.function.release.set()
    await later.run("print b")
    await site.world.quiet()
    assert moved == [client.kernel]
    first, *between, last = (c.void for c in site.commits())
    assert between
    assert (first, all(between), last) == (False, True, False)
    assert site.world.function.ran == ["print a", "wait", "print b"]


async def test_a_cell_that_waited_for_a_container_is_not_sent_by_a_gateway_that_lost_it(
    site: Site,
) -> None:
    """The only container is taken; the gateway sleeps; it wakes after it was taken over."""
    first, second = await site.world.client(), await site.world.client()
    first.execute("wait")
    await site.world.function.began.wait()
    waiting = second.execute("print never")
    await busy(second)

    later = await site.taken_over(second.kernel.kernel_id)
    site.world.function.release.set()

    assert reply_of(await second.done(waiting))["ename"] == "KernelMoved"
    await later.run("print b")
    assert site.world.function.ran == ["wait", "print b"]


async def test_a_cell_comes_too_late_at_a_gateway_that_slept(site: Site) -> None:
    client = await site.world.client()
    later = await site.taken_over(client.kernel.kernel_id)

    assert reply_of(await client.run("print never"))["ename"] == "KernelMoved"

    await later.run("print b")
    assert site.world.function.ran == ["print b"]


async def test_a_restart_comes_too_late_too(site: Site) -> None:
    client = await site.world.client()
    await client.run("print a")
    later = await site.taken_over(client.kernel.kernel_id)

    with pytest.raises(Moved):
        await client.kernel.restart()

    await later.run("print b")
    assert site.world.function.invocations[-1].parent_head is not None


async def test_without_storage_nothing_starts_once_the_lease_has_run_out(site: Site) -> None:
    client = await site.world.client()
    site.wait(LEASE_S)
    site.world.store.failing_puts.add(RECORDS)

    assert reply_of(await client.run("print never"))["ename"] == "StorageUnavailable"

    site.world.store.failing_puts.clear()
    assert reply_of(await client.run("print a"))["status"] == "ok"
    assert site.world.function.ran == ["print a"]


async def test_a_renewal_whose_answer_is_lost_loses_nothing(site: Site) -> None:
    client = await site.world.client()
    real_put = site.world.store.put

    async def stored_but_unanswered(*where: Any, **conditions: Any) -> str:
        await real_put(*where, **conditions)
        raise StorageError("S3 did not answer")

    site.world.store.put = stored_but_unanswered  # type: ignore[method-assign]
    site.wait(LEASE_S)
    assert reply_of(await client.run("print never"))["ename"] == "StorageUnavailable"
    site.world.store.put = real_put  # type: ignore[method-assign]

    assert reply_of(await client.run("print a"))["status"] == "ok"
    assert site.world.function.invocations[-1].epoch == 0


async def test_a_gateway_that_closes_leaves_its_kernels_at_once(site: Site) -> None:
    client = await site.world.client()
    await client.run("print a")
    await site.a.close()

    later = site.world.attached(await site.reached(client.kernel.kernel_id))

    assert reply_of(await later.run("print b"))["execution_count"] == 2


async def test_idle_gateways_write_nothing_and_go_on_when_used_again(site: Site) -> None:
    client = await site.world.client()
    client.kernel.detach(client.take)
    before = list(site.world.store.put_keys)
    site.wait(LEASE_S * 100)

    await site.a.services.replica.keep_up()
    await site.b.services.replica.keep_up()

    assert site.world.store.put_keys == before
    assert reply_of(await site.world.attached(client.kernel).run("print a"))["status"] == "ok"


async def test_kernels_of_another_gateway_appear_and_disappear(site: Site) -> None:
    client = await site.world.client()
    kernel_id = client.kernel.kernel_id
    with pytest.raises(NotFound):
        site.b.get(kernel_id)

    assert (await site.b.find(kernel_id)).owner == client.kernel.owner
    await site.a.shutdown(kernel_id)

    with pytest.raises(NotFound):
        await site.b.find(kernel_id)
    assert site.b.all() == []


@pytest.mark.parametrize("act", ["restart", "shutdown"])
async def test_what_ends_a_session_needs_the_lease(site: Site, act: str) -> None:
    client = await site.world.client()
    await site.b.find(client.kernel.kernel_id)
    method: Callable[[str], Awaitable[None]] = getattr(site.b, act)

    with pytest.raises(HeldElsewhere):
        await method(client.kernel.kernel_id)

    assert reply_of(await client.run("print a"))["execution_count"] == 1


async def test_who_watches_a_lease_hears_that_it_is_over(site: Site) -> None:
    await site.world.client()
    lease_id = site.a.services.replica.lease_id
    assert lease_id is not None
    with site.b.services.replica.watching(lease_id) as over:
        await site.b.services.replica.keep_up()
        assert not over.done()
        site.wait(LEASE_S)
        await site.b.services.replica.keep_up()
        assert over.done()
