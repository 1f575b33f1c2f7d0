"""Comm messages in a kernel's queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from kernel_gateway.messaging.message import OutMessage
    from tests.functional.kernels.conftest import Client, World

NAMES = (
    "x",
    "(comms:comm:jupyter.widget:c1)",
    "(comms:comm:a%20b:c%3A2)",
    "(comms:target:jupyter.widget.control)",
    "(comms:comm:broken)",
    "(magics:line m)",
)


def said(messages: list[OutMessage]) -> list[str]:
    """Return types; statuses by their state."""
    return [m.content.get("execution_state") or m.msg_type for m in messages]


def move(client: Client, comm_id: str, do: str, **state: Any) -> str:
    data = {"method": "update", "state": state, "buffer_paths": [], "do": do}
    return client.send("comm_msg", comm_id=comm_id, data=data)


async def with_comms(world: World) -> Client:
    world.function.stored_names = NAMES
    client = await world.client()
    await client.run("print made")
    return client


async def test_a_comm_message_is_a_commit_without_a_number_or_a_reply(world: World) -> None:
    client = await with_comms(world)

    messages = await client.done(move(client, "c1", "print moved", value=1))
    await client.run("print next")

    assert said(messages) == ["busy", "stream", "idle"]
    made, moved, following = world.function.invocations
    assert (moved.kind, moved.commit, moved.seq) == ("comm", True, made.seq + 1)
    assert moved.msg.header["msg_type"] == "comm_msg"
    assert following.parent_head is not None
    assert following.parent_head.seq == moved.seq
    assert [i.execution_count for i in world.function.invocations] == [1, 1, 2]


async def test_comm_info_tells_what_the_commit_holds_also_after_a_gateway_restart(
    world: World,
) -> None:
    client = await with_comms(world)
    both = {"c1": {"target_name": "jupyter.widget"}, "c:2": {"target_name": "a b"}}

    assert (await client.ask("comm_info_request"))["comms"] == both
    await world.registry.close()
    registry = await world.reopen()
    again = world.attached(registry.get(client.kernel.kernel_id))
    info = await again.ask("comm_info_request", target_name="jupyter.widget")

    assert info == {"status": "ok", "comms": {"c1": both["c1"]}}
    assert len(world.function.invocations) == 1
    await registry.close()


async def test_updates_of_one_comm_that_wait_become_the_newest(world: World) -> None:
    client = await with_comms(world)
    client.execute("wait")
    await world.function.began.wait()

    sent = [move(client, "c1", f"print {i}", value=i) for i in range(4)]
    sent.append(move(client, "c1", "print 4", value=4, step=2))
    other = move(client, "c1", "print 5", value=5)
    world.function.release.set()
    answers = [await client.done(msg_id) for msg_id in (*sent, other)]

    assert world.function.ran[2:] == ["print 4", "print 5"]
    assert [said(each) for each in answers[:4]] == [["busy", "idle"]] * 4
    assert [said(each) for each in answers[4:]] == [["busy", "stream", "idle"]] * 2


async def test_what_is_no_plain_update_of_the_same_comm_waits_for_itself(world: World) -> None:
    client = await with_comms(world)
    client.execute("wait")
    await world.function.began.wait()

    last = [
        move(client, "c1", "print a", value=1),
        move(client, "c:2", "print b", value=2),
        client.send("comm_msg", comm_id="c:2", data={"method": "custom", "do": "print c"}),
        client.send("comm_msg", comm_id="c:2", data={"method": "custom", "do": "print d"}),
    ][-1]
    world.function.release.set()
    await client.done(last)

    assert world.function.ran[2:] == ["print a", "print b", "print c", "print d"]


async def test_a_full_queue_says_so_and_an_error_of_a_cell_does_not_abort_comm_messages(
    world: World,
) -> None:
    client = await with_comms(world)
    failing = client.execute("wait")
    await world.function.began.wait()
    client.execute("raise ValueError")
    cell = client.execute("print never")
    comms = [client.send("comm_msg", comm_id="c1", data={"do": f"print {i}"}) for i in range(1000)]
    world.function.release.set()
    await client.done(failing)
    await client.done(comms[0])
    refused = await client.done(comms[-1])
    await world.quiet()

    assert said(refused) == ["busy", "stream", "idle"]
    assert "5 requests wait already" in refused[1].content["text"]
    assert client.about(cell)[1].content == {"status": "aborted"}
    assert world.function.ran[3:] == ["print 0", "print 1", "print 2"]


async def test_a_comm_message_whose_container_dies_is_told(world: World) -> None:
    client = await with_comms(world)

    messages = await client.done(move(client, "c1", "dies", value=1))

    assert said(messages) == ["busy", "error", "idle"]
    assert messages[1].content["ename"] == "ContainerDied"


@pytest.mark.parametrize(
    ("msg_type", "content"),
    [
        ("comm_msg", {}),
        ("comm_msg", {"comm_id": 1}),
        ("comm_msg", {"comm_id": ""}),
        ("comm_msg", {"comm_id": "c" * 201}),
        ("comm_msg", {"comm_id": "c1", "data": []}),
        ("comm_msg", {"comm_id": "c1", "data": {"a": "\ud800"}}),
        ("comm_msg", {"comm_id": "c1", "data": {"a": float("nan")}}),
        ("comm_open", {"comm_id": "c"}),
        ("comm_open", {"comm_id": "c", "target_name": None}),
        ("comm_close", {"comm_id": {}}),
    ],
)
async def test_a_malformed_comm_message_is_refused_and_runs_nothing(
    world: World, msg_type: str, content: dict[str, Any]
) -> None:
    client = await with_comms(world)

    messages = await client.done(client.send(msg_type, **content))

    assert said(messages) == ["busy", "stream", "idle"]
    assert "content." in messages[1].content["text"]
    assert len(world.function.invocations) == 1


async def test_a_comm_of_another_kernel_is_unknown(world: World) -> None:
    await with_comms(world)
    world.function.stored_names = ()
    other = await world.client()
    await other.run("print x")

    messages = await other.done(move(other, "c1", "print stolen", value=1))

    assert said(messages) == ["busy", "stream", "comm_close", "idle"]
    assert world.function.ran == ["print made", "print x"]


async def test_a_restart_answers_comm_messages_that_wait(world: World) -> None:
    client = await with_comms(world)
    running = client.execute("wait")
    await world.function.began.wait()
    waiting = move(client, "c1", "print late", value=1)

    await world.registry.restart(client.kernel.kernel_id)
    answers = await client.done(waiting)

    await client.done(running)
    assert said(answers) == ["busy", "stream", "idle"]
    assert "restarted" in answers[1].content["text"]
    assert "print late" not in world.function.ran
