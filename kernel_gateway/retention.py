"""How long the past of a kernel is kept, and how long it must be."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

DAY_S = 86_400
CLOCK_SKEW_S = 900
"""S3 answers nobody whose clock differs by more from its own, which dates the objects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long the past of a kernel is kept; whichever ends first.

    Attributes:
        days: since a commit.
        cells: commits of a kernel, the newest ones.
        timeout_s: the longest that a cell may take.
        journal_days: since a kernel has ended, of its journal; None = for good.
    """

    days: float = 30.0
    cells: int = 1000
    timeout_s: float = 900.0
    journal_days: int | None = None

    @property
    def grace_s(self) -> float:
        """What began before so long by S3's clock has ended, and its writes can be seen."""
        return 2 * self.timeout_s + CLOCK_SKEW_S


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectLock:
    """How long a version of an object is neither deleted nor replaced.

    Attributes:
        mode: GOVERNANCE lets those delete who have the right to bypass it, COMPLIANCE nobody.
        age: from when it is written on.
    """

    mode: Literal["GOVERNANCE", "COMPLIANCE"]
    age: timedelta
