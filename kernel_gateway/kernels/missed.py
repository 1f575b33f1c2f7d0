"""What a client has not got yet: because it was away, or because it asks for the past."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from kernel_gateway.audit.journal import Journal
from kernel_gateway.errors import BadRequest, GatewayError
from kernel_gateway.kernels.past import past_cells
from kernel_gateway.kernels.transcript import Transcript, as_sent
from kernel_gateway.messaging.backlog import rough_bytes
from kernel_gateway.messaging.message import OutMessage, new_header

MAX_CELLS_COUNT = 1000
MAX_OTHER_COUNT = 1000
MAX_OTHER_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Which finished cells a new client asks for; of a cell that runs it gets all it said so far.

    Attributes:
        last_count: so many of the newest ones.
        since: only those after the cell of this request, a msg_id; None = no such bound.
    """

    last_count: int = MAX_CELLS_COUNT
    since: str | None = None

    @classmethod
    def read(cls, last: str | None, since: str | None) -> Replay | None:
        """Return what the query arguments ``replay`` and ``since`` say, None without them.

        Raises:
            BadRequest: ``replay`` is neither a number nor ``all``.
        """
        if last is None and since is None:
            return None
        if last in {None, "all"}:
            return cls(since=since)
        if not (last.isascii() and last.isdigit() and len(last) < 10):
            raise BadRequest("replay: must be a number of cells, or all")
        return cls(last_count=min(int(last), MAX_CELLS_COUNT), since=since)


@dataclass(slots=True)
class Span:
    """The rest of what one cell says.

    Attributes:
        said: all of it.
        begin: how many messages the client has.
        dropped_before: what was not kept while the client still got everything.
        has_reply: the client has the reply, or it is not for it.
    """

    said: Transcript
    begin: int = 0
    dropped_before: int = 0
    has_reply: bool = False


class Missed:
    """What one client has not got: cells by reference, other messages themselves; bounded.

    Attributes:
        session_id: whose messages and replies count.
        dropped_count: how much was thrown away because the client was away too long.
        replay: finished cells that it asked for, which come first.
    """

    __slots__ = ("_items", "_other_bytes", "dropped_count", "replay", "session_id")

    def __init__(self, session_id: str | None, replay: Replay | None = None) -> None:
        self.session_id = session_id
        self.dropped_count = 0
        self.replay = replay
        self._items: list[Span | OutMessage] = []
        self._other_bytes = 0

    def note(self, message: OutMessage, said: Transcript | None) -> None:
        """Note a message that was published, or is the reply to this client.

        Args:
            message: it itself.
            said: the cell that it is of, to which it has not been added yet; None = no cell's.
        """
        if said is not None:
            if not any(isinstance(item, Span) and item.said is said for item in self._items):
                self.add_cell(said, begin=len(said.messages or ()))
        elif not message.parent_header or message.parent_header.get("session") == self.session_id:
            self._items.append(message)
            self._other_bytes += rough_bytes(message)
            self._drop_others()

    def add_cell(self, said: Transcript, *, begin: int = 0) -> None:
        """Note that the client misses what a cell says after its first ``begin`` messages."""
        is_ours = self.replay is not None or said.parent.get("session") == self.session_id
        span = Span(said, begin, said.dropped_count if begin else 0)
        span.has_reply = not is_ours or (begin > 0 and said.reply is not None)
        self._items.append(span)
        spans = [item for item in self._items if isinstance(item, Span)]
        if len(spans) > MAX_CELLS_COUNT:
            self._remove(spans[0])
            self.dropped_count += 1

    async def messages(
        self, journal: Journal, ready: Callable[[], Awaitable[None]], is_here: Callable[[], bool]
    ) -> AsyncGenerator[OutMessage, None]:
        """Yield what was missed, also what comes meanwhile, until there is nothing more.

        Nothing is noted between the end of the iteration and the next step of its caller. What was
        yielded counts as missed until the next one is asked for.

        Args:
            journal: has what finished cells said.
            ready: waits until the client can take more.
            is_here: whether the client still is; nothing is read for one that is gone.
        """
        if self.replay is not None:
            await self._look_back(self.replay, journal, is_here)
        if self.dropped_count and is_here():
            yield _notice(f"{self.dropped_count} messages came while you were away: lost", {})
            self.dropped_count = 0
        while self._items:
            await ready()
            if not is_here():
                return
            item = self._items[0]
            if isinstance(item, OutMessage):
                yield item
                self._remove(item)
                continue
            # It stays in the list as long as more can come, so that nothing is noted twice.
            was_over = item.said.is_over
            async with aclosing(_rest(item, journal)) as messages:
                async for message in messages:
                    yield message
                    await ready()
                    if not is_here():
                        return
            self._remove(item)
            if not was_over:
                self._items.append(item)
            if all(_is_at_its_end(other) for other in self._items):
                return

    async def _look_back(
        self, asked: Replay, journal: Journal, is_here: Callable[[], bool]
    ) -> None:
        """Put the finished cells that are asked for before all else."""
        here = {item.said.parent.get("msg_id") for item in self._items if isinstance(item, Span)}
        found = await _asked_for(asked, journal, here, is_here)
        if found is not None:
            self._items[:0] = found
            self.replay = None

    def _remove(self, item: Span | OutMessage) -> None:
        # It may have been thrown away meanwhile, to make room.
        left = [each for each in self._items if each is not item]
        if len(left) < len(self._items) and isinstance(item, OutMessage):
            self._other_bytes -= rough_bytes(item)
        self._items = left

    def _drop_others(self) -> None:
        others = [item for item in self._items if isinstance(item, OutMessage)]
        while len(others) > MAX_OTHER_COUNT or self._other_bytes > MAX_OTHER_BYTES:
            oldest = others.pop(0)
            self._remove(oldest)
            self.dropped_count += 1


def _is_at_its_end(item: Span | OutMessage) -> bool:
    if isinstance(item, OutMessage) or item.said.is_over:
        return False
    return item.begin >= len(item.said.messages or ())


async def _rest(span: Span, journal: Journal) -> AsyncGenerator[OutMessage, None]:
    """Yield what the client has not got of a cell, as far as it has come.

    The span goes on once the next message is asked for: a client may leave before it gets one.
    """
    said = span.said
    while said.messages is not None:
        if span.begin >= len(said.messages):
            if said.dropped_count > span.dropped_before and said.is_over:
                yield _not_kept(said.dropped_count - span.dropped_before, said.parent)
            return
        message = said.messages[span.begin]
        if is_idle(message) and said.reply is not None and not span.has_reply:
            yield said.reply
            span.has_reply = True
        yield message
        span.begin += 1
    try:
        await journal.flush()
        event = await journal.end_of_cell(said.number)
    except GatewayError as problem:
        yield _notice(f"what a cell said cannot be read now: {problem}", said.parent)
        return
    for recorded in event.outputs.messages[span.begin :]:
        message = as_sent(recorded, said.parent)
        if is_idle(message) and event.reply is not None and not span.has_reply:
            yield as_sent(event.reply, said.parent, channel="shell")
            span.has_reply = True
        yield message
        span.begin += 1
    if event.outputs.dropped_count > span.dropped_before:
        yield _not_kept(event.outputs.dropped_count - span.dropped_before, said.parent)


async def _asked_for(
    asked: Replay, journal: Journal, here: set[object], is_here: Callable[[], bool]
) -> list[Span | OutMessage] | None:
    """Return the finished cells that are asked for, but those that are ``here`` already.

    None where the client is gone.
    """
    try:
        # Those that are here may be among them.
        last_count = asked.last_count + len(here)
        found = await past_cells(
            journal, last_count=last_count, since=asked.since, is_wanted=is_here
        )
    except GatewayError as problem:
        return [_notice(f"earlier cells cannot be read now: {problem}", {})]
    if not is_here():
        return None
    earlier = [c for c in found if c.finished is not None and c.started.msg_id not in here]
    return [
        Span(Transcript.in_journal(cell.started.header, cell.number))
        for cell in earlier[max(0, len(earlier) - asked.last_count) :]
    ]


def is_idle(message: OutMessage) -> bool:
    """Return whether the message says that a request was dealt with."""
    return message.content.get("execution_state") == "idle"


def _not_kept(count: int, parent: dict[str, Any]) -> OutMessage:
    return _notice(f"{count} more messages of this cell were not kept", parent)


def _notice(text: str, parent: dict[str, Any]) -> OutMessage:
    return OutMessage(
        channel="iopub",
        header=new_header("stream", session=""),
        parent_header=parent,
        content={"name": "stderr", "text": f"[gateway] {text}\n"},
    )
