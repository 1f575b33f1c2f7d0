"""Clients whose connections break all the time, and those that ask for what is not there."""

from __future__ import annotations

import asyncio
import itertools
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import psutil
from websockets.asyncio.client import ClientConnection, connect

from tests.functional.conftest import wait_until
from tests.integration.driver import Gateway, NotebookClient

KERNELS = 100
RECONNECTS = 600
AT_ONCE = 20
GROWTH_BYTES = 12_000_000
"""Far less than 1,200 connections are, and more than a heap moves by itself."""

COUNTING = """
import itertools, time
try:
    for number in itertools.count():
        print(number, flush=True)
        time.sleep(0.02)
except KeyboardInterrupt:
    print("end", number)
"""


@asynccontextmanager
async def connected(
    gateway: Gateway, kernel_id: str, session_id: str
) -> AsyncIterator[ClientConnection]:
    path = f"api/kernels/{kernel_id}/channels?session_id={session_id}"
    async with connect(
        f"{gateway.url.replace('http', 'ws', 1)}/{path}",
        additional_headers={"Authorization": f"token {gateway.token}"},
        compression=None,
        max_size=None,
        max_queue=None,
    ) as socket:
        yield socket


class Reconnecting:
    """A client that asks for one cell, and whose connection breaks again and again.

    Attributes:
        said: the messages of the cell, in the order in which they came.
        reconnects_count: how often it was connected.
    """

    def __init__(self, gateway: Gateway, kernel_id: str) -> None:
        self._gateway = gateway
        self._kernel_id = kernel_id
        self._msg_id = ""
        self.said: list[dict[str, Any]] = []
        self.reconnects_count = 0

    async def ask(self, code: str) -> None:
        """Send the cell, and go away when it runs."""
        self._msg_id = uuid.uuid4().hex
        header = {"msg_id": self._msg_id, "msg_type": "execute_request", "session": "flapping"}
        request = {"header": header, "content": {"code": code}, "channel": "shell"}
        async with connected(self._gateway, self._kernel_id, "flapping") as socket:
            await socket.send(json.dumps(request))
            await self._visit(socket)

    async def come_and_go(self, is_over: asyncio.Event) -> None:
        """Connect again and again, each time until something of the cell has come."""
        while not is_over.is_set():
            async with connected(self._gateway, self._kernel_id, "flapping") as socket:
                await self._visit(socket)
            self.reconnects_count += 1

    async def stay(self) -> None:
        """Connect until the cell has ended."""
        async with connected(self._gateway, self._kernel_id, "flapping") as socket:
            while not (self.of("execute_reply") and self._is_idle()):
                self._take(await asyncio.wait_for(socket.recv(), 60))

    def of(self, msg_type: str) -> list[dict[str, Any]]:
        return [m["content"] for m in self.said if m["header"]["msg_type"] == msg_type]

    @property
    def stdout(self) -> str:
        return "".join(content["text"] for content in self.of("stream"))

    def _is_idle(self) -> bool:
        return bool(self.of("status")[-1]["execution_state"] == "idle")

    async def _visit(self, socket: ClientConnection) -> None:
        before = len(self.said)
        while len(self.said) == before:
            self._take(await asyncio.wait_for(socket.recv(), 60))
        await socket.close()
        # What was on its way when it said that it goes.
        async for frame in socket:
            self._take(frame)

    def _take(self, frame: str | bytes) -> None:
        message = json.loads(frame)
        if message["parent_header"].get("msg_id") == self._msg_id:
            self.said.append(message)


async def storm(gateway: Gateway, kernel_ids: list[str]) -> None:
    """Have a client of each kernel come and go, many of them at once."""
    at_once = asyncio.Semaphore(AT_ONCE)

    async def visit(kernel_id: str) -> None:
        async with at_once, connected(gateway, kernel_id, f"of-{kernel_id}"):
            pass

    some = itertools.islice(itertools.cycle(kernel_ids), RECONNECTS)
    await asyncio.gather(*map(visit, some))


async def test_a_storm_of_reconnects_loses_no_message_of_a_running_cell_and_leaves_nothing(
    gateway: Gateway,
) -> None:
    made = [gateway.rest("POST", "/api/kernels", json={}).json()["id"] for _ in range(KERNELS)]
    busy_id = made.pop()
    client = Reconnecting(gateway, busy_id)
    await client.ask(COUNTING)
    is_over = asyncio.Event()
    going = asyncio.create_task(client.come_and_go(is_over))
    held = psutil.Process(gateway.process.pid)
    await storm(gateway, made)
    memory_bytes, descriptors_count = held.memory_info().rss, held.num_fds()
    for _ in range(2):
        await storm(gateway, made)
    is_over.set()
    await going
    gateway.rest("POST", f"/api/kernels/{busy_id}/interrupt")
    await client.stay()

    lines = client.stdout.split("\n")
    assert client.reconnects_count > 10
    assert lines[:-2] == [str(number) for number in range(len(lines) - 2)]
    assert lines[-2].startswith("end ")
    assert client.of("execute_reply")[0]["status"] == "ok"
    ids = [message["header"]["msg_id"] for message in client.said]
    assert len(ids) == len(set(ids))
    for kernel_id in (*made, busy_id):
        shown = gateway.rest("GET", f"/api/kernels/{kernel_id}").json()
        assert (shown["connections"], shown["execution_state"]) == (0, "idle")
        gateway.rest("DELETE", f"/api/kernels/{kernel_id}")
    wait_until(lambda: held.num_fds() <= descriptors_count + AT_ONCE)
    assert held.memory_info().rss - memory_bytes < GROWTH_BYTES


def test_a_comm_of_a_target_that_nobody_registered_is_closed(kernel: NotebookClient) -> None:
    kernel.execute("1")
    content = {"comm_id": "c1", "target_name": "no.such.target", "data": {}}
    asked = kernel.send("comm_open", content)
    closed = None
    while closed is None:
        message = kernel.receive(60)
        is_its = message["parent_header"].get("msg_id") == asked
        if is_its and message["header"]["msg_type"] == "comm_close":
            closed = message["content"]["comm_id"]
    assert closed == "c1"
    assert kernel.execute("1 + 1").result == "2"
