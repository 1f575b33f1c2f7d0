"""What was asked for under which idempotency key: a cell never runs twice for one.

Source: IETF draft "The Idempotency-Key HTTP Header Field".
"""

from __future__ import annotations

import asyncio
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from kernel_gateway.errors import GatewayError, Started
from kernel_gateway.kernels import recall
from kernel_gateway.kernels.execution import Execution
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.messaging.idempotency import Idempotency


class KeyReused(GatewayError):
    """An idempotency key came again with another request; of this one nothing ran."""

    http_status = 422
    code_started = Started.NO


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedLimits:
    """How much is remembered of the executions of one kernel that have ended.

    The newest is kept whatever its size. Of the others the result is read from the journal.

    Attributes:
        count: number of keys.
        size_bytes: roughly, of what the cells have said.
        age_s: seconds since the request.
    """

    count: int = 100
    size_bytes: int = 16 << 20
    age_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class _Entry:
    fingerprint: str
    execution: Execution
    begun_s: float


class IdempotencyKeys:
    """The keys of one kernel; the one place where a key is looked up.

    The newest results are in memory. The journal is the second source, for older ones, and for
    those of a gateway that had the kernel before.
    """

    def __init__(
        self, limits: RememberedLimits | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = limits or RememberedLimits()
        self._now_s = now_s
        self._entries: dict[str, _Entry] = {}
        self._in_journal: dict[str, tuple[Idempotency, str]] = {}
        self._are_past_known = False
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._entries)

    async def look_up(self, asked: Idempotency, kernel: LambdaKernel) -> Execution | None:
        """Return what was begun under a key; None where nothing was, or nothing of it ran.

        Nothing is awaited between a None and the next step of the caller.

        Raises:
            KeyReused: it was another request.
            ResultForgotten: it ran too long ago.
            KeysUnavailable: whether it ran cannot be told now.
        """
        if not self._are_past_known:
            past = await recall.past_keys(kernel)
            if not self._are_past_known:
                self._are_past_known = True
                self._in_journal = past
        found = self.find(asked)
        if found is not None or asked.key not in self._in_journal:
            return found
        before, msg_id = self._in_journal[asked.key]
        # What was redacted cannot be compared: the key alone says that it is the same.
        if before.fingerprint and before != asked:
            _refuse()
        execution = await recall.recalled(kernel, msg_id)
        if execution.refusal is not None:
            self._in_journal.pop(asked.key, None)
            # Another request with this key may have begun meanwhile.
            return self.find(asked)
        self.remember(asked, execution)
        return execution

    def find(self, asked: Idempotency) -> Execution | None:
        """Return what is in memory of a key, as `look_up` (raises KeyReused)."""
        self.tidy()
        entry = self._entries.get(asked.key)
        if entry is None:
            return None
        if entry.execution.refusal is not None:
            del self._entries[asked.key]
            return None
        if entry.fingerprint != asked.fingerprint:
            _refuse()
        return entry.execution

    def remember(self, asked: Idempotency, execution: Execution) -> None:
        """Keep ``execution`` under its key; the oldest that have ended make room."""
        self._entries[asked.key] = _Entry(asked.fingerprint, execution, self._now_s())
        self.tidy()
        self._tidy_later()

    def tidy(self) -> None:
        """Let go of what is over the limits; never what runs, nor a newest that is young."""
        limits, now_s = self._limits, self._now_s()
        ended = {key: each for key, each in self._entries.items() if each.execution.ended}
        sizes = {key: each.execution.size_bytes for key, each in ended.items()}
        count, size_bytes = len(ended), sum(sizes.values())
        for key, entry in ended.items():
            is_old = now_s - entry.begun_s > limits.age_s
            is_over = count > limits.count or (size_bytes > limits.size_bytes and count > 1)
            if is_old or is_over:
                self._leave_to_journal(key, self._entries.pop(key))
                count -= 1
                size_bytes -= sizes[key]

    def _leave_to_journal(self, key: str, entry: _Entry) -> None:
        if entry.execution.refusal is not None:
            return
        asked = Idempotency(key=key, fingerprint=entry.fingerprint)
        self._in_journal.pop(key, None)
        self._in_journal[key] = (asked, entry.execution.msg_id)
        while len(self._in_journal) > self._limits.count:
            del self._in_journal[next(iter(self._in_journal))]

    def _tidy_later(self) -> None:
        """See to it that an idle kernel does not hold old results for ever."""
        if self._entries and self._timer is None:
            loop = asyncio.get_running_loop()
            # Weak: results must not outlive their kernel because of a timer.
            self._timer = loop.call_later(self._limits.age_s + 1, _wake, weakref.ref(self))


def _wake(reference: weakref.ref[IdempotencyKeys]) -> None:
    keys = reference()
    if keys is not None:
        keys._timer = None
        keys.tidy()
        keys._tidy_later()


def _refuse() -> NoReturn:
    raise KeyReused(
        "the idempotency key was used for another request in this kernel; use a new key for a new "
        "request, and the same code and options for a retry"
    )
