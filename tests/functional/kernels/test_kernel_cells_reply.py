"""cells_request: what a page that was loaded again is told of a kernel's cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel_gateway.kernels.cells_reply import MAX_BYTES
from kernel_gateway.messaging.message import InMessage

if TYPE_CHECKING:
    from tests.functional.kernels.conftest import Client, World


def execute_in(client: Client, cell_id: str, code: str) -> str:
    """Send a cell as JupyterLab does, which names the notebook's cell."""
    header = {"msg_id": f"of-{cell_id}", "msg_type": "execute_request", "session": client.session}
    message = InMessage(
        channel="shell",
        header=header,
        metadata={"cellId": cell_id},
        content={"code": code, "allow_stdin": True},
    )
    client.kernel.receive(message, client.take)
    return str(header["msg_id"])


async def cells(client: Client, **content: Any) -> list[dict[str, Any]]:
    reply = await client.ask("cells_request", channel="control", **content)
    assert reply["status"] == "ok"
    found: list[dict[str, Any]] = reply["cells"]
    return found


def texts(cell: dict[str, Any]) -> list[str]:
    return [m["content"]["text"] for m in cell["messages"] if m["header"]["msg_type"] == "stream"]


async def test_a_new_page_is_told_of_cells_that_ended_that_run_and_that_wait(world: World) -> None:
    first = await world.client(session="first")
    await first.done(execute_in(first, "a", "print one"))
    running = execute_in(first, "b", "wait")
    waiting = execute_in(first, "c", "print three")
    await world.function.began.wait()
    first.kernel.detach(first.take)
    second = world.attached(first.kernel, "second")

    told = await cells(second)

    assert [(c["cell_id"], c["code"], c["status"], c["execution_count"]) for c in told] == [
        ("a", "print one", "ok", 1),
        ("b", "wait", "running", 2),
        ("c", "print three", "queued", None),
    ]
    assert [texts(cell) for cell in told] == [["one\n"], [], []]
    assert told[0]["finished"] is not None
    assert told[1]["finished"] is None
    assert [m["header"]["msg_type"] for m in told[1]["messages"]] == ["status", "execute_input"]

    # What comes after the reply comes as it always does.
    reply_at = len(second.messages)
    world.function.release.set()
    await second.done(running)
    await second.done(waiting)
    later = [m.content["text"] for m in second.messages[reply_at:] if m.msg_type == "stream"]
    assert later == ["three\n"]


async def test_only_the_last_ones_are_told_and_of_too_much_the_newest_messages(
    world: World,
) -> None:
    client = await world.client()
    # It is in the code, in what says that it begins, and in the output.
    large = "x" * (MAX_BYTES // 8)
    for text in ("one", large, large, "four", large):
        await client.run(f"print {text}")

    told = await cells(client, last=4)

    assert [[text[0] for text in texts(cell)] for cell in told] == [[], ["x"], ["f"], ["x"]]
    # The text of the oldest cell, and what it said before that.
    assert [cell["left_out_count"] for cell in told] == [3, 0, 0, 0]
    assert await cells(client, last=-1) == []


async def test_an_open_question_is_asked_again_after_the_reply(world: World) -> None:
    first = await world.client(session="first")
    execute_in(first, "a", "ask name")
    await world.turns()
    first.kernel.detach(first.take)
    second = world.attached(first.kernel, "second")

    await cells(second)

    kinds = [m.msg_type for m in second.messages if m.channel in ("stdin", "control")]
    assert kinds == ["input_request", "cells_reply", "input_request"]


async def test_a_page_beside_the_one_that_is_asked_is_not_asked(world: World) -> None:
    first = await world.client(session="first")
    execute_in(first, "a", "ask name")
    await world.turns()
    second = world.attached(first.kernel, "second")

    await cells(second)

    assert "input_request" not in [m.msg_type for m in second.messages]


async def test_a_journal_that_cannot_be_read_is_said(world: World) -> None:
    client = await world.client()
    await client.run("print one")
    await world.quiet()
    world.registry = await world.reopen()
    again = world.attached(world.registry.get(client.kernel.kernel_id))
    world.store.failing_lists = True

    reply = await again.ask("cells_request", channel="control")

    assert (reply["status"], reply["ename"]) == ("error", "StorageError")


async def test_a_number_that_is_none_is_refused(world: World) -> None:
    client = await world.client()

    reply = await client.ask("cells_request", channel="control", last="many")

    assert (reply["status"], reply["ename"]) == ("error", "BadMessage")
