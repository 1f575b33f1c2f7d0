"""A kernel's sockets: what they take, whom they answer, and what they drop."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zmq
import zmq.asyncio
from jupyter_client.connect import write_connection_file
from jupyter_client.session import Session

from kernel_gateway.errors import ConfigError
from kernel_gateway.kernel_process.sockets import MAX_MESSAGE_BYTES, Connection, KernelSockets

KEY = b"a key"
PARTS = [b'{"msg_id":"m"}', b"{}", b"{}", b'{"name":"stdout"}', b"\x00\xffbuffer"]


class Client:
    """A client of the sockets, with a session of its own."""

    def __init__(self, connection: Connection) -> None:
        self.context = zmq.asyncio.Context()
        self.session = Session(key=KEY)
        self.sockets: dict[str, zmq.asyncio.Socket] = {}
        for name, kind in (("shell", zmq.DEALER), ("iopub", zmq.SUB), ("hb", zmq.REQ)):
            socket = self.sockets[name] = self.context.socket(kind)
            socket.linger = 0
            if connection.curve_secretkey is not None:
                public, secret = zmq.curve_keypair()
                socket.curve_publickey, socket.curve_secretkey = public, secret
                socket.curve_serverkey = zmq.curve_public(connection.curve_secretkey)
            socket.connect(connection.url(name))
        self.sockets["iopub"].subscribe(b"")

    def ask(self, msg_type: str = "execute_request", **content: Any) -> str:
        message = self.session.send(self.sockets["shell"], msg_type, content)
        assert message is not None
        msg_id: str = message["header"]["msg_id"]
        return msg_id

    def close(self) -> None:
        # Sockets that watch others are its own too; one that is open would keep it waiting.
        self.context.destroy(linger=0)


@pytest.fixture(params=["plain", "curve", "ipc"])
def connection(request: pytest.FixtureRequest, tmp_path: Path) -> Connection:
    """A connection file's content, as jupyter_client writes it."""
    more: dict[str, Any] = {}
    if request.param == "curve":
        public, secret = zmq.curve_keypair()
        more = {"curve_publickey": public, "curve_secretkey": secret}
    if request.param == "ipc":
        more = {"transport": "ipc", "ip": str(tmp_path / "socket")}
    path, _facts = write_connection_file(str(tmp_path / "connection.json"), key=KEY, **more)
    return Connection.read(Path(path))


@pytest.fixture
def sockets(connection: Connection) -> Iterator[KernelSockets]:
    """The sockets, bound."""
    made = KernelSockets(connection)
    yield made
    made.close()


@pytest.fixture
def client(connection: Connection, sockets: KernelSockets) -> Iterator[Client]:
    """One client."""
    made = Client(connection)
    yield made
    made.close()


async def test_a_request_comes_as_it_was_sent_and_its_reply_goes_to_who_asked(
    connection: Connection, sockets: KernelSockets, client: Client
) -> None:
    other = Client(connection)
    msg_id = client.ask(code="x = 1")
    request = await sockets.receive("shell")
    assert request.header["msg_id"] == msg_id
    assert json.loads(request.parts[3]) == {"code": "x = 1"}
    await sockets.send("shell", request.client, PARTS)
    _, frames = client.session.feed_identities(await client.sockets["shell"].recv_multipart())
    assert frames[1:] == PARTS
    assert client.session.sign(PARTS[:4]) == frames[0]
    assert not await other.sockets["shell"].poll(50)
    other.close()


async def test_what_is_unsigned_forged_repeated_or_torn_is_dropped(
    sockets: KernelSockets, client: Client
) -> None:
    shell = client.sockets["shell"]
    content = {"code": "x = 1"}
    for key in (b"another key", b""):
        forger = Session(key=key)
        forger.send(shell, "execute_request", content)
    first = client.session.serialize(client.session.msg("execute_request", content))
    signed = client.session.serialize(client.session.msg("execute_request", content))
    changed = [*signed[:-1], b'{"code": "x = 2"}']
    no_header = [b"<IDS|MSG>", client.session.sign([b"[]"] * 4), *[b"[]"] * 4]
    for frames in (changed, no_header, [b""], [b"<IDS|MSG>"], first, first):
        await shell.send_multipart(frames)
    last_id = client.ask(code="last")
    assert json.loads((await sockets.receive("shell")).parts[3]) == content
    assert (await sockets.receive("shell")).header["msg_id"] == last_id


async def test_who_sends_more_than_is_taken_is_disconnected_and_others_are_not(
    sockets: KernelSockets, client: Client, connection: Connection
) -> None:
    stranger = Client(connection)
    shell = stranger.sockets["shell"]
    ends = shell.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    await shell.send_multipart([bytes(MAX_MESSAGE_BYTES + 1)])
    async with asyncio.timeout(20):
        await ends.recv_multipart()
    shell.disable_monitor()
    msg_id = client.ask(code="x = 1")

    assert (await sockets.receive("shell")).header["msg_id"] == msg_id
    stranger.close()


async def test_the_heart_beats_and_iopub_reaches_everybody(
    connection: Connection, sockets: KernelSockets, client: Client
) -> None:
    await client.sockets["hb"].send(b"ping")
    assert await client.sockets["hb"].recv() == b"ping"
    iopub = client.sockets["iopub"]
    while not await iopub.poll(20):
        # A subscription takes its time to arrive.
        await sockets.send("iopub", [b"kernel.id.stream"], PARTS)
    topic, delimiter, _, *parts = await iopub.recv_multipart()
    assert (topic, delimiter, parts) == (b"kernel.id.stream", b"<IDS|MSG>", PARTS)


def test_an_address_that_is_taken_is_named(tmp_path: Path) -> None:
    path, _facts = write_connection_file(str(tmp_path / "connection.json"), key=KEY)
    connection = Connection.read(Path(path))
    with (
        closing(KernelSockets(connection)),
        pytest.raises(ConfigError, match="cannot bind the shell socket to tcp"),
    ):
        KernelSockets(connection)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"ip": "127.0.0.1", "key": 1}'])
def test_what_is_no_connection_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "connection.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"connection\.json: is no connection file"):
        Connection.read(path)
    with pytest.raises(ConfigError, match="No such file"):
        Connection.read(tmp_path / "missing.json")
