"""The five sockets of a kernel, as its connection file wants them: signed messages in and out.

Source: Jupyter messaging specification, "The Wire Protocol" and "Connection files".
"""

from __future__ import annotations

import contextlib
import json
import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import zmq
import zmq.asyncio
from jupyter_client.session import DELIM, Session

from kernel_gateway.errors import ConfigError

logger = logging.getLogger(__name__)

ASKED_ON = ("shell", "control", "stdin")
KINDS = {
    "shell": zmq.ROUTER,
    "control": zmq.ROUTER,
    "stdin": zmq.ROUTER,
    "iopub": zmq.PUB,
}
HEARTBEAT = "hb"
LINGER_MS = 1000
SIGNED_PARTS_COUNT = 4
MAX_MESSAGE_BYTES = 64 << 20
"""As much as the gateway takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """What a connection file says.

    Attributes:
        transport: ``tcp`` or ``ipc``.
        ip: to bind to; of ``ipc`` the beginning of a path.
        ports: by channel.
        key: of the signatures; empty = messages are not signed.
        signature_scheme: such as ``hmac-sha256``.
        curve_secretkey: for an encrypted connection, None for a plain one.
    """

    transport: str
    ip: str
    ports: dict[str, int]
    key: bytes = field(repr=False)
    signature_scheme: str
    curve_secretkey: bytes | None = field(default=None, repr=False)

    @classmethod
    def read(cls, path: Path) -> Connection:
        """Return what the file says.

        Raises:
            ConfigError: it cannot be read, or is no connection file.
        """
        try:
            facts = json.loads(path.read_text())
            secret = facts.get("curve_secretkey")
            return cls(
                transport=facts.get("transport", "tcp"),
                ip=facts["ip"],
                ports={name: int(facts[f"{name}_port"]) for name in (*KINDS, HEARTBEAT)},
                key=facts["key"].encode(),
                signature_scheme=facts.get("signature_scheme", "hmac-sha256"),
                curve_secretkey=secret.encode() if secret else None,
            )
        except OSError as problem:
            raise ConfigError(f"-f {path}: {problem.strerror}") from problem
        except (ValueError, KeyError, TypeError, AttributeError) as problem:
            raise ConfigError(f"-f {path}: is no connection file: {problem!r}") from problem

    def url(self, channel: str) -> str:
        """Return where a channel's socket is bound."""
        between = ":" if self.transport == "tcp" else "-"
        return f"{self.transport}://{self.ip}{between}{self.ports[channel]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A message from a client, whose signature is right.

    Attributes:
        client: ZMQ identities of who sent it.
        header: decoded.
        parts: header, parent header, metadata, content as JSON, then buffers: as they came.
    """

    client: list[bytes]
    header: dict[str, Any]
    parts: list[bytes]


class KernelSockets:
    """A kernel's sockets, bound."""

    def __init__(self, connection: Connection) -> None:
        """Bind them.

        Raises:
            ConfigError: an address is taken or is none.
        """
        self._session = Session(key=connection.key, signature_scheme=connection.signature_scheme)
        self._context = zmq.asyncio.Context()
        self._heart = zmq.Context()
        self._sockets: dict[str, zmq.asyncio.Socket] = {}
        try:
            for name, kind in KINDS.items():
                self._sockets[name] = self._context.socket(kind)
                _bind(self._sockets[name], connection, name)
            heart = self._heart.socket(zmq.ROUTER)
            _bind(heart, connection, HEARTBEAT)
        except ConfigError:
            self.close()
            raise
        # A thread that holds no lock of Python's: what is busy is not dead.
        threading.Thread(target=_beat, args=(heart,), daemon=True).start()

    async def receive(self, channel: str) -> Request:
        """Return the next message; what is not signed, repeated or torn is logged and dropped."""
        while True:
            frames = await self._sockets[channel].recv_multipart()
            try:
                client, parts = self._session.feed_identities(frames)
                message = self._session.deserialize(parts)
                header = dict(message["header"])
                if isinstance(header["msg_id"], str) and isinstance(header["msg_type"], str):
                    return Request(
                        client=client, header=header, parts=cast("list[bytes]", parts[1:])
                    )
            except Exception as problem:  # noqa: BLE001  (what a stranger may send is any bytes)
                logger.warning("a message was dropped", extra={"reason": repr(problem)[:200]})

    async def send(self, channel: str, client: list[bytes], parts: Sequence[bytes]) -> None:
        """Send a message to one client, or with its topic in place of the client to iopub."""
        signature = self._session.sign(list(parts[:SIGNED_PARTS_COUNT]))
        await self._sockets[channel].send_multipart([*client, DELIM, signature, *parts])

    def close(self) -> None:
        """Close them; what was sent last still goes out."""
        for socket in self._sockets.values():
            socket.close()
        self._context.term()
        # Ends the heartbeat, whose thread closes its own socket.
        self._heart.term()


def _bind(socket: zmq.Socket[Any], connection: Connection, name: str) -> None:
    socket.linger = LINGER_MS
    # What is larger is not read: its sender, who need not know the key, is disconnected.
    socket.maxmsgsize = MAX_MESSAGE_BYTES
    # What a cell may print is bounded by the gateway; nothing of it is dropped here.
    socket.sndhwm = 0
    if name != "iopub":
        # A client that connects again with its old identity gets its replies.
        socket.router_handover = 1
    if connection.curve_secretkey is not None:
        socket.curve_server = True
        socket.curve_secretkey = connection.curve_secretkey
    try:
        socket.bind(connection.url(name))
    except zmq.ZMQError as problem:
        socket.close()
        where = connection.url(name)
        raise ConfigError(f"cannot bind the {name} socket to {where}: {problem}") from None


def _beat(heart: zmq.Socket[bytes]) -> None:
    """Send back whatever comes, until the context ends."""
    with contextlib.suppress(zmq.ContextTerminated):
        zmq.proxy(heart, heart)
    heart.close(linger=0)
