"""How a cell's process ended, in words."""

from __future__ import annotations

import contextlib
import os
import signal

from lambda_kernel.serving.errors import CellEnded, CellInterrupted, CellTimeout


def how_it_died(status: int | None) -> str:
    """Return what the wait status of a cell's process says; None = nobody reaped it."""
    if status is None:
        return "the process that it was forked from was killed"
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return f"exit status {code}"
    with contextlib.suppress(ValueError):
        return f"killed by signal {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def before_its_start(ended: CellEnded) -> CellEnded:
    """Return the same end in words that fit where no user code had begun."""
    if isinstance(ended, CellInterrupted):
        return CellInterrupted("it had not begun")
    if isinstance(ended, CellTimeout):
        return CellTimeout("the time was over before the cell could begin")
    return ended
