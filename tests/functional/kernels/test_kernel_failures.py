"""What a client is told when a cell does not simply run, and that the session stays true."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kernel_gateway.errors import InvokeNotSent, InvokeRefused
from kernel_gateway.messaging.message import OutMessage
from lambda_kernel.contract.commit import Commit
from tests.functional.kernels.conftest import order_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.functional.kernels.conftest import Client, World

STATE = "lkg-state"


def reply_of(messages: list[OutMessage]) -> dict[str, Any]:
    (reply,) = [m for m in messages if m.msg_type == "execute_reply"]
    return reply.content


def commits(world: World) -> list[Commit]:
    """Return the commits that stand in the state bucket, by number."""
    stored = sorted((k, v) for (bucket, k), v in world.store.objects.items() if bucket == STATE)
    return [Commit.from_bytes(body) for _, body in stored]


@pytest.mark.parametrize(
    ("code", "ename", "started"),
    [
        ("dies", "ContainerDied", "yes"),
        ("never-starts", "ContainerDied", "unknown"),
        ("ends", "ContainerDied", "yes"),
        ("times-out", "CellTimeout", "yes"),
        ("forge", "ForgedOutcome", "unknown"),
    ],
)
async def test_a_cell_without_outcome_is_lost_and_cannot_commit_late(
    world: World, code: str, ename: str, started: str
) -> None:
    client = await world.client()
    await client.run("print a")

    messages = await client.run(code)

    content = reply_of(messages)
    assert content["ename"] == ename
    assert f"Started: {started}" in content["evalue"]
    assert "as after cell [1]" in content["evalue"]
    assert [m.msg_type for m in messages if m.msg_type in {"error", "execute_reply"}] == [
        "error",
        "execute_reply",
    ]
    assert [c.void for c in commits(world)] == [False, True]

    await client.run("print b")
    last = world.function.invocations[-1]
    assert last.seq == 3
    assert last.parent_head is not None
    assert last.parent_head.seq == 1
    assert last.execution_count == 3


@pytest.mark.parametrize(
    ("code", "ename"),
    [
        ("memory", "CellOutOfMemory"),
        ("times-out-politely", "CellTimeout"),
        ("dies-politely", "CellProcessDied"),
        ("refuses", "RequestRefused"),
    ],
)
async def test_an_outcome_without_commit_leaves_the_number_free(
    world: World, code: str, ename: str
) -> None:
    client = await world.client()

    messages = await client.run(code)
    await client.run("print b")

    assert reply_of(messages)["ename"] == ename
    assert [i.seq for i in world.function.invocations] == [1, 1]
    assert [c.void for c in commits(world)] == [False]


@pytest.mark.parametrize("code", ["commits-and-dies", "commits-unsure"])
async def test_a_cell_that_committed_before_its_connection_was_lost_is_adopted(
    world: World, code: str
) -> None:
    client = await world.client()

    messages = await client.run(code)

    assert reply_of(messages)["status"] == "ok"
    (notice,) = [m for m in messages if m.msg_type == "stream"]
    assert "output may be missing" in notice.content["text"]
    await client.run("print b")
    parent = world.function.invocations[-1].parent_head
    assert parent is not None
    assert parent.seq == 1
    assert world.function.ran == [code, "print b"]


async def test_a_reply_that_got_lost_is_taken_from_the_commit(world: World) -> None:
    client = await world.client()

    assert reply_of(await client.run("no-reply"))["status"] == "ok"


@pytest.mark.parametrize("code", ["commits-and-forges", "wrong-nonce"])
async def test_a_forged_outcome_is_not_believed_although_the_session_advanced(
    world: World, code: str
) -> None:
    client = await world.client()

    content = reply_of(await client.run(code))

    assert content["ename"] == "ForgedOutcome"
    assert "as after cell [1]" in content["evalue"]


async def test_the_position_is_found_again_when_storage_would_not_say(world: World) -> None:
    client = await world.client()
    world.store.failing_puts.add(STATE)

    content = reply_of(await client.run("dies"))

    assert content["ename"] == "ContainerDied"
    assert "not known yet" in content["evalue"]
    assert reply_of(await client.run("print x"))["ename"] == "StorageUnavailable"
    world.store.failing_puts.clear()
    assert reply_of(await client.run("print y"))["status"] == "ok"
    assert world.function.ran == ["dies", "print y"]


async def test_another_writer_at_our_number_makes_the_kernel_look_again(world: World) -> None:
    client = await world.client()
    await client.run("print a")
    client.execute("wait")
    await world.function.began.wait()
    invocation = world.function.invocations[-1]
    foreign = Commit(
        kernel_id=invocation.kernel_id,
        scope_hash=invocation.scope.hash,
        seq=2,
        parent=invocation.parent_head,
        void=True,
        request_id="f" * 32,
        execution_count=2,
    )
    key = f"users/u1/{invocation.scope.hash}/kernels/{invocation.kernel_id}/0000000002"
    await world.store.put(STATE, key, foreign.to_bytes())
    waiting = client.execute("print c", stop_on_error=False)
    world.function.release.set()

    messages = await client.done(waiting)

    assert reply_of(messages) == {"status": "aborted"}
    await client.run("print d")
    last = world.function.invocations[-1]
    assert last.seq == 4
    assert last.parent_head == invocation.parent_head


class Unreachable:
    """An invoker that fails so many times before it reaches Lambda."""

    def __init__(self, world: World, problems: list[Exception]) -> None:
        self.invoke_for_real = world.invoker.function
        self.problems = problems
        self.count = 0

    async def __call__(self, payload: bytes) -> AsyncGenerator[bytes, None]:
        self.count += 1
        if self.problems:
            raise self.problems.pop(0)
        async for chunk in self.invoke_for_real(payload):
            yield chunk


async def test_only_what_proves_that_nothing_started_is_sent_again(world: World) -> None:
    client = await world.client()
    unreachable = Unreachable(world, [InvokeNotSent("no route"), InvokeNotSent("no route")])
    world.invoker.function = unreachable

    assert reply_of(await client.run("print a"))["status"] == "ok"
    assert unreachable.count == 3


async def test_a_lambda_that_stays_unreachable_is_reported(world: World) -> None:
    client = await world.client()
    world.invoker.function = Unreachable(world, [InvokeNotSent("no route")] * 9)

    content = reply_of(await client.run("print a"))

    assert content["ename"] == "ContainerDied"
    assert "Started: no" in content["evalue"]
    assert commits(world) == []


async def test_a_refused_request_is_not_sent_again(world: World) -> None:
    client = await world.client()
    unreachable = Unreachable(world, [InvokeRefused("Lambda answered 404")])
    world.invoker.function = unreachable

    assert "404" in reply_of(await client.run("print a"))["evalue"]
    assert unreachable.count == 1


async def test_a_bug_on_the_way_is_answered_and_the_kernel_goes_on(world: World) -> None:
    client = await world.client()
    world.invoker.function = Unreachable(world, [RuntimeError("a bug")])

    content = reply_of(await client.run("print a"))

    assert content["ename"] == "ContainerDied"
    assert reply_of(await client.run("print b"))["status"] == "ok"


async def test_an_interrupt_kills_the_running_cell_only(world: World) -> None:
    client = await world.client()
    await client.run("print a")
    running = client.execute("wait", stop_on_error=False)
    waiting = client.execute("print c")
    await world.function.began.wait()

    answer = await client.ask("interrupt_request", channel="control")

    content = reply_of(await client.done(running))
    assert answer == {"status": "ok"}
    assert content["ename"] == "CellInterrupted"
    assert "as after cell [1]" in content["evalue"]
    assert reply_of(await client.done(waiting))["status"] == "ok"
    await world.quiet()
    assert [key for _, key in world.store.objects if key.startswith("control/")] == []


async def test_a_second_interrupt_has_the_cell_killed(world: World) -> None:
    client = await world.client()
    running = client.execute("stubborn")
    await world.function.began.wait()

    for _ in range(2):
        await client.ask("interrupt_request", channel="control")

    assert reply_of(await client.done(running))["ename"] == "CellInterrupted"


async def test_a_restart_leaves_a_cell_no_time(world: World) -> None:
    client = await world.client()
    running = client.execute("stubborn")
    await world.function.began.wait()

    await client.kernel.restart()

    assert reply_of(await client.done(running))["ename"] == "CellInterrupted"
    cell = world.function.invocations[-1]
    assert order_of(world.store, cell) == "kill"


async def test_an_interrupt_of_an_idle_kernel_does_nothing(world: World) -> None:
    client = await world.client()

    await world.registry.interrupt(client.kernel.kernel_id)

    assert client.messages == []


async def test_a_cell_that_waits_for_a_container_can_be_interrupted(world: World) -> None:
    holder, client = await world.client(), await world.client()
    world.invoker.max_concurrency = 1
    held = holder.execute("wait")
    await world.function.began.wait()
    waiting = client.execute("print x")
    while world.registry.waiting(client.kernel.environment) == 0:  # noqa: ASYNC110
        await asyncio.sleep(0)

    await client.kernel.interrupt()

    content = reply_of(await client.done(waiting))
    assert content["ename"] == "CellInterrupted"
    assert "Started: no" in content["evalue"]
    world.function.release.set()
    await holder.done(held)


async def test_a_restart_kills_the_cell_aborts_the_queue_and_empties_the_session(
    world: World,
) -> None:
    client: Client = await world.client()
    await client.run("print a")
    running = client.execute("wait")
    waiting = client.execute("print c")
    await world.function.began.wait()
    late = world.function.invocations[-1]
    session = client.messages[-1].header["session"]

    await world.registry.restart(client.kernel.kernel_id)

    assert reply_of(await client.done(running))["ename"] == "CellInterrupted"
    assert reply_of(await client.done(waiting)) == {"status": "aborted"}
    states = [m.content["execution_state"] for m in client.messages if m.msg_type == "status"]
    assert states[-2:] == ["starting", "idle"]
    assert client.messages[-1].header["session"] != session
    assert client.kernel.execution_count == 0
    assert client.kernel.epoch == 1
    assert commits(world)[late.seq - 1].void
    assert f"control/{late.request_id}/interrupt" in {key for _, key in world.store.objects}

    messages = await client.run("print d")
    after = world.function.invocations[-1]
    assert messages[1].content["execution_count"] == 1
    assert (after.seq, after.parent_head, after.epoch) == (3, None, 1)


async def test_a_restart_that_cannot_be_recorded_leaves_the_session_as_it_was(
    world: World,
) -> None:
    client = await world.client()
    await client.run("print a")
    world.store.failing_puts.add("lkg-records")

    answer = await client.ask("shutdown_request", channel="control", restart=True)

    assert answer["ename"] == "StorageError"
    world.store.failing_puts.clear()
    messages = await client.run("print b")
    assert messages[1].content["execution_count"] == 2
    parent = world.function.invocations[-1].parent_head
    assert parent is not None
    assert parent.seq == 1


async def test_requests_that_come_during_a_restart_run_after_it(world: World) -> None:

    client = await world.client()
    restarting = asyncio.ensure_future(client.kernel.restart())
    await asyncio.sleep(0)
    assert client.kernel.execution_state == "restarting"

    messages = await client.run("print a")

    await restarting
    assert reply_of(messages)["status"] == "ok"
    assert world.function.invocations[0].epoch == 1


async def test_a_gateway_that_stops_answers_every_request_and_takes_no_more(world: World) -> None:
    client = await world.client()
    running, waiting = client.execute("wait"), client.execute("print x")
    await world.function.began.wait()

    await world.registry.close()

    reply = reply_of(await client.done(running))
    assert reply["ename"] == "CellInterrupted"
    assert "the gateway stopped" in reply["evalue"]
    assert reply_of(await client.done(waiting))["status"] == "aborted"
    assert reply_of(await client.run("print y"))["ename"] == "DeadKernel"
    assert world.function.ran == ["wait"]


async def test_a_shutdown_ends_the_kernel_and_its_record(world: World) -> None:
    client = await world.client()
    running = client.execute("wait")
    await world.function.began.wait()

    answer = await client.ask("shutdown_request", channel="control", restart=False)

    assert answer == {"status": "ok", "restart": False}
    assert reply_of(await client.done(running))["ename"] == "CellInterrupted"
    assert world.registry.all() == []
    assert client.kernel.execution_state == "dead"
    assert [key for _, key in world.store.objects if key.startswith("kernels/")] == []
    assert commits(world)[0].void
    assert reply_of(await client.run("print x"))["ename"] == "DeadKernel"
