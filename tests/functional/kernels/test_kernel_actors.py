"""Who opened, forked, interrupted, restarted and ended a kernel, as its journal says."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from kernel_gateway.audit.chain import (
    CellFinished,
    CellInterrupted,
    Event,
    KernelRestarted,
    SessionClosed,
)
from kernel_gateway.audit.events import SessionForked, SessionOpened
from kernel_gateway.audit.grouping import belongs, incomplete
from kernel_gateway.audit.trail import groups
from kernel_gateway.kernels.execution import Execution
from kernel_gateway.kernels.lease import ReplicaSettings
from kernel_gateway.kernels.options import KernelOptions
from kernel_gateway.messaging.caller import Actor, Caller
from kernel_gateway.messaging.message import InMessage
from tests.functional.kernels.conftest import OWNER
from tests.functional.kernels.test_kernel_forks import options
from tests.functional.kernels.test_kernel_journal import journal_of, kinds

if TYPE_CHECKING:
    from tests.functional.kernels.conftest import Client, World

OPENER = Actor(door="rest", caller=Caller(user="u1", client="rest", user_agent="opener/1"))
AGENT = Caller(user="u1", agent="a1", client="websocket", user_agent="agent/1")


async def opened(world: World, chosen: KernelOptions | None = None) -> Client:
    kernel = await world.registry.start(
        OWNER, spec_name="lambda-python", options=chosen or KernelOptions(), actor=OPENER
    )
    return world.attached(kernel)


def control(client: Client, msg_type: str, **content: bool) -> str:
    header = {"msg_id": uuid.uuid4().hex, "msg_type": msg_type, "session": "s"}
    request = InMessage(channel="control", header=header, content=dict(content), caller=AGENT)
    client.kernel.receive(request, client.take)
    return str(header["msg_id"])


def of(world: World, client: Client, kind: type[Event]) -> list[Event]:
    return [e.event for e in journal_of(world, client.kernel) if isinstance(e.event, kind)]


async def test_a_journal_begins_with_who_opened_the_session(world: World) -> None:
    client = await opened(world)
    await world.quiet()
    assert kinds(journal_of(world, client.kernel)) == ["SessionOpened"]

    await client.run("print x")
    await world.registry.shutdown(client.kernel.kernel_id)

    first, *rest = journal_of(world, client.kernel)
    assert isinstance(first.event, SessionOpened)
    assert first.event.actor == OPENER
    assert (first.event.session.owner.user, first.event.session.owner.agent) == ("u1", "a1")
    assert kinds(rest) == ["CellStarted", "CellFinished", "SessionClosed"]


async def test_it_does_so_where_no_client_ever_connected(world: World) -> None:
    kernel = await world.registry.start(
        OWNER, spec_name="lambda-python", options=KernelOptions(), actor=OPENER
    )
    execution = Execution.begin(kernel, {"code": "print x"})
    while not execution.ended:
        await execution.news()
    await world.quiet()

    assert kinds(journal_of(world, kernel)) == ["SessionOpened", "CellStarted", "CellFinished"]


async def test_the_next_gateway_says_it_of_a_kernel_that_ran_nothing_yet(world: World) -> None:
    kernel = await world.registry.start(
        OWNER, spec_name="lambda-python", options=KernelOptions(), actor=OPENER
    )
    await world.registry.close()
    later = await world.reopen()
    client = world.attached(await later.reach(await later.find(kernel.kernel_id), takes=True))

    await client.run("print x")
    await world.quiet()

    entries = journal_of(world, client.kernel)
    assert kinds(entries) == ["SessionOpened", "CellStarted", "CellFinished"]
    await later.close()


async def test_who_interrupts_restarts_and_ends_is_named_with_the_door(world: World) -> None:
    client = await opened(world)
    running = client.execute("wait")
    await world.function.began.wait()
    control(client, "interrupt_request")
    await client.done(running)
    await client.done(control(client, "shutdown_request", restart=True))
    control(client, "shutdown_request", restart=False)
    await world.quiet()

    by_message = Actor(door="websocket", caller=AGENT)
    for kind in (CellInterrupted, KernelRestarted, SessionClosed):
        (event,) = of(world, client, kind)
        assert event.actor == by_message  # type: ignore[union-attr]


@pytest.mark.parametrize("door", ["time_limit", "client_gone"])
async def test_a_cell_of_rest_that_is_interrupted_says_why(world: World, door: str) -> None:
    client = await opened(world)
    caller = Caller(user="u1", client="rest")
    limit_s = 0.01 if door == "time_limit" else None
    execution = Execution.begin(client.kernel, {"code": "wait"}, timeout_s=limit_s, caller=caller)
    await world.function.began.wait()
    if door == "client_gone":
        await execution.cancel()
    while not execution.ended:
        await execution.news()
    await world.quiet()

    (event,) = of(world, client, CellInterrupted)
    assert event.actor == Actor(door=door, caller=caller)  # type: ignore[union-attr,arg-type]


async def test_the_journal_of_a_source_tells_of_its_fork_also_while_its_cell_runs(
    world: World,
) -> None:
    source = await opened(world)
    await source.run("print a")
    running = source.execute("wait")
    await world.function.began.wait()
    fork = await opened(world, options(source))
    world.function.release.set()
    await source.done(running)
    await world.quiet()

    entries = journal_of(world, source.kernel)

    assert kinds(entries)[-3:] == ["CellStarted", "SessionForked", "CellFinished"]
    (told,) = of(world, source, SessionForked)
    assert isinstance(told, SessionForked)
    assert (told.kernel_id, told.execution_count) == (fork.kernel.kernel_id, 1)
    assert told.actor == OPENER
    origin = fork.kernel.record.origin
    assert origin is not None
    assert (told.at_kernel_id, told.at) == (origin.kernel_id, origin.head)
    # It is one cell in the notebook, which has its end.
    found = [group async for group in groups(source.kernel.journal, len(entries))]
    assert [len(group) for group in found] == [1, 2, 3]
    assert belongs(entries[-2], entries[-3], entries[-3])
    assert incomplete(entries) == []


async def test_a_cell_is_settled_whose_gateway_died_after_it_was_forked(world: World) -> None:
    source = await opened(world)
    await source.run("print a")
    source.execute("wait")
    await world.function.began.wait()
    await opened(world, options(source))
    await source.kernel.journal.flush()
    await world.registry.close()
    later = await world.reopen()
    again = world.attached(await later.reach(await later.find(source.kernel.kernel_id), takes=True))

    await again.run("print b")
    await world.quiet()

    (*_, lost, _) = [
        e.event for e in journal_of(world, again.kernel) if isinstance(e.event, CellFinished)
    ]
    assert lost.status == "lost"
    assert incomplete(journal_of(world, again.kernel)) == []
    await later.close()


async def test_a_source_that_another_gateway_serves_can_be_forked(world: World) -> None:
    source = await opened(world)
    await source.run("print a")
    other = await world.reopen(replica_settings=ReplicaSettings(replica_id="b", url="http://b"))
    await other.find(source.kernel.kernel_id)

    fork = await other.start(
        OWNER, spec_name="lambda-python", options=options(source), actor=OPENER
    )

    assert fork.record.origin is not None
    assert of(world, source, SessionForked) == []
    assert "ok" in [m.content.get("status") for m in await source.run("print b")]
    await other.close()
