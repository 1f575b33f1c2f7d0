"""A client's websocket to a kernel that another gateway serves: frames in, frames out."""

from __future__ import annotations

import asyncio
import logging
import weakref
from typing import Any, ClassVar

from tornado.httpclient import HTTPClientError, HTTPRequest
from tornado.websocket import (
    WebSocketClientConnection,
    WebSocketClosedError,
    WebSocketHandler,
    websocket_connect,
)

from kernel_gateway.errors import HeldElsewhere
from kernel_gateway.web.connection import GOING_AWAY, TRY_AGAIN_LATER
from kernel_gateway.web.forwarding import (
    CONNECT_TIMEOUT_S,
    Forwarder,
    headers_to_send,
    url_there,
    was_forwarded,
)

logger = logging.getLogger(__name__)

HANDSHAKE_TIMEOUT_S = 10.0
NOT_SENT_CODES = frozenset({1005, 1006, 1015})
"""What stands for a connection that was lost. Source: RFC 6455, 7.4.1."""
REASON_BYTES = 120


class ForwardedConnection:
    """Hands frames on, each way as fast as the other side takes them.

    Attributes:
        kernel_ws_protocol: None: what the client prefers, as the other gateway would choose.
    """

    kernel_ws_protocol = None
    _open: ClassVar[weakref.WeakSet[ForwardedConnection]] = weakref.WeakSet()

    def __init__(
        self, handler: WebSocketHandler, elsewhere: HeldElsewhere, forwarder: Forwarder
    ) -> None:
        self._handler = handler
        self._elsewhere = elsewhere
        self._forwarder = forwarder
        self._there: WebSocketClientConnection | None = None
        self._task: asyncio.Task[None] | None = None

    async def connect(self) -> None:
        """Connect to the other gateway; where that fails, the client is asked to come again."""
        handler, url = self._handler, self._elsewhere.url
        if url is None or was_forwarded(handler.request):
            self._close(TRY_AGAIN_LATER, str(self._elsewhere))
            return
        handler.set_nodelay(True)
        protocol = handler.selected_subprotocol
        request = HTTPRequest(
            url_there(url, handler).replace("http", "ws", 1),
            headers=headers_to_send(handler.request),
            connect_timeout=CONNECT_TIMEOUT_S,
            request_timeout=HANDSHAKE_TIMEOUT_S,
        )
        try:
            self._there = await websocket_connect(
                request,
                subprotocols=[protocol] if protocol else None,
                max_message_size=1 << 30,
            )
        except (OSError, HTTPClientError, WebSocketClosedError) as problem:
            logger.info("another gateway could not be reached", extra={"reason": str(problem)})
            wait_s = self._elsewhere.retry_after_s
            self._close(
                TRY_AGAIN_LATER,
                f"the gateway that serves the kernel does not answer; try again, after "
                f"{wait_s:.0f} s at the latest",
            )
            return
        type(self)._open.add(self)
        self._task = asyncio.create_task(self._relay(self._there))

    async def handle_incoming_message(self, incoming_msg: str | bytes) -> None:
        """Hand a frame on; the client's next one is read when this one is gone."""
        there = self._there
        if there is None:
            return
        try:
            await there.write_message(incoming_msg, binary=isinstance(incoming_msg, bytes))
        except WebSocketClosedError:
            logger.debug("a frame came for a connection that is closed")

    def disconnect(self) -> None:
        """Close the connection to the other gateway."""
        type(self)._open.discard(self)
        if self._task is not None:
            self._task.cancel()

    @classmethod
    def close_all(cls) -> None:
        """Close every connection: this gateway stops."""
        for connection in tuple(cls._open):
            connection._close(GOING_AWAY, "the gateway stops")

    async def _relay(self, there: WebSocketClientConnection) -> None:
        pumping = asyncio.create_task(self._pump(there))
        try:
            with self._forwarder.replica.watching(self._elsewhere.lease_id) as over:
                await asyncio.wait({pumping, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            pumping.cancel()
            there.close()
        code, reason = there.close_code, there.close_reason
        if code is None or code in NOT_SENT_CODES:
            code, reason = TRY_AGAIN_LATER, "the gateway that serves the kernel has gone; try again"
        self._close(code, reason or "")

    async def _pump(self, there: WebSocketClientConnection) -> None:
        while (message := await there.read_message()) is not None:
            try:
                await self._handler.write_message(message, binary=isinstance(message, bytes))
            except WebSocketClosedError:
                return

    def _close(self, code: int, reason: str) -> None:
        short: Any = reason.encode()[:REASON_BYTES].decode(errors="ignore")
        self._handler.close(code, short)
