"""Who may be in flight: learns Lambda's concurrency limit and queues cells fairly."""

from __future__ import annotations

import asyncio
import itertools
import time
from bisect import insort
from collections.abc import Callable
from dataclasses import dataclass, field

from kernel_gateway.errors import GatewayError, InvokeThrottled

FIRST_LIMIT = 10
FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
NOTICE_S = 2.0
"""A cell that waits longer for a free container is told so."""

WARM_S = 300.0
"""An idle container is there for so long at least."""

_numbers = itertools.count()


class Withdrawn(GatewayError):
    """The cell was interrupted before it was sent; nothing started."""

    http_status = 409


@dataclass(slots=True, eq=False)
class Ticket:
    """A cell's place in line. It keeps its place when Lambda turns it away.

    Attributes:
        number: the order of arrival.
        withdrawn: nobody wants it served any more.
        noticed: its owner was told that it waits.
    """

    number: int = field(default_factory=lambda: next(_numbers))
    withdrawn: bool = False
    noticed: bool = False
    _deadline_s: float | None = None
    _turn: asyncio.Future[None] | None = None

    def withdraw(self) -> None:
        """Give up the place: `ConcurrencyGate.enter` raises Withdrawn."""
        self.withdrawn = True
        if self._turn is not None and not self._turn.done():
            self._turn.set_exception(Withdrawn("the cell was interrupted while it waited"))


@dataclass(slots=True)
class IdleContainers:
    """When containers became idle, as far as is known: Lambda takes the last one first."""

    _since_s: list[float] = field(default_factory=list)

    @property
    def is_warm(self) -> bool:
        """Whether one is idle, and not for so long that it may be gone."""
        return bool(self._since_s) and time.monotonic() - self._since_s[-1] < WARM_S

    def add(self) -> None:
        """One has become idle."""
        self._since_s.append(time.monotonic())

    def take(self) -> None:
        """A request is sent: to one of them, where there is any."""
        if self._since_s:
            self._since_s.pop()


class ConcurrencyGate:
    """Admits cells to one function, first come first served.

    The limit grows by one with each accepted request until the first 429 shows where it is; from
    then on it falls to what was in flight at a 429 and is tried higher, a tenth at a time, while
    cells wait. Nothing runs here while nobody waits.

    Attributes:
        limit: how many may be in flight, as far as is known.
        running: how many are.
    """

    def __init__(
        self,
        *,
        ceiling: int = 200,
        max_wait_s: float = 300.0,
        probe_interval_s: float = 1.0,
        notice_s: float = NOTICE_S,
    ) -> None:
        self.limit = min(FIRST_LIMIT, ceiling)
        self.running = 0
        self._ceiling = ceiling
        self._max_wait_s = max_wait_s
        self._probe_interval_s = probe_interval_s
        self._notice_s = notice_s
        self._learned = False
        self._pause_s = 0.0
        self._paused_until_s = 0.0
        self._waiting: list[Ticket] = []
        self._timer: asyncio.TimerHandle | None = None
        self._idle = IdleContainers()
        self._left = asyncio.Event()

    @property
    def has_spare(self) -> bool:
        """Whether a request could be sent that takes no container from a cell.

        While cells run, one that is warm must be free, and one more must be left to the next cell.
        """
        if self._waiting or not self._has_room():
            return False
        return self.running == 0 or (self.running + 1 < self.limit and self._idle.is_warm)

    async def spare(self) -> None:
        """Return once `has_spare`; the caller says for how long at most."""
        while not self.has_spare:
            self._left.clear()
            await self._left.wait()

    @property
    def waiting(self) -> int:
        """How many cells wait for their turn."""
        return len(self._waiting)

    async def enter(self, ticket: Ticket, on_wait: Callable[[int], object]) -> None:
        """Return when the cell may be sent; `leave` must follow.

        Args:
            ticket: its place in line.
            on_wait: called once, with the number of cells ahead, where it waits noticeably.

        Raises:
            InvokeThrottled: its turn did not come within the longest wait.
            Withdrawn: it was withdrawn.
        """
        if ticket.withdrawn:
            raise Withdrawn("the cell was interrupted before it was sent")
        loop = asyncio.get_running_loop()
        if ticket._deadline_s is None:
            ticket._deadline_s = loop.time() + self._max_wait_s
        if not self._waiting and self._has_room():
            self._take()
            return
        turn = ticket._turn = loop.create_future()
        insort(self._waiting, ticket, key=lambda waiting: waiting.number)
        self._arm()
        notice = loop.call_later(self._notice_s, self._tell, ticket, on_wait)
        try:
            async with asyncio.timeout_at(ticket._deadline_s):
                await turn
        except TimeoutError:
            self._forget(ticket, turn)
            raise InvokeThrottled(
                f"{len(self._waiting)} other cells wait, {self.running} run; "
                f"gave up after {self._max_wait_s:g} s"
            ) from None
        except BaseException:
            self._forget(ticket, turn)
            raise
        finally:
            notice.cancel()
            ticket._turn = None

    def _tell(self, ticket: Ticket, on_wait: Callable[[int], object]) -> None:
        if not ticket.noticed and ticket in self._waiting:
            ticket.noticed = True
            on_wait(self._waiting.index(ticket))

    def accepted(self) -> None:
        """Learn that Lambda took a request."""
        self._pause_s = 0.0
        if not self._learned and self.limit < self._ceiling:
            self.limit += 1
            self._wake()

    def throttled(self) -> None:
        """Learn that Lambda turned a request away (429); its `leave` and `enter` follow."""
        self._learned = True
        others = self.running - 1
        self.limit = max(1, others)
        if others == 0:
            # Nobody's end will wake us: whoever holds the containers is not ours.
            self._pause_s = min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, 2 * self._pause_s))
            self._paused_until_s = asyncio.get_running_loop().time() + self._pause_s

    def leave(self) -> None:
        """Give back what `enter` gave."""
        self.running -= 1
        self._idle.add()
        self._wake()
        self._left.set()

    def _take(self) -> None:
        self.running += 1
        self._idle.take()

    def _has_room(self) -> bool:
        if self.running >= self.limit:
            return False
        return asyncio.get_running_loop().time() >= self._paused_until_s

    def _wake(self) -> None:
        while self._waiting and self._has_room():
            turn = self._waiting.pop(0)._turn
            if turn is not None and not turn.done():
                self._take()
                turn.set_result(None)

    def _forget(self, ticket: Ticket, turn: asyncio.Future[None]) -> None:
        if ticket in self._waiting:
            self._waiting.remove(ticket)
        elif turn.done() and not turn.cancelled() and turn.exception() is None:
            self.leave()

    def _arm(self) -> None:
        if self._timer is None and self._waiting:
            loop = asyncio.get_running_loop()
            pause_s = self._paused_until_s - loop.time()
            delay_s = pause_s if pause_s > 0 else self._probe_interval_s
            self._timer = loop.call_later(delay_s, self._probe)

    def _probe(self) -> None:
        self._timer = None
        paused = asyncio.get_running_loop().time() < self._paused_until_s
        if self._waiting and not paused and self.running >= self.limit:
            self.limit = min(self._ceiling, self.limit + max(1, self.limit // 10))
        self._wake()
        self._arm()
