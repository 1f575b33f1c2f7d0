"""``/api/kernels/{id}/channels``: who may connect, keep-alive, subprotocol."""

from __future__ import annotations

from collections.abc import Awaitable
from contextlib import suppress

from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.services.kernels.websocket import KernelWebsocketHandler
from tornado.websocket import WebSocketHandler

from kernel_gateway.errors import HeldElsewhere, NotFound
from kernel_gateway.kernels.missed import Replay
from kernel_gateway.kernels.registry import KernelRegistry
from kernel_gateway.web.base import JsonErrors, own_kernel
from kernel_gateway.web.callers import caller_of
from kernel_gateway.web.forwarded_connection import ForwardedConnection

PING_INTERVAL_S = 30
MAX_FRAME_BYTES = 64 << 20


class KernelChannelsHandler(JsonErrors, KernelWebsocketHandler):
    """A kernel's websocket, for its owner only."""

    @property
    def ping_interval(self) -> float:
        """Seconds between pings.

        jupyter_server gives milliseconds, where tornado takes seconds (gateway.md, pitfall 7).
        """
        found: float = self.settings.get("websocket_ping_interval") or PING_INTERVAL_S
        return found

    @property
    def ping_timeout(self) -> float:
        """Seconds without an answer after which the client is gone."""
        return self.ping_interval

    @property
    def max_message_size(self) -> int:
        """Bytes of one frame; a larger one closes the connection with code 1009."""
        return MAX_FRAME_BYTES

    async def pre_get(self) -> None:
        """Make the connection, if the caller may execute in the kernel; maybe through another.

        Raises:
            BadRequest: the part of the past that it asks for cannot be read.
            NotFound: there is no such kernel for the caller.
            Forbidden: an admin sees it but does not execute in it.
        """
        last = self.get_query_argument("replay", None)
        replay = Replay.read(last, self.get_query_argument("since", None))
        registry: KernelRegistry = self.settings["kernel_registry"]
        with suppress(NotFound):
            await registry.find(self.kernel_id)
        found = own_kernel(registry, self.current_user.identity, self.kernel_id)
        try:
            kernel = await registry.reach(found, takes=True)
        except HeldElsewhere as elsewhere:
            self.connection = ForwardedConnection(self, elsewhere, self.settings["forwarder"])
            return
        self.connection = self.kernel_websocket_connection_class(
            parent=kernel,
            session_id=self.get_query_argument("session_id", None) or None,
            caller=caller_of(self.current_user.identity, "websocket", self.request.headers),
            replay=replay,
            websocket_handler=self,
            config=self.config,
        )

    @ws_authenticated
    async def get(self, kernel_id: str) -> None:
        """Upgrade to a websocket."""
        self.kernel_id = kernel_id
        await self.pre_get()
        await WebSocketHandler.get(self, kernel_id=kernel_id)

    async def open(self, kernel_id: str) -> None:
        """Attach to the kernel; tornado itself sends the pings."""
        await self.connection.connect()

    def on_message(self, ws_message: str | bytes) -> Awaitable[None] | None:
        """Hand a frame to the connection; where it takes time, the next one waits."""
        taken: Awaitable[None] | None = self.connection.handle_incoming_message(ws_message)
        return taken

    def on_close(self) -> None:
        """Detach from the kernel."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.disconnect()

    def on_pong(self, data: bytes) -> None:
        """Do nothing: tornado keeps the time."""
