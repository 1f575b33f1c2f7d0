"""complete_, inspect_ and history_requests beside the cells of a kernel."""

from __future__ import annotations

from typing import Any

import pytest

from kernel_gateway.dispatch.run import DispatchSettings
from tests.functional.kernels.conftest import Client, World


def matches(messages: list[Any]) -> list[str]:
    (reply,) = [m for m in messages if m.msg_type == "complete_reply"]
    found: list[str] = reply.content["matches"]
    return found


async def test_a_container_is_asked_and_nothing_is_committed(world: World) -> None:
    client = await world.client()
    await client.run("print 1")
    await world.quiet()
    keys_before = set(world.store.objects)

    reply = await client.ask("complete_request", code="first second", cursor_pos=3)

    asked = world.function.invocations[-1]
    assert reply["matches"] == ["first!"]
    assert (asked.kind, asked.commit) == ("complete", False)
    assert asked.msg.content == {"code": "first second", "cursor_pos": 3}
    assert asked.parent_head is not None
    await world.quiet()
    assert set(world.store.objects) == keys_before


async def test_busy_reply_and_idle_come_together(world: World) -> None:
    client = await world.client()

    told = await client.done(client.send("complete_request", code="x"))

    assert [m.content.get("execution_state", m.msg_type) for m in told] == [
        *("busy", "complete_reply", "idle")
    ]
    assert [m.channel for m in told] == ["iopub", "shell", "iopub"]


async def test_while_a_cell_runs_and_no_container_is_warm_the_answer_is_static(
    world: World,
) -> None:
    client = await world.client()
    running = client.execute("wait")
    await world.function.began.wait()

    reply = await client.ask("complete_request", code="impor")

    assert reply["matches"] == ["import"]
    assert reply["metadata"]["_jupyter_types_experimental"][0]["type"] == "keyword"
    assert len(world.function.invocations) == 1
    world.function.release.set()
    await client.done(running)


async def test_while_a_cell_runs_another_warm_container_answers(world: World) -> None:
    client, other = await world.client(), await world.client()
    cells = [client.execute("wait"), other.execute("wait")]
    await world.function.began.wait()
    world.function.release.set()
    await client.done(cells[0])
    await other.done(cells[1])
    await world.quiet()
    world.function.release.clear()
    world.function.began.clear()
    running = client.execute("wait")
    await world.function.began.wait()

    reply = await client.ask("complete_request", code="first")

    assert reply["matches"] == ["first!"]
    world.function.release.set()
    await client.done(running)


async def test_a_question_that_takes_too_long_gets_a_static_answer_and_is_ended(
    world: World,
) -> None:
    client = await world.client()

    reply = await client.ask("complete_request", code="stubborn imp", cursor_pos=12)

    assert reply["matches"] == ["import"]
    await world.quiet()
    assert (await client.ask("complete_request", code="first"))["matches"] == ["first!"]


async def test_of_one_client_only_the_newest_question_waits(world: World) -> None:
    client = await world.client()

    ids = [client.send("complete_request", code=f"w{i} x", cursor_pos=2) for i in range(50)]
    answers = [matches(await client.done(msg_id)) for msg_id in ids]

    assert answers[-1] == ["w49!"]
    asked = [each.msg.content["code"] for each in world.function.invocations]
    assert len(asked) <= 2
    assert asked[-1] == "w49 x"


async def test_another_client_is_not_superseded(world: World) -> None:
    client = await world.client()
    second = Client(client.kernel)
    client.kernel.attach(second.take)

    ids = client.send("complete_request", code="one"), second.send("complete_request", code="two")

    assert matches(await client.done(ids[0])) == ["one!"]
    assert matches(await second.done(ids[1])) == ["two!"]


async def test_a_cell_does_not_wait_behind_questions(world: World) -> None:
    client = await world.client()
    question = client.send("complete_request", code="wait x", cursor_pos=1)
    await world.function.began.wait()

    told = await client.run("print 1")

    assert any(m.msg_type == "execute_reply" for m in told)
    assert not any(m.msg_type == "complete_reply" for m in client.about(question))
    world.function.release.set()
    await client.done(question)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ({}, "content.code is missing"),
        ({"code": "ab", "cursor_pos": 3}, "cursor_pos must be 0 to 2, not 3"),
        ({"code": "ab", "cursor_pos": -1}, "cursor_pos must be 0 to 2, not -1"),
        ({"code": "ab", "detail_level": -1}, "detail_level must be 0 or 1, not -1"),
        ({"code": "x" * 1_000_001}, "has 1,000,001 characters"),
        ({"code": "\ud800"}, "has a lone surrogate"),
    ],
)
async def test_a_hostile_question_is_answered_clearly(
    world: World, content: dict[str, Any], told: str
) -> None:
    client = await world.client()

    reply = await client.ask("inspect_request", **content)

    assert reply["status"] == "error"
    assert told in reply["evalue"]
    assert world.function.invocations == []


@pytest.mark.parametrize(
    "code", ["x" * 20_000, "x " * 20_000 + "_", "pass\n" * 50_000, "a." * 9000]
)
async def test_what_would_keep_a_container_busy_for_long_is_answered_without_one(
    world: World, code: str
) -> None:
    client = await world.client()

    reply = await client.ask("complete_request", code=code)

    assert (reply["status"], reply["matches"]) == ("ok", [])
    assert world.function.invocations == []


async def test_a_dead_kernels_questions_are_answered(world: World) -> None:
    client = await world.client()
    await client.kernel.shutdown()

    assert (await client.ask("inspect_request", code="print"))["ename"] == "DeadKernel"
    assert world.function.invocations == []


async def test_history_has_the_numbers_of_ipython_and_survives_a_restart(world: World) -> None:
    client = await world.client()
    await client.run("print 1")
    await client.kernel.restart()
    await client.run("print 2")

    tail = await client.ask("history_request", hist_access_type="tail", n=10)
    now = await client.ask("history_request", hist_access_type="range", session=0)
    before = await client.ask("history_request", hist_access_type="range", session=-1)

    assert tail["history"] == [(1, 1, "print 1"), (2, 1, "print 2")]
    assert now["history"] == [(0, 1, "print 2")]
    assert before["history"] == [(1, 1, "print 1")]


async def test_the_count_of_a_kernel_is_known_again_once_somebody_asks(world: World) -> None:
    client = await world.client()
    await client.run("print 1")
    registry = await world.reopen()
    kernel = registry.get(client.kernel.kernel_id)
    counts = [kernel.execution_count]

    await kernel.learn_count()

    counts.append(kernel.execution_count)
    assert counts == [None, 1]
    await registry.close()


class TestOneContainer:
    """All of the function's concurrency is one container."""

    @pytest.fixture
    def dispatch_settings(self) -> DispatchSettings:
        return DispatchSettings(max_concurrency=1, connect_pauses_s=(), claim_pauses_s=(0.0,))

    async def test_no_question_stands_in_line_with_cells(self, world: World) -> None:
        client, other = await world.client(), await world.client()
        running, queued = client.execute("wait"), other.execute("print 1")
        await world.function.began.wait()

        reply = await client.ask("complete_request", code="impor")

        assert reply["matches"] == ["import"]
        world.function.release.set()
        await client.done(running)
        await other.done(queued)
        assert [each.kind for each in world.function.invocations] == ["execute", "execute"]
