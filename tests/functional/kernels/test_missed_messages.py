"""Clients that leave while they are given the past."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kernel_gateway.kernels.missed import Replay
from kernel_gateway.messaging.message import OutMessage

if TYPE_CHECKING:
    from tests.functional.kernels.conftest import World


async def test_nothing_more_is_read_for_a_client_that_has_left(world: World) -> None:
    client = await world.client(session="s1")
    for number in range(60):
        await client.run(f"print {number}")
    await world.quiet()
    before = len(world.store.get_keys)

    leaver = world.detached(client.kernel)
    client.kernel.attach(leaver.take, "s2", replay=Replay())
    client.kernel.detach(leaver.take)
    await world.quiet()

    assert leaver.messages == []
    # What was under way when it left: one batch of entries.
    assert len(world.store.get_keys) - before <= 16


@pytest.mark.parametrize("session", ["s1", "s2"])
async def test_a_client_that_leaves_and_comes_back_in_the_middle_gets_all_once_and_in_order(
    world: World, session: str
) -> None:
    client = await world.client(session="s1")
    client.kernel.detach(client.take)
    asked = [client.execute(code) for code in ("print a", "print b", "print c")]
    await world.quiet()
    got: list[OutMessage] = []
    sent_count = 0

    async def leaves_after_some() -> None:
        # A socket takes what it is given; the reader is away after the fifth message.
        await asyncio.sleep(0)
        if sent_count == 5:
            client.kernel.detach(first)

    def first(message: OutMessage) -> None:
        nonlocal sent_count
        sent_count += 1
        got.append(message)

    replay = Replay() if session == "s2" else None
    client.kernel.attach(first, session, replay=replay, ready=leaves_after_some)
    await world.quiet()
    assert len(got) == 5
    client.kernel.attach(got.append, session)
    await world.quiet()

    seen = [m for m in got if m.parent_header.get("msg_id") in asked]
    ids = [m.header["msg_id"] for m in seen]
    # Whether the fifth arrived before the client left is not known: it comes again.
    assert len(ids) - len(set(ids)) <= 1
    types = ["status", "execute_input", "stream", "execute_reply", "status"]
    once = list({m.header["msg_id"]: m for m in seen}.values())
    assert [m.msg_type for m in once] == types * 3
    assert [m.content["text"] for m in once if m.msg_type == "stream"] == ["a\n", "b\n", "c\n"]


async def test_a_session_that_comes_back_while_it_is_still_given_the_past_gets_it_in_order(
    world: World,
) -> None:
    client = await world.client(session="s1")
    client.kernel.detach(client.take)
    for code in ("print a", "print b", "print c"):
        client.execute(code)
    await world.quiet()
    goes_on = asyncio.Event()
    old, new = world.detached(client.kernel), world.detached(client.kernel)
    # Its socket is full: what comes first waits, and the page is loaded again meanwhile.
    client.kernel.attach(old.take, "s1", ready=lambda: wait(goes_on))
    await world.turns()
    client.kernel.detach(old.take)
    client.kernel.attach(new.take, "s1")
    goes_on.set()
    await world.quiet()

    assert old.messages == []
    streams = [m.content["text"] for m in new.messages if m.msg_type == "stream"]
    assert streams == ["a\n", "b\n", "c\n"]


async def wait(event: asyncio.Event) -> None:
    await event.wait()
