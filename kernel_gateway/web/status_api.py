"""``/api/status``, ``/api/events/subscribe`` and ``/metrics``: nobody sees others' activity."""

from __future__ import annotations

import json
import logging
from typing import Any

import prometheus_client
from jupyter_server.auth.decorator import ws_authenticated
from jupyter_server.base.handlers import JupyterHandler
from jupyter_server.base.websocket import WebSocketMixin
from tornado.websocket import WebSocketClosedError, WebSocketHandler

from kernel_gateway.errors import StorageError
from kernel_gateway.kernels.identity import Identity, may_see
from kernel_gateway.messaging.message import utc_text
from kernel_gateway.web.base import GatewayHandler, JsonErrors, endpoint

logger = logging.getLogger(__name__)


class StatusHandler(GatewayHandler):
    """Counts of the caller's own kernels; an admin's are of all."""

    auth_resource = "api"
    _track_activity = False

    @endpoint
    async def get(self) -> None:
        """Say how many kernels and connections there are, and since when."""
        try:
            await self.registry.complete()
        except StorageError:
            logger.warning("kernels of earlier gateways are not counted", exc_info=True)
        kernels = [k for k in self.registry.all() if may_see(self.identity, k.owner)]
        started = self.settings["started"]
        last = max([kernel.last_activity for kernel in kernels], default=started)
        model = {
            "started": utc_text(started),
            "last_activity": utc_text(last),
            "kernels": len(kernels),
            "connections": sum(kernel.connections for kernel in kernels),
        }
        self.finish(json.dumps(model))


class MetricsHandler(GatewayHandler):
    """Prometheus' numbers, which are of all users together: for admins."""

    auth_resource = "metrics"

    @endpoint
    async def get(self) -> None:
        """Return them."""
        self.finish(
            prometheus_client.generate_latest(prometheus_client.REGISTRY),
            set_content_type=prometheus_client.CONTENT_TYPE_LATEST,
        )


class EventsHandler(JsonErrors, WebSocketMixin, WebSocketHandler, JupyterHandler):
    """A websocket with the events of kernels that the caller may see."""

    auth_resource = "events"

    @property
    def ping_interval(self) -> None:
        """None: tornado sends no pings; the listener notices a closed socket itself."""
        return

    @property
    def ping_timeout(self) -> None:
        """None, as there are no pings."""
        return

    @ws_authenticated
    async def get(self) -> None:
        """Upgrade to a websocket."""
        await WebSocketHandler.get(self)

    def open(self) -> None:
        """Listen to events from now on."""
        self.event_logger.add_listener(listener=self.forward)

    async def forward(self, logger: Any, schema_id: str, data: dict[str, Any]) -> None:
        """Send an event on, if it is of a kernel that the caller may see."""
        owner = self.settings["kernel_manager"].owner_of(data.get("kernel_id", ""))
        identity: Identity = self.current_user.identity
        if not identity.admin and (owner is None or not may_see(identity, owner)):
            return
        try:
            self.write_message(json.dumps({"schema_id": schema_id, **data}, default=str))
        except WebSocketClosedError:
            self.on_close()

    def on_message(self, message: str | bytes) -> None:
        """Ignore what a client sends."""

    def on_close(self) -> None:
        """Listen no more."""
        self.event_logger.remove_listener(listener=self.forward)
