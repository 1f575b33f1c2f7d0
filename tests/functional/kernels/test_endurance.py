"""A gateway that has run many cells for many clients holds no more than before."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from typing import TYPE_CHECKING

from kernel_gateway.kernels.cell import Cell
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.kernels.outlet import AWAY_COUNT, Client

if TYPE_CHECKING:
    from tests.functional.kernels.conftest import World

GROWS = {
    # Who owned the kernels that ended lately: at most 1,000.
    "EndedKernel",
    # What the gateway says next to a kernel, at most 1,000 of each and bounded in size.
    "PastInput",
}


def _ours() -> Counter[str]:
    """Return how many objects there are of each class of the gateway's."""
    gc.collect()
    ours = ("kernel_gateway.", "lambda_kernel.")
    classes = [type(each) for each in gc.get_objects()]
    return Counter(c.__name__ for c in classes if str(c.__module__).startswith(ours))


async def _use(world: World, kernel: LambdaKernel, cells: int) -> None:
    """Run cells of clients that come and go."""
    for i in range(cells):
        client = world.attached(kernel, f"session-{i}")
        await client.run(f"print {i}")
        await client.run("raise ValueError")
        kernel.detach(client.take)
        client.messages.clear()
    await world.quiet()
    world.function.ran.clear()
    world.function.invocations.clear()
    world.invoker.payloads.clear()


async def test_cells_leave_nothing_in_the_memory_of_the_gateway(world: World) -> None:
    first = await world.client()
    kernel = first.kernel
    kernel.detach(first.take)
    await _use(world, kernel, AWAY_COUNT + 1)
    before = _ours()

    await _use(world, kernel, 50)

    after = _ours()
    grown = {name: after[name] - before[name] for name in after.keys() - GROWS}
    assert {name: count for name, count in grown.items() if count > 0} == {}
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert after["PastInput"] > before["PastInput"]


async def test_kernels_that_end_leave_nothing(world: World) -> None:
    await world.client()

    async def one() -> None:
        client = await world.client(session="s")
        await client.run("print x")
        await client.ask("complete_request", code="x", cursor_pos=1)
        await world.registry.shutdown(client.kernel.kernel_id)
        await world.quiet()

    await one()
    before = _ours()
    for _ in range(20):
        await one()

    world.function.invocations.clear()
    after = _ours()
    grown = {name: after[name] - before[name] for name in after.keys() - GROWS}
    assert {name: count for name, count in grown.items() if count > 0} == {}


async def test_a_storm_of_reconnects_leaves_the_latest_sessions_only(world: World) -> None:
    kernel = (await world.client()).kernel
    running = world.attached(kernel)
    msg_id = running.execute("wait")
    await world.function.began.wait()

    for i in range(1000):
        client = world.attached(kernel, f"session-{i}")
        kernel.detach(client.take)
        del client

    gc.collect()
    sessions = {each.session_id for each in gc.get_objects() if type(each) is Client}
    left = {session for session in sessions if session and session.startswith("session-")}
    assert left == {f"session-{i}" for i in range(1000 - AWAY_COUNT, 1000)}
    world.function.release.set()
    await running.done(msg_id)


async def test_thousands_of_cells_that_are_turned_away_are_forgotten(world: World) -> None:
    kernel = (await world.client()).kernel
    client = world.attached(kernel)
    first = client.execute("wait")
    await world.function.began.wait()

    refused = [client.execute("print x") for _ in range(3000)]

    ends = Counter(
        m.content["ename"]
        for m in client.messages
        if m.msg_type == "execute_reply" and m.parent_header["msg_id"] in refused
    )
    assert ends == {"QueueFull": 2995}
    gc.collect()
    cells = [each for each in gc.get_objects() if type(each) is Cell]
    assert sum(each.message.msg_id in {first, *refused} for each in cells) == 6
    world.function.release.set()
    await client.done(first)
    await client.done(refused[4])
