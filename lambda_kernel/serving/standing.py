"""What a process of ours may use and how it is scheduled: a cell of the same user can change it.

prlimit(2), setpriority(2) and sched_setscheduler(2) ask for the same user only. What a cell
changes of the zygote would hold for the next tenant's cells, which inherit it.
"""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass

_LIMITS = tuple(sorted({v for n, v in vars(resource).items() if n.startswith("RLIMIT_")}))


@dataclass(frozen=True, slots=True)
class Standing:
    """Limits, niceness, scheduling policy and processors of one process."""

    limits: tuple[tuple[int, int], ...]
    niceness: int
    policy: int
    processors: frozenset[int]

    @classmethod
    def of(cls, pid: int) -> Standing:
        """Return the standing of ``pid`` (raises OSError: it is gone)."""
        return cls(
            limits=tuple(resource.prlimit(pid, limit) for limit in _LIMITS),
            niceness=os.getpriority(os.PRIO_PROCESS, pid),
            policy=os.sched_getscheduler(pid),
            processors=frozenset(os.sched_getaffinity(pid)),
        )
