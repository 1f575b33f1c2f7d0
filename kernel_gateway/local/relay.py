"""Carries bytes between a listening TCP socket and SeaweedFS's unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from pathlib import Path

logger = logging.getLogger(__name__)

CHUNK_BYTES = 256 * 1024
BACKLOG = 128
CONTAINER_CONNECTIONS = 64
"""On the listener of one container: what a cell opens beyond is closed at once."""


def loopback_listener() -> socket.socket:
    """Return a listening socket on 127.0.0.1 whose port the system chose."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=BACKLOG)
    listener.setblocking(False)
    return listener


class UnixAddress:
    """The address of a unix socket whose path may be longer than the 107 bytes the kernel takes.

    The folder is held open; the address goes through its descriptor.
    """

    def __init__(self, path: Path) -> None:
        self._folder_fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self.value = f"/proc/self/fd/{self._folder_fd}/{path.name}"

    def close(self) -> None:
        """Let go of the folder."""
        os.close(self._folder_fd)


class Relay:
    """Accepts on one listening socket and connects each connection to a unix socket."""

    def __init__(self, server: asyncio.Server, links: set[_Link]) -> None:
        self._server = server
        self._links = links

    @classmethod
    async def open(
        cls, listener: socket.socket, target: UnixAddress, max_connections: int | None = None
    ) -> Relay:
        """Return a relay that accepts on ``listener``, which it owns from now on.

        Args:
            listener: where clients connect.
            target: where their bytes go.
            max_connections: at once; None = any number.
        """
        links: set[_Link] = set()
        loop = asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: _Accepted(target, links, max_connections), sock=listener
        )
        return cls(server, links)

    async def close(self) -> None:
        """Stop accepting and cut what is open."""
        self._server.close()
        for link in list(self._links):
            link.abort()


class _Link(asyncio.BufferedProtocol):
    """One end of a connection: what it receives is written to ``peer``."""

    def __init__(self, links: set[_Link]) -> None:
        self._links = links
        self._buffer = memoryview(bytearray(CHUNK_BYTES))
        self._early: list[bytes] = []
        self._ended = False
        self.peer: _Link | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101  (TCP and unix streams are)
        self.transport = transport
        transport.set_write_buffer_limits(high=2 * CHUNK_BYTES)
        self._links.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        chunk = bytes(self._buffer[:nbytes])
        if self.peer is None or self.peer.transport is None:
            self._early.append(chunk)
        else:
            self.peer.transport.write(chunk)

    def join(self, peer: _Link) -> None:
        """Connect to ``peer`` and hand over what came before it was there."""
        self.peer = peer
        peer.peer = self
        if peer.transport is not None:
            for chunk in self._early:
                peer.transport.write(chunk)
        self._early.clear()
        if self._ended:
            peer.half_close()

    def half_close(self) -> None:
        """Tell the other program that no more bytes will come."""
        if self.transport is not None and self.transport.can_write_eof():
            with contextlib.suppress(OSError, RuntimeError):
                self.transport.write_eof()

    def eof_received(self) -> bool:
        self._ended = True
        if self.peer is None:
            return True
        self.peer.half_close()
        return not self.peer._ended  # both directions have ended: the transport closes itself

    def pause_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.resume_reading()

    def connection_lost(self, error: Exception | None) -> None:
        self._links.discard(self)
        peer, self.peer, self.transport = self.peer, None, None
        if peer is not None and peer.transport is not None:
            peer.transport.close()

    def abort(self) -> None:
        """Drop the connection at once."""
        if self.transport is not None:
            self.transport.abort()


class _Accepted(_Link):
    """The client's end; it dials the unix socket when it is there."""

    def __init__(self, target: UnixAddress, links: set[_Link], max_connections: int | None) -> None:
        super().__init__(links)
        self._target = target
        self._max_connections = max_connections
        self._dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        accepted = sum(isinstance(link, _Accepted) for link in self._links)
        if self._max_connections is not None and accepted > self._max_connections:
            self.abort()
            return
        sock = transport.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        assert self.transport is not None  # noqa: S101  (set by the line above)
        self.transport.pause_reading()
        self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, far = await loop.create_unix_connection(
                lambda: _Link(self._links), self._target.value
            )
        except OSError:
            # A client sees a lost connection, as from a server that is being restarted.
            self.abort()
            return
        if self.transport is None:
            far.abort()
            return
        self.join(far)
        self.transport.resume_reading()
