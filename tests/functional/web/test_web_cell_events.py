"""Each finished cell is an event on the server's bus: for its owner, and without what it said."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from traitlets.config import Config
from websockets.asyncio.client import connect

from kernel_gateway.web.cell_events import CELL_EXECUTED
from tests.functional.web.server import WebGateway, a_web_gateway


def listening(gateway: WebGateway, token: str) -> connect:
    url = f"{gateway.url.replace('http', 'ws', 1)}/api/events/subscribe"
    return connect(url, additional_headers={"Authorization": f"token {token}"})


async def execute(gateway: WebGateway, kernel_id: str, code: str, token: str = "u1") -> None:
    path = f"/api/kernels/{kernel_id}/execute"
    answer = await gateway.rest("POST", path, token=token, body={"code": code})
    assert answer.status == 200


async def next_cell(socket: Any) -> Any:
    async with asyncio.timeout(20):
        while True:
            event = json.loads(await socket.recv())
            if event["schema_id"] == CELL_EXECUTED:
                return event


async def test_a_subscriber_is_told_of_a_cell_and_nothing_that_it_said(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel(token="u1-a1")
    async with listening(gateway, "u1-a1") as socket:
        await execute(gateway, kernel_id, "my = 'hidden'", token="u1-a1")
        event = await next_cell(socket)

    assert "hidden" not in json.dumps(event)
    assert event.pop("finished").endswith("Z")
    assert len(event.pop("request_id")) > 8
    assert set(event.pop("timings_ms"))
    assert event == {
        "schema_id": CELL_EXECUTED, "kernel_id": kernel_id, "user": "u1", "agent": "a1",
        "workspace": "default", "execution_count": 1, "entry": 3, "status": "ok", "failure": None,
        "committed": True, "files": {"created": 0, "modified": 0, "deleted": 0},
    }  # fmt: skip


async def test_nobody_is_told_of_others_cells(gateway: WebGateway) -> None:
    theirs = await gateway.start_kernel(token="u1-a1")
    own = {token: await gateway.start_kernel(token=token) for token in ("u10", "u1-a2")}
    async with (
        listening(gateway, "u10") as u10,
        listening(gateway, "u1-a2") as a2,
        listening(gateway, "root") as root,
    ):
        await execute(gateway, theirs, "1", token="u1-a1")
        assert (await next_cell(root))["kernel_id"] == theirs
        for token, socket in (("u10", u10), ("u1-a2", a2)):
            await execute(gateway, own[token], "1", token=token)
            # Theirs ended before: it would have come first.
            assert (await next_cell(socket))["kernel_id"] == own[token]


async def test_a_handler_that_is_configured_gets_every_cell(tmp_path: Path) -> None:
    lines: list[Any] = []

    class Sink(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(json.loads(self.format(record)))

    config = Config({"EventLogger": {"handlers": [Sink()]}})
    async with a_web_gateway(tmp_path, config) as gateway:
        kernel_id = await gateway.start_kernel()
        async with listening(gateway, "u1") as socket:
            await execute(gateway, kernel_id, "1")
            await next_cell(socket)

    (line,) = [line for line in lines if line["__schema__"] == CELL_EXECUTED]
    assert (line["kernel_id"], line["__schema_version__"]) == (kernel_id, "1")


@pytest.mark.parametrize("token", ["no", ""])
async def test_without_a_token_there_are_no_events(gateway: WebGateway, token: str) -> None:
    from websockets.exceptions import InvalidStatus

    with pytest.raises(InvalidStatus):
        async with listening(gateway, token):
            pass
