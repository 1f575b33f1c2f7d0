"""How kernels end and sessions change, as every client sees it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed

from kernel_gateway.audit.chain import SessionClosed
from kernel_gateway.audit.events import SessionOpened
from kernel_gateway.messaging.caller import Actor
from tests.functional.conftest import wait_until
from tests.functional.web.server import WebGateway, a_web_gateway, execute_request, request


@pytest.fixture
async def culling(tmp_path: Path) -> AsyncIterator[WebGateway]:
    """A server that culls after an hour, clients or not."""
    config = Config({"LambdaKernelManager": {"cull_idle_timeout": 3600, "cull_connected": True}})
    async with a_web_gateway(tmp_path, config) as gateway:
        yield gateway


async def until_closed(socket: ClientConnection) -> list[dict[str, Any]]:
    """Return all that comes before the server closes the connection."""
    found = []
    try:
        while True:
            found.append(json.loads(await asyncio.wait_for(socket.recv(), 20)))
    except ConnectionClosed:
        return found


def shown(messages: list[dict[str, Any]]) -> list[str]:
    """Return the types of messages, of a status what it says."""
    return [m["content"].get("execution_state") or m["header"]["msg_type"] for m in messages]


async def test_culling_is_told_to_who_is_connected_and_to_the_owner_who_asks_later(
    culling: WebGateway,
) -> None:
    kernel_id = await culling.start_kernel(token="u1-a1")
    async with culling.channels(kernel_id, token="u1-a1") as socket:
        culling.clock.passed = timedelta(hours=2)
        await culling.server.kernel_manager.cull_kernels()
        assert shown(await until_closed(socket)) == ["dead"]
        assert socket.close_code == 1000
        assert "the kernel was culled: nobody used it for 7200 s" in str(socket.close_reason)
    journal = culling.registry.services.recorder.opened(kernel_id)
    opened, closed = [(await journal.entry(number)).event for number in (1, 2)]
    assert isinstance(opened, SessionOpened)
    assert opened.actor.caller is not None
    assert (opened.actor.caller.user, opened.actor.caller.agent) == ("u1", "a1")
    assert isinstance(closed, SessionClosed)
    assert closed.actor == Actor(door="culler")
    # Its owner may read that, though no cell ran.
    trail = f"/api/kernels/{kernel_id}/trail.ipynb"
    assert [(await culling.rest("GET", trail, token=t)).status for t in ("u1-a1", "u10")] == [
        200, 404,
    ]  # fmt: skip
    path = f"/api/kernels/{kernel_id}"
    for token in ("u1-a1", "u1", "root"):
        gone = await culling.rest("GET", path, token=token)
        assert gone.status == 404
        assert "it was culled: nobody used it for" in gone.json["message"]
    for token in ("u1-a2", "u10"):
        gone = await culling.rest("GET", path, token=token)
        assert (gone.status, gone.json["message"]) == (404, f"Kernel does not exist: {kernel_id}")


@pytest.mark.parametrize("set_by", [timedelta(days=400), timedelta(days=-400)])
async def test_a_clock_that_is_set_neither_culls_a_kernel_nor_keeps_it(
    culling: WebGateway, set_by: timedelta
) -> None:
    kernel_id = await culling.start_kernel()
    culling.clock.set_by = set_by
    await culling.server.kernel_manager.cull_kernels()
    assert kernel_id in culling.server.kernel_manager
    culling.clock.passed = timedelta(hours=2)
    await culling.server.kernel_manager.cull_kernels()
    assert kernel_id not in culling.server.kernel_manager


async def test_idle_kernels_are_looked_for_regularly_whatever_the_machines_clock_says(
    tmp_path: Path,
) -> None:
    config = Config({"LambdaKernelManager": {"cull_idle_timeout": 3600, "cull_interval": 1}})
    async with a_web_gateway(tmp_path, config) as gateway:
        for _ in range(2):
            await gateway.start_kernel()
            gateway.clock.passed += timedelta(hours=2)
            await asyncio.to_thread(wait_until, lambda: not gateway.registry.all())


async def test_who_asks_for_the_end_is_answered_before_every_connection_is_closed(
    gateway: WebGateway,
) -> None:
    kernel_id = await gateway.start_kernel()
    async with gateway.channels(kernel_id) as asking, gateway.channels(kernel_id) as other:
        message = request("shutdown_request", {"restart": False}, channel="control")
        await asking.send(json.dumps(message))
        assert shown(await until_closed(asking)) == ["busy", "dead", "shutdown_reply", "idle"]
        assert shown(await until_closed(other)) == ["busy", "dead", "idle"]
        assert other.close_reason == "the kernel was shut down"
    assert (await gateway.rest("GET", f"/api/kernels/{kernel_id}")).status == 404


async def test_a_cell_that_runs_is_answered_when_its_kernel_is_ended(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    async with gateway.channels(kernel_id) as socket:
        await socket.send(json.dumps(execute_request("hold")))
        while json.loads(await socket.recv())["header"]["msg_type"] != "execute_input":
            pass
        assert (await gateway.rest("DELETE", f"/api/kernels/{kernel_id}")).status == 204
        last = shown(await until_closed(socket))
    assert "execute_reply" in last
    assert last[-1] == "dead"


async def test_a_restart_is_starting_then_idle_for_every_client_and_closes_nothing(
    gateway: WebGateway,
) -> None:
    kernel_id = await gateway.start_kernel()
    async with gateway.channels(kernel_id) as one, gateway.channels(kernel_id) as two:
        assert (await gateway.rest("POST", f"/api/kernels/{kernel_id}/restart")).status == 200
        for socket in (one, two):
            heard = [json.loads(await asyncio.wait_for(socket.recv(), 20)) for _ in range(2)]
            assert shown(heard) == ["starting", "idle"]


async def session_of(gateway: WebGateway, path: str, **kernel: str) -> Any:
    """Return a new session for a notebook."""
    body = {"path": path, "name": path, "type": "notebook", "kernel": kernel}
    return (await gateway.rest("POST", "/api/sessions", body=body)).json


async def kernel_ids(gateway: WebGateway) -> set[str]:
    """Return the ids of the user's kernels."""
    return {k["id"] for k in (await gateway.rest("GET", "/api/kernels")).json}


async def test_a_session_is_moved_and_renamed_and_keeps_its_kernel(gateway: WebGateway) -> None:
    session = await session_of(gateway, "a.ipynb")
    changes = {"path": "b/c.ipynb", "name": "c", "type": "console"}
    moved = await gateway.rest("PATCH", f"/api/sessions/{session['id']}", body=changes)
    assert {name: moved.json[name] for name in changes} == changes
    assert moved.json["kernel"]["id"] == session["kernel"]["id"]
    (listed,) = (await gateway.rest("GET", "/api/sessions")).json
    assert listed["path"] == "b/c.ipynb"


async def test_a_session_takes_another_kernel_and_ends_the_one_it_had(gateway: WebGateway) -> None:
    session = await session_of(gateway, "a.ipynb")
    path = f"/api/sessions/{session['id']}"
    named = await gateway.rest("PATCH", path, body={"kernel": {"name": "lambda-small"}})
    assert named.json["kernel"]["name"] == "lambda-small"
    assert await kernel_ids(gateway) == {named.json["kernel"]["id"]}
    other = await gateway.start_kernel()
    chosen = await gateway.rest("PATCH", path, body={"kernel": {"id": other}})
    assert chosen.json["kernel"]["id"] == other
    assert await kernel_ids(gateway) == {other}


async def test_a_kernel_that_another_session_has_stays(gateway: WebGateway) -> None:
    one = await session_of(gateway, "a.ipynb")
    shared = one["kernel"]["id"]
    two = await session_of(gateway, "b.ipynb", id=shared)
    body = {"kernel": {"name": "lambda-python"}}
    changed = await gateway.rest("PATCH", f"/api/sessions/{two['id']}", body=body)
    assert await kernel_ids(gateway) == {shared, changed.json["kernel"]["id"]}
