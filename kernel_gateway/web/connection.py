"""One client's websocket to one kernel: frames in, messages out, never more than it can take."""

from __future__ import annotations

import asyncio
import functools
import logging
import weakref
from typing import Any, ClassVar

from jupyter_server.services.kernels.connection.base import BaseKernelWebsocketConnection
from tornado.websocket import WebSocketClosedError
from traitlets import Int

from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.kernels.missed import Replay
from kernel_gateway.messaging.backlog import Backlog, rough_bytes
from kernel_gateway.messaging.caller import Caller
from kernel_gateway.messaging.message import OutMessage, new_header
from kernel_gateway.web.codec import V1_PROTOCOL, MalformedFrame, decode_frame, encode_frame

logger = logging.getLogger(__name__)

NORMAL = 1000
TRY_AGAIN_LATER = 1013
GOING_AWAY = 1001
"""Source: RFC 6455 and IANA, WebSocket Close Code Number Registry."""

REASON_LENGTH = 123
"""Bytes of a close frame's reason. Source: RFC 6455, 5.5."""

WRITTEN_AHEAD_BYTES = 256 * 1024
"""What is handed to the socket before the client has read; the rest waits as messages."""


NO_BUFFERS = (
    "[gateway] binary data cannot pass this connection (the legacy websocket protocol, which "
    "JupyterLab speaks with --gateway-url) and was left out: widgets that need it, such as images, "
    "stay empty. Clients that connect to the gateway itself get it.\n"
)


class LambdaWebsocketConnection(BaseKernelWebsocketConnection):
    """Hands a client's messages to its kernel and the kernel's messages to the client."""

    max_pending_bytes = Int(
        64 << 20,
        min=1 << 20,
        help="A client that has not read so many bytes is disconnected (close code 1013).",
    ).tag(config=True)

    _open: ClassVar[weakref.WeakSet[LambdaWebsocketConnection]] = weakref.WeakSet()

    def __init__(
        self,
        *,
        parent: LambdaKernel,
        session_id: str | None = None,
        caller: Caller | None = None,
        replay: Replay | None = None,
        **traits: Any,
    ) -> None:
        """Take the kernel where jupyter_server hands it over, as ``parent``.

        A kernel is no Configurable, so it does not become the trait of that name.

        Args:
            parent: the kernel.
            session_id: of the client, None where it did not say.
            caller: who it is.
            replay: what of the past it asks for.
            **traits: of jupyter_server's class.
        """
        super().__init__(**traits)
        self.kernel = parent
        self._session_id = session_id
        self._caller = caller
        self._replay = replay
        self._pending_bytes = 0
        self._backlog = Backlog()
        self._attached = False
        self._reads_binary = False
        self._told_of_buffers = False
        self._drained: asyncio.Event | None = None
        self._has_ended = False

    @property
    def subprotocol(self) -> str | None:
        """The negotiated protocol; None is the legacy one."""
        found: str | None = self.websocket_handler.selected_subprotocol
        return found

    async def prepare(self) -> None:
        """Do nothing: there is no socket of the kernel's to wait for."""

    async def connect(self) -> None:
        """Attach to the kernel: from now on its messages come here, after what was missed."""
        # Source: gateway.md, pitfall 1: without it every answer waits 40 ms for an ACK.
        self.websocket_handler.set_nodelay(True)
        type(self)._open.add(self)
        self._attached = True
        self.kernel.attach(self.send, self._session_id, replay=self._replay, ready=self._ready)

    def disconnect(self) -> None:  # type: ignore[override]
        """Detach from the kernel, which goes on."""
        type(self)._open.discard(self)
        self._backlog = Backlog()
        if self._attached:
            self._attached = False
            if self._drained is not None:
                self._drained.set()
            self.kernel.detach(self.send)

    def handle_incoming_message(self, incoming_msg: str | bytes) -> None:
        """Hand a frame's message to the kernel; a malformed frame is answered with BadMessage."""
        try:
            frame = decode_frame(incoming_msg, self.subprotocol)
        except MalformedFrame as problem:
            self.kernel.refuse(str(problem), self.send)
            return
        if isinstance(incoming_msg, bytes) and self.subprotocol != V1_PROTOCOL:
            # Who speaks the legacy protocol's binary form reads it too; JupyterLab's server, as
            # the client that --gateway-url makes it, sends text only.
            self._reads_binary = True
        self.kernel.receive_raw(
            frame.data,
            self.send,
            buffers=frame.buffers,
            channel=frame.channel,
            caller=self._caller,
        )

    def handle_outgoing_message(self, stream: str, outgoing_msg: list[Any]) -> None:
        """Refuse: nothing here comes from ZMQ."""
        raise NotImplementedError

    def send(self, message: OutMessage) -> None:
        """Send ``message`` to the client; one that does not read is disconnected."""
        if self.websocket_handler.ws_connection is None:
            return
        waiting_bytes = self._pending_bytes + self._backlog.size_bytes
        if waiting_bytes and waiting_bytes + rough_bytes(message) > self.max_pending_bytes:
            logger.warning(
                "a client that does not read was disconnected",
                extra={"size_bytes": waiting_bytes},
            )
            self._abandon()
            return
        self._backlog.add(message)
        if message.buffers and not self._takes_buffers and not self._told_of_buffers:
            self._told_of_buffers = True
            self._backlog.add(_without_buffers(message))
        self._write()
        if _is_end(message):
            # After the reply to whoever asked for the end, which is sent before this runs.
            asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        self._has_ended = True
        self._write()

    @property
    def _takes_buffers(self) -> bool:
        return self._reads_binary or self.subprotocol == V1_PROTOCOL

    @classmethod
    def close_all(cls) -> None:
        """Close every connection: the gateway stops."""
        for connection in tuple(cls._open):
            connection.websocket_handler.close(GOING_AWAY, "the gateway stops")

    async def _ready(self) -> None:
        """Wait until the socket has taken what was sent, or is closed."""
        while self._backlog and self._attached:
            self._drained = self._drained or asyncio.Event()
            await self._drained.wait()

    @classmethod
    def close_of(cls, kernel: LambdaKernel) -> None:
        """Close the connections to a kernel that another gateway has taken over."""
        for connection in tuple(cls._open):
            if connection.kernel is kernel:
                handler = connection.websocket_handler
                handler.close(TRY_AGAIN_LATER, "another gateway serves the kernel: connect again")

    def _write(self) -> None:
        handler = self.websocket_handler
        while self._backlog and self._pending_bytes < WRITTEN_AHEAD_BYTES:
            frame = encode_frame(
                self._backlog.take(), self.subprotocol, reads_binary=self._reads_binary
            )
            try:
                written = handler.write_message(frame, binary=isinstance(frame, bytes))
            except WebSocketClosedError:
                return
            size_bytes = len(frame)
            self._pending_bytes += size_bytes
            written.add_done_callback(functools.partial(self._was_written, size_bytes))
        if self._has_ended and not self._backlog:
            handler.close(NORMAL, f"the kernel was {self.kernel.reason}"[:REASON_LENGTH])
        if self._drained is not None and not self._backlog:
            self._drained.set()
            self._drained = None

    def _was_written(self, size_bytes: int, done: asyncio.Future[None]) -> None:
        self._pending_bytes -= size_bytes
        if not done.cancelled():
            # A closed socket is seen by on_close; asking takes the exception off the books.
            done.exception()
        self._write()

    def _abandon(self) -> None:
        handler = self.websocket_handler
        self.disconnect()
        handler.close(TRY_AGAIN_LATER, "the client does not read what the kernel sends")
        # A close frame waits behind what the client does not read: drop the connection too.
        connection = handler.ws_connection
        if connection is not None and connection.stream is not None:
            connection.stream.close()


def _without_buffers(message: OutMessage) -> OutMessage:
    """Return what tells a client, once, that buffers of ``message`` were left out."""
    return OutMessage(
        channel="iopub",
        header=new_header("stream", session=message.header["session"]),
        parent_header=message.parent_header,
        content={"name": "stderr", "text": NO_BUFFERS},
    )


def _is_end(message: OutMessage) -> bool:
    """Return whether a message says that the kernel is no more."""
    is_status = message.header.get("msg_type") == "status"
    return is_status and message.content.get("execution_state") == "dead"
