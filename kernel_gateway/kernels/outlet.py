"""Where a kernel's messages go: to the clients that are attached, else into a small buffer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kernel_gateway.messaging.backlog import Backlog
from kernel_gateway.messaging.message import InMessage, OutMessage, new_header
from kernel_gateway.messaging.replies import reply_type

logger = logging.getLogger(__name__)

Sink = Callable[[OutMessage], None]
"""Takes a message for one client; called on the event loop's thread, must not block or raise."""

IOPUB = "iopub"
STDIN = "stdin"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLimits:
    """What is kept for a kernel to which nobody is attached.

    Attributes:
        size_bytes: roughly.
        count: number of messages.
    """

    size_bytes: int = 1024 * 1024
    count: int = 1000


class Outlet:
    """The clients of one kernel, and what they have missed.

    Messages that nobody could take are kept, the oldest thrown away first, and given to the first
    client that attaches. They are in memory only: a gateway that stops loses them.

    Attributes:
        sinks: attached clients.
        last_activity: when a message came or went last (aware).
        session: the kernel's session id in message headers; changes with a restart.
        dropped_count: how many kept messages were thrown away.
    """

    __slots__ = (
        "_kept",
        "_limits",
        "_now",
        "_watchers",
        "dropped_count",
        "last_activity",
        "session",
        "sinks",
    )

    def __init__(self, session: str, *, now: Callable[[], datetime], limits: KeptLimits) -> None:
        self.sinks: tuple[Sink, ...] = ()
        self.session = session
        self.dropped_count = 0
        self.last_activity = now()
        self._now = now
        self._limits = limits
        self._kept: Backlog | None = None
        self._watchers: dict[str, Sink] | None = None

    def attach(self, sink: Sink) -> None:
        """Add a client and give it what was kept."""
        if sink not in self.sinks:
            self.sinks = (*self.sinks, sink)
        kept, dropped_count = self._kept, self.dropped_count
        self._kept, self.dropped_count = None, 0
        if dropped_count:
            text = f"[gateway] {dropped_count} messages came while nobody was attached: lost\n"
            content = {"name": "stderr", "text": text}
            self._tell(sink, self._stamped(IOPUB, "stream", content, {}, None, ()))
        while kept:
            self._tell(sink, kept.take())

    def detach(self, sink: Sink) -> None:
        """Remove a client."""
        self.sinks = tuple(other for other in self.sinks if other != sink)

    def watch(self, msg_id: str, sink: Sink) -> None:
        """Send ``sink`` the iopub messages of one request too; they are then not kept."""
        self._watchers = {**(self._watchers or {}), msg_id: sink}

    def unwatch(self, msg_id: str) -> None:
        """End `watch`."""
        left = {key: sink for key, sink in (self._watchers or {}).items() if key != msg_id}
        self._watchers = left or None

    def publish(
        self,
        msg_type: str,
        content: dict[str, Any],
        message: InMessage | None = None,
        *,
        metadata: dict[str, Any] | None = None,
        buffers: tuple[bytes, ...] = (),
    ) -> None:
        """Send an iopub message to every client, or keep it where there is none.

        Args:
            msg_type: of the message.
            content: likewise.
            message: the request that caused it.
            metadata: of the message.
            buffers: likewise.
        """
        parent = message.header if message is not None else {}
        self._spread(self._stamped(IOPUB, msg_type, content, parent, metadata, buffers))

    def status(self, state: str, message: InMessage | None = None) -> None:
        """Publish an execution state."""
        self.publish("status", {"execution_state": state}, message)

    def reply(
        self,
        message: InMessage,
        sink: Sink | None,
        content: dict[str, Any],
        metadata: dict[str, Any] | None = None,
    ) -> None:
        """Send the reply to a request to the client that asked; kept where that is gone."""
        stamped = self._stamped(
            message.channel, reply_type(message.msg_type), content, message.header, metadata, ()
        )
        if sink is not None:
            self._tell(sink, stamped)
        else:
            self._spread(stamped)

    def question(self, message: InMessage, content: dict[str, Any]) -> OutMessage:
        """Return an input_request of the cell that ``message`` asked for, to `send` as it is."""
        return self._stamped(STDIN, "input_request", content, message.header, None, ())

    def send(self, sink: Sink, message: OutMessage) -> None:
        """Send one client a message that is complete."""
        self._tell(sink, message)

    def tell(self, sink: Sink, msg_type: str, content: dict[str, Any]) -> None:
        """Send an iopub message without parent to one client."""
        self._tell(sink, self._stamped(IOPUB, msg_type, content, {}, None, ()))

    def _stamped(
        self,
        channel: str,
        msg_type: str,
        content: dict[str, Any],
        parent: dict[str, Any],
        metadata: dict[str, Any] | None,
        buffers: tuple[bytes, ...],
    ) -> OutMessage:
        self.last_activity = now = self._now()
        return OutMessage(
            channel=channel,
            header=new_header(msg_type, session=self.session, now=now),
            parent_header=parent,
            metadata=metadata or {},
            content=content,
            buffers=buffers,
        )

    def _spread(self, message: OutMessage) -> None:
        watchers = self._watchers or {}
        watcher = watchers.get(message.parent_header.get("msg_id", ""))
        if watcher is not None:
            self._tell(watcher, message)
        elif not self.sinks:
            self._keep(message)
        for sink in self.sinks:
            self._tell(sink, message)

    def _tell(self, sink: Sink, message: OutMessage) -> None:
        # A client's trouble must not become the kernel's.
        try:
            sink(message)
        except Exception:
            logger.exception("a client could not take a message")

    def _keep(self, message: OutMessage) -> None:
        kept, limits = self._kept, self._limits
        if kept is None:
            kept = self._kept = Backlog()
        kept.add(message)
        while kept and (kept.size_bytes > limits.size_bytes or len(kept) > limits.count):
            kept.take()
            self.dropped_count += 1
