"""Many kernels on few containers: nothing is lost, first come first served, no hammering."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kernel_gateway.dispatch.run import DispatchSettings

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tests.functional.kernels.conftest import World


@pytest.fixture
def dispatch_settings() -> DispatchSettings:
    """Give up soon."""
    return DispatchSettings(max_wait_s=0.05)


async def test_a_hundred_kernels_on_four_containers_lose_nothing(world: World) -> None:
    world.invoker.max_concurrency = 4
    real = world.invoker.function

    async def slow(payload: bytes) -> AsyncGenerator[bytes, None]:
        # Long enough, in turns of the loop, for every kernel to stand in line.
        for _ in range(20):
            await asyncio.sleep(0)
        async for chunk in real(payload):
            yield chunk

    world.invoker.function = slow
    world.registry.services.dispatcher.gate("lkg-env-default")._max_wait_s = 30
    clients = [await world.client() for _ in range(100)]

    sent = [client.execute(f"print {n}") for n, client in enumerate(clients)]
    for client, msg_id in zip(clients, sent, strict=True):
        messages = await client.done(msg_id)
        assert "execute_reply" in [m.msg_type for m in messages if m.content.get("status") == "ok"]

    assert sorted(world.function.ran) == sorted(f"print {n}" for n in range(100))
    assert world.invoker.most_running == 4
    assert world.invoker.throttled_count < 50
    assert world.registry.waiting(clients[0].kernel.environment) == 0


async def test_a_cell_for_which_no_container_becomes_free_is_given_up(world: World) -> None:
    world.invoker.max_concurrency = 1
    holder, client = await world.client(), await world.client()
    held = holder.execute("wait")
    await world.function.began.wait()

    messages = await client.run("print x")

    (reply,) = [m for m in messages if m.msg_type == "execute_reply"]
    assert reply.content["ename"] == "Throttled"
    assert "Started: no" in reply.content["evalue"]
    assert world.function.ran == ["wait"]
    world.function.release.set()
    await holder.done(held)
