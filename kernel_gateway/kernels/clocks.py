"""The clocks of a gateway: one that says what time it is, one that says how long something took."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime


def utc_now() -> datetime:
    """Return the time, aware; whoever sets this machine's clock changes it."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Clocks:
    """What a gateway's kernels read the time from.

    Attributes:
        now: the time, aware: for people and records, never for how long something takes.
        steady_s: seconds of a clock that nobody sets and that stands still while the machine
            sleeps: a laptop that was closed overnight has not been idle.
    """

    now: Callable[[], datetime] = utc_now
    steady_s: Callable[[], float] = time.monotonic


SYSTEM_CLOCKS = Clocks()
