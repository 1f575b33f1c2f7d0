"""A client that sends what it should not, over a real websocket."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from kernel_gateway.messaging.requests import FIELDS
from tests.functional.kernels.test_hostile_messages import OTHER_TYPES, contents
from tests.functional.web.server import WebGateway, execute_request, request

DATES: list[Any] = [
    *("1970-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "0000-00-00", "yesterday", ""),
    *(None, 0, -1, 1e308, 2**63, True, [], {"year": 2026}, "2026-01-01T00:00:00+99:99"),
]


async def received(socket: ClientConnection) -> dict[str, Any]:
    message: dict[str, Any] = json.loads(await asyncio.wait_for(socket.recv(), 60))
    return message


async def runs(socket: ClientConnection, code: str) -> list[dict[str, Any]]:
    """Run a cell; return what came of it, and of nothing else."""
    message = execute_request(code)
    await socket.send(json.dumps(message))
    found: list[dict[str, Any]] = []
    while not found or found[-1]["content"].get("execution_state") != "idle":
        came = await received(socket)
        if came["parent_header"].get("msg_id") == message["header"]["msg_id"]:
            found.append(came)
    return found


@pytest.mark.parametrize("channel", ["shell", "control", "stdin"])
@pytest.mark.parametrize("msg_type", [*FIELDS, *OTHER_TYPES])
async def test_whatever_a_client_sends_the_next_cell_runs(
    gateway: WebGateway, msg_type: str, channel: str
) -> None:
    kernel_id = await gateway.start_kernel()
    async with gateway.channels(kernel_id, max_queue=None) as socket:
        asked = set()
        for content in contents(msg_type):
            message = request(msg_type, content, channel=channel)
            asked.add(message["header"]["msg_id"])
            await socket.send(json.dumps(message))
        replies: Counter[str] = Counter()
        missing = set(asked) if msg_type.endswith("_request") else set()
        while missing:
            came = await received(socket)
            if came["msg_type"].endswith("_reply"):
                msg_id = came["parent_header"]["msg_id"]
                replies[msg_id] += 1
                missing.discard(msg_id)
        types = [m["msg_type"] for m in await runs(socket, "still there")]
    assert types == ["status", "execute_input", "stream", "execute_reply", "status"]
    assert set(replies.values()) <= {1}


async def test_dates_of_a_client_mean_nothing(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    async with gateway.channels(kernel_id) as socket:
        for date in DATES:
            message = execute_request("x")
            message["header"]["date"] = date
            await socket.send(json.dumps(message))
            while (await received(socket))["msg_type"] != "execute_reply":
                pass
        shown = (await gateway.rest("GET", f"/api/kernels/{kernel_id}")).json
        assert shown["execution_state"] == "idle"
        assert shown["last_activity"] > "2026"
    cells = (await gateway.rest("GET", f"/api/kernels/{kernel_id}/cells?last=100")).json
    assert len(cells) == len(DATES)


async def sends_for_ever(socket: ClientConnection) -> None:
    while True:
        await socket.send(json.dumps(execute_request("x")))
        await received(socket)


@pytest.mark.parametrize("how", ["rest", "shutdown_request"])
async def test_a_kernel_that_is_no_more_takes_nothing(gateway: WebGateway, how: str) -> None:
    kernel_id = await gateway.start_kernel()
    async with gateway.channels(kernel_id) as socket:
        if how == "rest":
            await gateway.rest("DELETE", f"/api/kernels/{kernel_id}")
        else:
            end = request("shutdown_request", {"restart": False}, channel="control")
            await socket.send(json.dumps(end))
        with pytest.raises(ConnectionClosed) as closed:
            await sends_for_ever(socket)
        assert closed.value.rcvd is not None
        assert "shut down" in closed.value.rcvd.reason
    with pytest.raises(InvalidStatus):
        async with gateway.channels(kernel_id):
            pass
    for path in ("interrupt", "restart", "execute"):
        body = {"code": "x"} if path == "execute" else None
        answer = await gateway.rest("POST", f"/api/kernels/{kernel_id}/{path}", body=body)
        assert answer.status == 404


async def test_answers_and_interrupts_that_nobody_waits_for_change_nothing(
    gateway: WebGateway,
) -> None:
    kernel_id = await gateway.start_kernel()
    async with gateway.channels(kernel_id) as socket:
        for _ in range(100):
            answer = request("input_reply", {"value": "secret"}, channel="stdin")
            await socket.send(json.dumps(answer))
            interrupt = request("interrupt_request", {}, channel="control")
            await socket.send(json.dumps(interrupt))
        for kind in ("comm_open", "comm_msg", "comm_close"):
            content = {"comm_id": "none", "target_name": "no.such.target", "data": {}}
            await socket.send(json.dumps(request(kind, content)))
        assert [m["msg_type"] for m in await runs(socket, "x")] == [
            *("status", "execute_input", "stream", "execute_reply", "status")
        ]
