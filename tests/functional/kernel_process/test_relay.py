"""What goes between a kernel's sockets and its gateway, with the gateway's end scripted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio
from jupyter_client.connect import write_connection_file
from jupyter_client.session import Session

from kernel_gateway.client.endpoint import Endpoint
from kernel_gateway.kernel_process.link import GatewayLink
from kernel_gateway.kernel_process.relay import Relay
from kernel_gateway.kernel_process.sockets import Connection, KernelSockets

KEY = b"a key"
WITHIN_S = 10


class ScriptedLink(GatewayLink):
    """A link whose gateway is the test.

    Attributes:
        sent: what came from clients: channel, header, content, buffers.
        incoming: what the gateway says; None = the link is lost.
        is_found_again: whether `open_again` finds the kernel.
        busy: what `is_busy` says.
    """

    def __init__(self) -> None:
        super().__init__(self._nowhere, Endpoint(url="http://127.0.0.1:1/"), "kernel-id")
        self.sent: asyncio.Queue[tuple[str, Any, Any, list[bytes]]] = asyncio.Queue()
        self.incoming: asyncio.Queue[tuple[str, list[bytes]] | None] = asyncio.Queue()
        self.is_found_again = True
        self.busy = False

    async def _nowhere(self) -> Endpoint:
        raise AssertionError

    async def send(self, channel: str, parts: Sequence[bytes]) -> None:
        header, content = json.loads(parts[0]), json.loads(parts[3])
        self.sent.put_nowait((channel, header, content, list(parts[4:])))

    async def receive(self) -> tuple[str, list[bytes]] | None:
        return await self.incoming.get()

    async def open_again(self) -> bool:
        return self.is_found_again

    async def is_busy(self) -> bool:
        return self.busy

    def say(
        self, channel: str, msg_type: str, parent: Any, *buffers: bytes, **content: Any
    ) -> None:
        header = {"msg_id": f"of {msg_type}", "msg_type": msg_type}
        parts = [json.dumps(part).encode() for part in (header, parent, {}, content)]
        self.incoming.put_nowait((channel, [*parts, *buffers]))


class Client:
    """A client of the kernel, with the identity of its session on every socket."""

    def __init__(self, connection: Connection) -> None:
        self.context = zmq.asyncio.Context()
        self.session = Session(key=KEY)
        self.sockets: dict[str, zmq.asyncio.Socket] = {}
        for name in ("shell", "control", "stdin", "iopub"):
            kind = zmq.SUB if name == "iopub" else zmq.DEALER
            socket = self.sockets[name] = self.context.socket(kind)
            socket.linger = 0
            if kind == zmq.SUB:
                socket.subscribe(b"")
            else:
                socket.identity = self.session.bsession
            socket.connect(connection.url(name))

    def send(self, channel: str, msg_type: str, *buffers: bytes, **content: Any) -> None:
        socket = self.sockets[channel]
        self.session.send(socket, msg_type, content, buffers=list(buffers))

    async def receive(self, channel: str) -> Any:
        async with asyncio.timeout(WITHIN_S):
            frames = await self.sockets[channel].recv_multipart()
        _, parts = self.session.feed_identities(frames)
        return self.session.deserialize(parts)

    async def is_silent(self, channel: str) -> bool:
        return not await self.sockets[channel].poll(50)

    def close(self) -> None:
        for socket in self.sockets.values():
            socket.close()
        self.context.term()


class Rig:
    """A relay that runs, its scripted gateway, and two clients."""

    def __init__(self, folder: Path) -> None:
        path, _facts = write_connection_file(str(folder / "connection.json"), key=KEY)
        connection = Connection.read(Path(path))
        self.sockets = KernelSockets(connection)
        self.link = ScriptedLink()
        self.running = asyncio.create_task(Relay(self.sockets, self.link).run())
        self.one, self.two = Client(connection), Client(connection)

    async def ask(self, client: Client, channel: str, msg_type: str, **content: Any) -> Any:
        """Send a request, and return its header as the gateway got it."""
        client.send(channel, msg_type, **content)
        return (await self.link.sent.get())[1]

    async def close(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        for part in (self.one, self.two, self.sockets):
            part.close()


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    """A relay between two clients and a scripted gateway."""
    made = Rig(tmp_path)
    yield made
    await made.close()


async def test_a_question_on_stdin_goes_to_who_asked_for_the_cell_and_its_answer_back(
    rig: Rig,
) -> None:
    cell = await rig.ask(rig.one, "shell", "execute_request", code="input()")
    await rig.ask(rig.two, "shell", "execute_request", code="1")
    rig.link.say("stdin", "input_request", cell, prompt="name?", password=False)
    assert (await rig.one.receive("stdin"))["content"]["prompt"] == "name?"
    assert await rig.two.is_silent("stdin")
    rig.one.send("stdin", "input_reply", value="Ada")
    channel, header, content, _ = await rig.link.sent.get()
    assert (channel, header["msg_type"], content) == ("stdin", "input_reply", {"value": "Ada"})
    rig.link.say("shell", "execute_reply", cell, status="ok")
    assert (await rig.one.receive("shell"))["msg_type"] == "execute_reply"
    assert await rig.two.is_silent("shell")


async def test_buffers_of_widgets_go_both_ways(rig: Rig) -> None:
    rig.one.send("shell", "comm_msg", b"\x00\xff", comm_id="c", data={})
    channel, header, _, buffers = await rig.link.sent.get()
    assert (channel, header["msg_type"], buffers) == ("shell", "comm_msg", [b"\x00\xff"])
    while await rig.one.is_silent("iopub"):
        # A subscription takes its time to arrive.
        rig.link.say("iopub", "comm_msg", header, b"\xfe", comm_id="c")
    shown = await rig.one.receive("iopub")
    assert shown["parent_header"]["msg_id"] == header["msg_id"]
    assert [bytes(buffer) for buffer in shown["buffers"]] == [b"\xfe"]


async def test_the_kernel_ends_after_the_reply_to_a_shutdown(rig: Rig) -> None:
    asked = await rig.ask(rig.one, "control", "shutdown_request", restart=False)
    rig.link.say("iopub", "status", asked, execution_state="dead")
    rig.link.say("control", "shutdown_reply", asked, restart=False)
    await asyncio.wait_for(rig.running, WITHIN_S)
    assert (await rig.one.receive("control"))["msg_type"] == "shutdown_reply"
    # Nothing answers there: whoever has said that the kernel is dead is not asked to end it.
    assert await rig.link.end()


async def test_the_kernel_ends_when_others_shut_it_down(rig: Rig) -> None:
    rig.link.say("iopub", "status", {}, execution_state="dead")
    await asyncio.wait_for(rig.running, WITHIN_S)
    assert await rig.link.end()


async def test_a_restart_that_a_client_asks_for_ends_the_gateways_kernel(rig: Rig) -> None:
    asked = await rig.ask(rig.one, "control", "shutdown_request", restart=True)
    rig.link.say("iopub", "status", asked, execution_state="starting")
    rig.link.say("control", "shutdown_reply", asked, restart=True)
    await asyncio.wait_for(rig.running, WITHIN_S)
    # It lives on there, and nothing answers.
    assert not await rig.link.end()


async def test_the_kernel_ends_when_the_next_gateway_does_not_know_it(rig: Rig) -> None:
    rig.link.is_found_again = False
    rig.link.incoming.put_nowait(None)
    await asyncio.wait_for(rig.running, WITHIN_S)


@pytest.mark.parametrize("busy", [False, True])
async def test_of_a_lost_gateway_only_what_nobody_will_answer_is_given_up(
    rig: Rig, busy: bool
) -> None:
    rig.link.busy = busy
    answered = await rig.ask(rig.one, "shell", "execute_request", code="kept")
    lost = await rig.ask(rig.one, "shell", "execute_request", code="lost")
    rig.link.incoming.put_nowait(None)
    _, probe, _, _ = await rig.link.sent.get()
    # What was kept for us comes before the answer to what we asked after it.
    rig.link.say("shell", "execute_reply", answered, status="ok")
    rig.link.say("shell", "kernel_info_reply", probe)
    assert (await rig.one.receive("shell"))["content"]["status"] == "ok"
    if busy:
        assert await rig.one.is_silent("shell")
        return
    reply = await rig.one.receive("shell")
    assert reply["parent_header"]["msg_id"] == lost["msg_id"]
    assert reply["content"]["ename"] == "GatewayLost"
