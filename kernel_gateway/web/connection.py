"""One client's websocket to one kernel: frames in, messages out, never more than it can take."""

from __future__ import annotations

import asyncio
import logging
import weakref
from typing import Any, ClassVar

from jupyter_server.services.kernels.connection.base import BaseKernelWebsocketConnection
from tornado.websocket import WebSocketClosedError
from traitlets import Int

from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.messaging.message import OutMessage
from kernel_gateway.web.codec import MalformedFrame, decode_frame, encode_frame

logger = logging.getLogger(__name__)

TRY_AGAIN_LATER = 1013
GOING_AWAY = 1001
"""Source: RFC 6455 and IANA, WebSocket Close Code Number Registry."""


class LambdaWebsocketConnection(BaseKernelWebsocketConnection):
    """Hands a client's messages to its kernel and the kernel's messages to the client."""

    max_pending_bytes = Int(
        64 << 20,
        min=1 << 20,
        help="A client that has not read so many bytes is disconnected (close code 1013).",
    ).tag(config=True)

    _open: ClassVar[weakref.WeakSet[LambdaWebsocketConnection]] = weakref.WeakSet()

    def __init__(self, *, parent: LambdaKernel, **traits: Any) -> None:
        """Take the kernel where jupyter_server hands it over, as ``parent``.

        A kernel is no Configurable, so it does not become the trait of that name.
        """
        super().__init__(**traits)
        self.kernel = parent
        self._pending_bytes = 0
        self._attached = False

    @property
    def subprotocol(self) -> str | None:
        """The negotiated protocol; None is the legacy one."""
        found: str | None = self.websocket_handler.selected_subprotocol
        return found

    async def prepare(self) -> None:
        """Do nothing: there is no socket of the kernel's to wait for."""

    async def connect(self) -> None:
        """Attach to the kernel: from now on its messages come here, kept ones first."""
        # Source: gateway.md, pitfall 1: without it every answer waits 40 ms for an ACK.
        self.websocket_handler.set_nodelay(True)
        type(self)._open.add(self)
        self._attached = True
        self.kernel.attach(self.send)

    def disconnect(self) -> None:  # type: ignore[override]
        """Detach from the kernel, which goes on."""
        type(self)._open.discard(self)
        if self._attached:
            self._attached = False
            self.kernel.detach(self.send)

    def handle_incoming_message(self, incoming_msg: str | bytes) -> None:
        """Hand a frame's message to the kernel; a malformed frame is logged and ignored."""
        try:
            frame = decode_frame(incoming_msg, self.subprotocol)
        except MalformedFrame as problem:
            logger.warning(
                "a websocket frame was ignored",
                extra={"reason": str(problem), "size_bytes": len(incoming_msg)},
            )
            return
        self.kernel.receive_raw(frame.data, self.send, buffers=frame.buffers, channel=frame.channel)

    def handle_outgoing_message(self, stream: str, outgoing_msg: list[Any]) -> None:
        """Refuse: nothing here comes from ZMQ."""
        raise NotImplementedError

    def send(self, message: OutMessage) -> None:
        """Send ``message`` to the client; one that does not read is disconnected."""
        handler = self.websocket_handler
        if handler.ws_connection is None:
            return
        frame = encode_frame(message, self.subprotocol)
        size_bytes = len(frame)
        if self._pending_bytes and self._pending_bytes + size_bytes > self.max_pending_bytes:
            logger.warning(
                "a client that does not read was disconnected",
                extra={"size_bytes": self._pending_bytes},
            )
            self._abandon()
            return
        self._pending_bytes += size_bytes
        try:
            written = handler.write_message(frame, binary=isinstance(frame, bytes))
        except WebSocketClosedError:
            self._pending_bytes -= size_bytes
            return
        written.add_done_callback(lambda done: self._was_written(done, size_bytes))

    @classmethod
    def close_all(cls) -> None:
        """Close every connection: the gateway stops."""
        for connection in tuple(cls._open):
            connection.websocket_handler.close(GOING_AWAY, "the gateway stops")

    def _was_written(self, done: asyncio.Future[None], size_bytes: int) -> None:
        self._pending_bytes -= size_bytes
        if not done.cancelled():
            # A closed socket is seen by on_close; asking takes the exception off the books.
            done.exception()

    def _abandon(self) -> None:
        handler = self.websocket_handler
        self.disconnect()
        handler.close(TRY_AGAIN_LATER, "the client does not read what the kernel sends")
        # A close frame waits behind what the client does not read: drop the connection too.
        connection = handler.ws_connection
        if connection is not None and connection.stream is not None:
            connection.stream.close()
