"""How long the past of a kernel is kept."""

from __future__ import annotations

from dataclasses import dataclass

DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long the past of a kernel is kept; whichever ends first.

    Attributes:
        days: since a commit.
        cells: commits of a kernel, the newest ones.
        timeout_s: the longest that a cell may take.
    """

    days: float = 30.0
    cells: int = 1000
    timeout_s: float = 900.0

    @property
    def grace_s(self) -> float:
        """What began before so long has ended, and all that it wrote can be seen."""
        return 2 * self.timeout_s
