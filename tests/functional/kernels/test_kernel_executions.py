"""Cells that no websocket waits for: what they gave, what is remembered, when they are stopped."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import TYPE_CHECKING, Any

import pytest

from kernel_gateway.kernels.execution import OVER, Execution
from kernel_gateway.kernels.idempotency import (
    IdempotencyKeys,
    KeyReused,
    RememberedLimits,
)
from kernel_gateway.messaging.idempotency import Idempotency
from kernel_gateway.messaging.message import OutMessage

if TYPE_CHECKING:
    from kernel_gateway.kernels.kernel import LambdaKernel
    from tests.functional.kernels.conftest import World


async def a_kernel(world: World) -> LambdaKernel:
    client = await world.client()
    client.kernel.detach(client.take)
    return client.kernel


async def ended(execution: Execution) -> Execution:
    async with asyncio.timeout(10):
        while not execution.ended:
            await execution.news()
    return execution


async def ran(kernel: LambdaKernel, code: str, **content: Any) -> Execution:
    return await ended(Execution.begin(kernel, {"code": code, **content}))


async def test_the_result_has_outputs_number_and_facts(world: World) -> None:
    result = (await ran(await a_kernel(world), "print hello")).result
    assert result["status"] == "ok"
    assert result["execution_count"] == 1
    assert result["outputs"] == [{"output_type": "stream", "name": "stdout", "text": "hello\n"}]
    assert result["lambda_kernel"]["committed"] is True
    assert result["lambda_kernel"]["code_started"] == "yes"


async def test_an_error_of_the_cell_is_a_result(world: World) -> None:
    execution = await ran(await a_kernel(world), "raise ValueError")
    assert execution.refusal is None
    assert execution.result["status"] == "error"
    assert execution.result["ename"] == "ValueError"
    assert execution.result["outputs"][0]["output_type"] == "error"


async def test_messages_come_as_they_are_said_the_reply_last(world: World) -> None:
    execution = await ran(await a_kernel(world), "print hello")
    types = [message.msg_type for _, message in execution.read()]
    assert types == ["status", "execute_input", "stream", "execute_reply"]
    assert [m.msg_type for _, m in execution.read(2)] == ["execute_reply"]


async def test_numbers_are_the_same_whether_messages_were_joined_or_not(world: World) -> None:
    kernel = await a_kernel(world)
    joined = await ran(kernel, "many-lines")
    read = Execution.begin(kernel, {"code": "many-lines"})
    numbers = [number for number, _ in read.read()]
    while not read.ended:
        await read.news()
        numbers += [number for number, _ in read.read(numbers[-1] if numbers else -1)]
    assert len(joined.messages) < len(numbers)
    assert {number for number, _ in joined.read()} < set(numbers)
    assert joined.read()[-1][0] == numbers[-1]
    assert [m.msg_type for _, m in joined.read(numbers[-2])] == ["execute_reply"]


async def test_lines_that_nobody_has_read_are_joined_and_those_read_stay(world: World) -> None:
    execution = await ran(await a_kernel(world), "many-lines")
    assert len(execution.messages) < 50
    assert execution.result["outputs"][0]["text"].count("\n") == 5000


async def test_a_flood_of_messages_is_cut_with_a_notice_and_the_reply_comes(world: World) -> None:
    execution = await ran(await a_kernel(world), "floods")
    assert len(execution.messages) < 70
    assert execution.result["outputs"][-1]["text"] == OVER
    assert execution.result["status"] == "ok"


async def test_a_kernel_that_is_idle_forgets_old_results_by_itself(world: World) -> None:
    keys = IdempotencyKeys(RememberedLimits(age_s=-1.0), now_s=lambda: 0.0)
    keys.remember(asked("k"), await ran(await a_kernel(world), "print x"))
    assert len(keys) == 0
    kernel = await a_kernel(world)
    keys.remember(asked("r"), Execution.begin(kernel, {"code": "wait"}))
    assert len(keys) == 1
    world.function.release.set()
    async with asyncio.timeout(10):
        while len(keys):
            await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0))])


async def test_websockets_see_the_cells_of_rest_callers_too(world: World) -> None:
    client = await world.client()
    execution = await ran(client.kernel, "print hello")
    await client.done(execution.msg_id)
    types = [message.msg_type for message in client.about(execution.msg_id)]
    assert types == ["status", "execute_input", "stream", "status"]


async def test_what_a_rest_caller_got_is_not_kept_for_a_later_websocket(world: World) -> None:
    kernel = await a_kernel(world)
    await ran(kernel, "print hello")
    await world.quiet()
    later: list[OutMessage] = []
    kernel.attach(later.append)
    assert later == []


async def test_a_queued_request_is_withdrawn_and_what_runs_goes_on(world: World) -> None:
    kernel = await a_kernel(world)
    first, second = (Execution.begin(kernel, {"code": code}) for code in ("wait", "print x"))
    third = Execution.begin(kernel, {"code": "print y"})
    await world.function.began.wait()
    await second.cancel()
    assert second.refusal is not None
    assert second.refusal.http_status == 409
    world.function.release.set()
    assert (await ended(first)).result["status"] == "ok"
    assert (await ended(third)).result["status"] == "ok"
    assert world.function.ran == ["wait", "print y"]


async def test_a_running_cell_is_interrupted_and_one_that_has_ended_does_no_harm(
    world: World,
) -> None:
    kernel = await a_kernel(world)
    before = await ran(kernel, "print x")
    running = Execution.begin(kernel, {"code": "wait"})
    await world.function.began.wait()
    await before.cancel()
    assert not running.ended
    await running.cancel()
    assert (await ended(running)).result["ename"] == "CellInterrupted"


async def test_a_cell_is_interrupted_at_its_time_limit_and_waiting_does_not_count(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = await a_kernel(world)
    content = {"code": "wait", "stop_on_error": False}
    limited = Execution.begin(kernel, content, timeout_s=5)
    # Would be taken out of the queue when the first one ends, if it counted there.
    waits = Execution.begin(kernel, {"code": "print x"}, timeout_s=5)
    await world.function.began.wait()
    loop = asyncio.get_running_loop()
    now = loop.time
    monkeypatch.setattr(loop, "time", lambda: now() + 6)
    assert (await ended(limited)).result["ename"] == "CellInterrupted"
    assert (await ended(waits)).refusal is None


@pytest.mark.parametrize("end", ["restart", "shutdown"])
async def test_the_end_of_the_kernel_is_an_answer(world: World, end: str) -> None:
    kernel = await a_kernel(world)
    running, waits = (Execution.begin(kernel, {"code": code}) for code in ("wait", "print x"))
    await world.function.began.wait()
    await getattr(kernel, end)()
    assert (await ended(running)).result["ename"] == "CellInterrupted"
    refusal = (await ended(waits)).refusal
    assert refusal is not None
    assert refusal.http_status == 409


async def test_a_full_queue_and_a_dead_kernel_refuse(world: World) -> None:
    kernel = await a_kernel(world)
    Execution.begin(kernel, {"code": "wait"})
    await world.function.began.wait()
    several = [Execution.begin(kernel, {"code": "print x"}) for _ in range(6)]
    refusal = several[-1].refusal
    assert refusal is not None
    assert (refusal.http_status, str(refusal).partition(":")[0]) == (429, "QueueFull")
    await kernel.shutdown()
    refusal = Execution.begin(kernel, {"code": "print x"}).refusal
    assert refusal is not None
    assert (refusal.http_status, str(refusal).partition(":")[0]) == (409, "DeadKernel")


async def test_a_cell_that_may_have_run_is_never_called_one_that_did_not(world: World) -> None:
    execution = await ran(await a_kernel(world), "dies")
    assert execution.refusal is None
    assert execution.result["lambda_kernel"]["failure"] == "ContainerDied"


async def test_code_that_cannot_be_sent_is_bad_input(world: World) -> None:
    refusal = (await ran(await a_kernel(world), "print '\ud800'")).refusal
    assert refusal is not None
    assert refusal.http_status == 400
    assert world.function.ran == []


# Keys.


def asked(key: str, code: str = "") -> Idempotency:
    return Idempotency.of(key, {"code": code})


async def test_a_key_finds_what_runs_and_what_has_ended(world: World) -> None:
    kernel, keys = await a_kernel(world), IdempotencyKeys()
    execution = Execution.begin(kernel, {"code": "wait"})
    keys.remember(asked("k", "wait"), execution)
    assert keys.find(asked("k", "wait")) is execution
    world.function.release.set()
    await ended(execution)
    assert keys.find(asked("k", "wait")) is execution
    assert keys.find(asked("other", "wait")) is None


async def test_a_key_of_another_request_is_refused(world: World) -> None:
    keys = IdempotencyKeys()
    keys.remember(asked("k", "print x"), await ran(await a_kernel(world), "print x"))
    with pytest.raises(KeyReused, match="another request"):
        keys.find(asked("k", "print y"))


async def test_a_key_of_which_nothing_ran_is_free_again(world: World) -> None:
    kernel, keys = await a_kernel(world), IdempotencyKeys()
    await kernel.shutdown()
    keys.remember(asked("k", "print x"), Execution.begin(kernel, {"code": "print x"}))
    assert keys.find(asked("k", "print x")) is None


async def test_old_and_many_and_large_results_are_forgotten_the_newest_and_running_not(
    world: World,
) -> None:
    kernel, clock = await a_kernel(world), [0.0]
    limits = RememberedLimits(count=2, size_bytes=100_000, age_s=10)
    keys = IdempotencyKeys(limits, now_s=lambda: clock[0])
    for name in ("a", "b", "c"):
        keys.remember(asked(name), await ran(kernel, "print x"))
    assert keys.find(asked("a")) is None
    assert keys.find(asked("b")) is not None
    keys.remember(asked("large"), await ran(kernel, f"print {'x' * 200_000}"))
    assert keys.find(asked("c")) is None
    assert keys.find(asked("large")) is not None
    running = Execution.begin(kernel, {"code": "wait"})
    keys.remember(asked("runs"), running)
    clock[0] = 11.0
    assert keys.find(asked("large")) is None
    assert keys.find(asked("runs")) is running


async def test_results_that_are_kept_keep_no_kernel(world: World) -> None:
    kernel, keys = await a_kernel(world), IdempotencyKeys()
    keys.remember(asked("k"), await ran(kernel, "print x"))
    await world.registry.shutdown(kernel.kernel_id)
    await world.quiet()
    gone = weakref.ref(kernel)
    del kernel
    gc.collect()
    assert gone() is None
    assert len(keys) == 1
    kept = weakref.ref(keys)
    del keys
    gc.collect()
    assert kept() is None


async def test_what_comes_after_an_error_was_shown_is_not_aborted_with_what_waited(
    world: World,
) -> None:
    client = await world.client()
    failing = client.execute("raise Oops")
    waiting = client.execute("print waits")
    late: list[str] = []
    take = client.take

    def sends_one_more(message: OutMessage) -> None:
        take(message)
        if message.msg_type == "error":
            late.append(client.execute("print late"))

    world.attached(client.kernel).kernel.attach(sends_one_more)
    await client.done(failing)

    assert [m.content["status"] for m in await client.done(waiting) if m.channel == "shell"] == [
        "aborted"
    ]
    await client.done(late[0])
    assert world.function.ran == ["raise Oops", "print late"]
