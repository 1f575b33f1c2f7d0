"""Who is asked what a cell asks, and whose answer reaches it."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any

import pytest

from kernel_gateway.audit.chain import CellFinished
from kernel_gateway.messaging.message import InMessage
from lambda_kernel.contract import control

if TYPE_CHECKING:
    from kernel_gateway.audit.answers import Answer
    from kernel_gateway.messaging.message import OutMessage
    from tests.functional.kernels.conftest import Client, World


async def asked(client: Client, prompt: str) -> OutMessage:
    """Return a question once it is there."""
    async with asyncio.timeout(10):
        while True:
            for message in client.messages:
                if message.msg_type == "input_request" and message.content["prompt"] == prompt:
                    return message
            await asyncio.sleep(0)


def reply(client: Client, **content: Any) -> None:
    client.send("input_reply", channel="stdin", **content)


def printed(messages: list[OutMessage]) -> list[str]:
    return [m.content["text"] for m in messages if m.msg_type == "stream"]


def questions(client: Client) -> list[OutMessage]:
    return [m for m in client.messages if m.msg_type == "input_request"]


async def test_a_question_goes_to_who_sent_the_cell_and_the_answer_to_the_cell(
    world: World,
) -> None:
    client = await world.client()
    other = world.attached(client.kernel)
    cell = client.execute("ask one pw", allow_stdin=True)

    first = await asked(client, "one")
    reply(client, value="1")
    second = await asked(client, "pw")
    reply(client, value="2")

    assert first.channel == second.channel == "stdin"
    assert first.parent_header["msg_id"] == cell
    assert (first.content, second.content["password"]) == (
        {"prompt": "one", "password": False},
        True,
    )
    assert printed(await client.done(cell)) == ["1\n", "2\n"]
    assert questions(other) == []
    await world.quiet()
    assert [key for _, key in world.store.objects if key.startswith("control/")] == []


async def test_an_answer_that_nobody_asked_for_is_logged_and_ignored(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    client = await world.client()
    other = world.attached(client.kernel)
    reply(client, value="idle-answer")
    cell = client.execute("ask one two", allow_stdin=True)
    await asked(client, "one")

    reply(other, value="of-another")
    reply(client, value="right")
    reply(client, value="twice")
    await asked(client, "two")
    reply(client, value="right too")

    assert printed(await client.done(cell)) == ["right\n", "right too\n"]
    assert caplog.text.count("an input_reply is ignored") == 3
    assert not any(word in caplog.text for word in ("idle-answer", "of-another", "right", "twice"))
    assert "error" not in [m.msg_type for m in (*client.messages, *other.messages)]


@pytest.mark.parametrize("content", [{}, {"value": 3}, {"value": None}, {"value": ["a"]}])
async def test_an_answer_that_is_no_text_is_told_to_its_sender_and_the_question_stays(
    world: World, content: dict[str, Any]
) -> None:
    client = await world.client()
    other = world.attached(client.kernel)
    cell = client.execute("ask one", allow_stdin=True)
    await asked(client, "one")

    reply(client, **content)
    reply(client, value="x" * (control.MAX_ANSWER_CHARACTERS + 1))
    reply(client, value="right")

    assert printed(await client.done(cell)) == ["right\n"]
    errors = [m.content["evalue"] for m in client.messages if m.msg_type == "error"]
    assert len(errors) == 2
    assert "content.value" in errors[0]
    assert "error" not in [m.msg_type for m in other.messages]


async def test_a_question_of_a_cell_that_may_not_ask_reaches_nobody(world: World) -> None:
    client = await world.client()
    for allowed in ({}, {"allow_stdin": False}):
        cell = client.execute("ask one", **allowed)
        while not world.function.ran or len(world.function.ran) < 1:  # noqa: ASYNC110
            await asyncio.sleep(0)
        world.function.release.set()
        await client.done(cell)
        world.function.release.clear()
    assert questions(client) == []


async def test_a_client_that_comes_back_is_asked_again(world: World) -> None:
    client = await world.client()
    cell = client.execute("ask one", allow_stdin=True)
    question = await asked(client, "one")
    client.kernel.detach(client.take)

    back = world.attached(client.kernel)

    assert questions(back) == [question]
    reply(client, value="from who is gone")
    reply(back, value="right")
    assert printed(await back.done(cell)) == ["right\n"]


async def test_the_same_client_session_is_asked_though_its_old_connection_is_not_gone_yet(
    world: World,
) -> None:
    client = await world.client()
    cell = client.execute("ask one", allow_stdin=True)
    await asked(client, "one")

    stranger, back = world.attached(client.kernel), world.detached(client.kernel)
    client.kernel.attach(back.take, "s")
    client.kernel.detach(client.take)

    assert (len(questions(stranger)), len(questions(back))) == (0, 1)
    reply(back, value="right")
    assert printed(await back.done(cell)) == ["right\n"]


async def test_other_clients_are_asked_once_the_one_that_was_asked_is_gone(world: World) -> None:
    client = await world.client()
    other = world.attached(client.kernel)
    cell = client.execute("ask one two", allow_stdin=True)
    await asked(client, "one")
    client.kernel.detach(client.take)

    assert len(questions(other)) == 1
    reply(other, value="1")
    await asked(other, "two")
    reply(other, value="2")

    assert printed(await other.done(cell)) == ["1\n", "2\n"]


async def test_an_answer_that_names_another_question_is_ignored(world: World) -> None:
    client = await world.client()
    cell = client.execute("ask one two", allow_stdin=True)
    first = await asked(client, "one")
    answer = {"msg_id": "r", "msg_type": "input_reply", "session": "s"}
    for parent, value in ((first.header, "1"), (first.header, "again"), (None, "2")):
        if value == "again":
            await asked(client, "two")
        client.kernel.receive(
            InMessage(
                channel="stdin", header=answer, parent_header=parent or {}, content={"value": value}
            ),
            client.take,
        )
    assert printed(await client.done(cell)) == ["1\n", "2\n"]


async def test_an_answer_that_storage_does_not_take_is_asked_for_again(world: World) -> None:
    client = await world.client()
    cell = client.execute("ask one", allow_stdin=True)
    await asked(client, "one")
    world.store.failing_puts.add("lkg-overflow")
    reply(client, value="lost")
    while len(questions(client)) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    world.store.failing_puts.clear()

    reply(client, value="right")

    notice, text = printed(await client.done(cell))
    assert "could not be delivered" in notice
    assert text == "right\n"


async def recorded_answers(world: World, client: Client) -> tuple[Answer, ...]:
    """Return the answers in the entry about the end of the last cell."""
    await world.quiet()
    number = await client.kernel.journal.open()
    event = (await client.kernel.journal.entry(number)).event
    assert isinstance(event, CellFinished)
    return event.answers


async def test_the_journal_has_what_was_answered_but_no_password(world: World) -> None:
    client = await world.client()
    cell = client.execute("ask one pw two", allow_stdin=True)
    for prompt, value in (("one", "1"), ("pw", "secret"), ("two", "x" * 65536)):
        await asked(client, prompt)
        reply(client, value=value)
    await client.done(cell)

    found = await recorded_answers(world, client)

    assert [(each.prompt, each.value, each.left_out) for each in found] == [
        ("one", "1", None), ("pw", None, "password"), ("two", None, "too long"),
    ]  # fmt: skip
    assert "secret" not in repr(found)


async def test_an_answer_that_could_not_be_delivered_is_recorded_once(world: World) -> None:
    client = await world.client()
    cell = client.execute("ask one", allow_stdin=True)
    await asked(client, "one")
    world.store.failing_puts.add("lkg-overflow")
    reply(client, value="lost")
    while len(questions(client)) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0)
    world.store.failing_puts.clear()
    reply(client, value="right")
    await client.done(cell)

    assert [each.value for each in await recorded_answers(world, client)] == ["right"]
