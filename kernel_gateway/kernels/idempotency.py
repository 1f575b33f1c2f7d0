"""What was asked for under which idempotency key: a cell never runs twice for one.

Source: IETF draft "The Idempotency-Key HTTP Header Field".
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kernel_gateway.errors import GatewayError
from kernel_gateway.kernels.execution import Execution


class KeyReused(GatewayError):
    """An idempotency key came again with another request."""

    http_status = 422


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedLimits:
    """How much is remembered of the executions of one kernel that have ended.

    The newest is kept whatever its size.

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
    """The keys of one kernel, in memory; the one place where a key is looked up."""

    def __init__(
        self, limits: RememberedLimits | None = None, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._limits = limits or RememberedLimits()
        self._now_s = now_s
        self._entries: dict[str, _Entry] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: str, fingerprint: str) -> Execution | None:
        """Return what was begun under ``key``; None where nothing was, or nothing of it ran.

        Raises:
            KeyReused: it was another request.
        """
        self.tidy()
        entry = self._entries.get(key)
        if entry is None:
            return None
        if entry.execution.refusal is not None:
            del self._entries[key]
            return None
        if entry.fingerprint != fingerprint:
            raise KeyReused(
                "the idempotency key was used for another request in this kernel; use a new key "
                "for a new request, and the same code and options for a retry"
            )
        return entry.execution

    def remember(self, key: str, fingerprint: str, execution: Execution) -> None:
        """Keep ``execution`` under ``key``; the oldest that have ended make room."""
        self._entries[key] = _Entry(fingerprint, execution, self._now_s())
        self.tidy()
        self._tidy_later()

    def tidy(self) -> None:
        """Forget what is over the limits; never what still runs, nor a newest that is young."""
        limits, now_s = self._limits, self._now_s()
        ended = {key: each for key, each in self._entries.items() if each.execution.ended}
        sizes = {key: each.execution.size_bytes for key, each in ended.items()}
        count, size_bytes = len(ended), sum(sizes.values())
        for key, entry in ended.items():
            is_old = now_s - entry.begun_s > limits.age_s
            is_over = count > limits.count or (size_bytes > limits.size_bytes and count > 1)
            if is_old or is_over:
                del self._entries[key]
                count -= 1
                size_bytes -= sizes[key]

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


def fingerprint_of(content: dict[str, Any]) -> str:
    """Return a digest by which the same request is known again."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
