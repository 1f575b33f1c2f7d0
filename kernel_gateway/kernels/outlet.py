"""Where a kernel's messages go: to the clients that are attached, and to those that come back."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from typing import Any

from kernel_gateway.audit.journal import Journal
from kernel_gateway.kernels.clocks import Clocks
from kernel_gateway.kernels.missed import Missed, Replay, is_idle
from kernel_gateway.kernels.transcript import Transcript
from kernel_gateway.messaging.message import InMessage, OutMessage, new_header
from kernel_gateway.messaging.replies import reply_type

logger = logging.getLogger(__name__)

Sink = Callable[[OutMessage], None]
"""Takes a message for one client; called on the event loop's thread, must not block or raise."""

IOPUB = "iopub"
STDIN = "stdin"
AWAY_COUNT = 4
"""Sessions that went away, the latest ones, for which is noted what they miss."""


class Client:
    """One client of a kernel.

    Attributes:
        sink: takes its messages; None while it is away.
        session_id: as it named it when it connected; None = it did not.
        missed: what it must get before anything else; None = nothing.
    """

    __slots__ = ("missed", "session_id", "sink")

    def __init__(self, sink: Sink | None, session_id: str | None, missed: Missed | None) -> None:
        self.sink = sink
        self.session_id = session_id
        self.missed = missed


class Outlet:
    """The clients of one kernel, and what they have missed.

    Attributes:
        last_activity: when a message came or went last (aware).
        session: the kernel's session id in message headers; changes with a restart.
        said: what the cell that runs says, or the last one as long as the journal does not have it.
    """

    __slots__ = (
        "_active_s",
        "_away",
        "_clients",
        "_clocks",
        "_watchers",
        "last_activity",
        "said",
        "session",
    )

    def __init__(self, session: str, *, clocks: Clocks) -> None:
        self.session = session
        self.said: Transcript | None = None
        self._clocks = clocks
        self.note_activity()
        self._clients: tuple[Client, ...] = ()
        self._away: tuple[Client, ...] = ()
        self._watchers: dict[str, Sink] | None = None

    @property
    def sinks(self) -> tuple[Sink, ...]:
        """Of the attached clients."""
        return tuple(c.sink for c in self._clients if c.sink is not None)

    @property
    def idle_s(self) -> float:
        """For how long nothing came or went, whatever was done to the machine's clock."""
        return self._clocks.steady_s() - self._active_s

    def note_activity(self) -> None:
        """Count from now on how long nothing comes or goes."""
        self.last_activity = self._clocks.now()
        self._active_s = self._clocks.steady_s()

    @property
    def connections(self) -> int:
        """How many clients are attached."""
        return len(self._clients)

    def attach(
        self, sink: Sink, session_id: str | None = None, replay: Replay | None = None
    ) -> Client:
        """Add a client; where it has `missed` something, it gets nothing before that.

        Args:
            sink: takes its messages.
            session_id: of a session that was here before: it gets what it missed.
            replay: what a new session asks for.
        """
        self.detach(sink)
        known = [c for c in self._away if c.session_id == session_id and session_id is not None]
        self._away = tuple(c for c in self._away if c not in known)
        client = known[0] if known else Client(None, session_id, None)
        client.sink = sink
        if not known and replay is not None:
            client.missed = Missed(session_id, replay)
            if self.said is not None:
                client.missed.add_cell(self.said)
        self._clients = (*self._clients, client)
        return client

    def detach(self, sink: Sink) -> None:
        """Remove a client; what it misses is noted for when its session comes back."""
        for client in self._clients:
            if client.sink == sink:
                client.sink = None
                if client.session_id is not None:
                    client.missed = client.missed or Missed(client.session_id)
                    self._away = (*self._away, client)[-AWAY_COUNT:]
        self._clients = tuple(c for c in self._clients if c.sink is not None)

    def watch(self, msg_id: str, sink: Sink) -> None:
        """Send ``sink`` the iopub messages of one request too."""
        self._watchers = {**(self._watchers or {}), msg_id: sink}

    def unwatch(self, msg_id: str) -> None:
        """End `watch`."""
        left = {key: sink for key, sink in (self._watchers or {}).items() if key != msg_id}
        self._watchers = left or None

    def _expect(self, session_id: str) -> None:
        """Note from now on what this session misses, if it is not here."""
        if all(c.session_id != session_id for c in (*self._clients, *self._away)):
            away = Client(None, session_id, Missed(session_id))
            self._away = (*self._away, away)[-AWAY_COUNT:]

    def begin(self, parent: dict[str, Any], *, limit_bytes: int) -> Transcript:
        """Keep from now on what the cell of the request with the header ``parent`` says."""
        self.said = Transcript(parent, limit_bytes=limit_bytes)
        return self.said

    def tell_late(self, said: Transcript) -> None:
        """Send what was said of a cell of an earlier gateway, its reply to its own session."""
        session_id = said.parent.get("session")
        if isinstance(session_id, str):
            self._expect(session_id)
        for message in said.messages or ():
            if is_idle(message) and said.reply is not None:
                self._give(self._of_session(session_id), said.reply)
            self._spread(message)

    async def catch_up(
        self, client: Client, journal: Journal, ready: Callable[[], Awaitable[None]]
    ) -> None:
        """Send a client what it missed; from then on it gets what comes as it comes.

        Args:
            client: attached with something `missed`.
            journal: of the kernel.
            ready: waits until the client can take more.
        """
        missed, sink = client.missed, client.sink
        if missed is None or sink is None:
            return

        def is_here() -> bool:
            # A session that has come back meanwhile has another sink, and is given it all there.
            return client.sink is sink

        async with aclosing(missed.messages(journal, ready, is_here)) as messages:
            async for message in messages:
                if not is_here():
                    return
                self._tell(sink, message)
        if client.missed is missed and is_here():
            client.missed = None

    def forget(self, said: Transcript) -> None:
        """Keep a cell's messages no longer."""
        if self.said is said:
            self.said = None

    def publish(
        self,
        msg_type: str,
        content: dict[str, Any],
        message: InMessage | None = None,
        *,
        metadata: dict[str, Any] | None = None,
        buffers: tuple[bytes, ...] = (),
    ) -> None:
        """Send an iopub message to every client.

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
        """Send the reply to a request to the client that asked, or that has its session now."""
        stamped = self._stamped(
            message.channel, reply_type(message.msg_type), content, message.header, metadata, ()
        )
        asked = [c for c in self._clients if c.sink == sink]
        if sink is not None and not asked:
            self._tell(sink, stamped)
            self._give((), stamped)
            return
        self._give(asked or self._of_session(message.header.get("session")), stamped)

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
        self.note_activity()
        return OutMessage(
            channel=channel,
            header=new_header(msg_type, session=self.session, now=self.last_activity),
            parent_header=parent,
            metadata=metadata or {},
            content=content,
            buffers=buffers,
        )

    def _of_session(self, session_id: object) -> list[Client]:
        everybody = (*self._clients, *self._away)
        return [c for c in everybody if c.session_id == session_id and session_id is not None]

    def _spread(self, message: OutMessage) -> None:
        watcher = (self._watchers or {}).get(message.parent_header.get("msg_id", ""))
        if watcher is not None:
            self._tell(watcher, message)
        self._give((*self._clients, *self._away), message)

    def _give(self, clients: Iterable[Client], message: OutMessage) -> None:
        said = self.said
        if said is not None and not said.concerns(message):
            said = None
        for client in clients:
            if client.missed is not None:
                client.missed.note(message, said)
            elif client.sink is not None:
                self._tell(client.sink, message)
        if said is not None:
            said.add(message)

    def _tell(self, sink: Sink, message: OutMessage) -> None:
        # A client's trouble must not become the kernel's.
        try:
            sink(message)
        except Exception:
            logger.exception("a client could not take a message")
