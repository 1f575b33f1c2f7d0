"""What a client is told when a cell did not simply run: from outcomes and exceptions to texts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernel_gateway import errors
from kernel_gateway.errors import Failure, GatewayError, InvokeError, Started
from lambda_kernel.contract.outcome import Outcome, Status


class CellRefused(GatewayError):
    """The cell is not sent; nothing started.

    Attributes:
        failure: what the client sees.
        detail: what exactly is wrong, for people; may be empty.
    """

    def __init__(self, failure: Failure, detail: str = "") -> None:
        super().__init__(f"{failure.text}: {detail}" if detail else failure.text)
        self.failure = failure
        self.detail = detail


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A failure of one cell.

    Attributes:
        failure: which row of the table.
        started: whether the cell's code began to run.
        detail: what exactly happened, or "".
    """

    failure: Failure
    started: Started
    detail: str = ""

    def text(self, last_count: int | None, *, position_known: bool = True) -> str:
        """Return the whole sentence for the client.

        Args:
            last_count: execution count of the last committed cell; None = no cell has committed.
            position_known: False where storage would not say whether this cell committed.
        """
        what = f"{self.failure.text} ({self.detail})" if self.detail else self.failure.text
        if not position_known:
            left = "whether it was committed is not known yet; the next cell will find out"
        elif last_count is None:
            left = "variables and files are as at the start of the session"
        else:
            left = f"variables and files are as after cell [{last_count}]"
        if position_known and self.failure in _CHANGES_LOST:
            left = f"these changes are lost: {left}"
        return f"{what}. Started: {self.started}; {left}."


_CHANGES_NOT_STORED = replace(
    errors.STORAGE_UNAVAILABLE,
    started=Started.YES,
    text="the cell ran, but what it changed could not be stored",
)
_CHANGES_LOST = (_CHANGES_NOT_STORED, errors.SNAPSHOT_TOO_LARGE, errors.RESULT_LOST)

_FAILURES: dict[Status, Failure] = {
    Status.TIMEOUT: errors.CELL_TIMEOUT,
    Status.OUT_OF_MEMORY: errors.CELL_OUT_OF_MEMORY,
    Status.PROCESS_DIED: errors.CELL_PROCESS_DIED,
    Status.INTERRUPTED: errors.CELL_INTERRUPTED,
    Status.STORAGE_UNAVAILABLE: errors.STORAGE_UNAVAILABLE,
    Status.WORKSPACE_TOO_LARGE: errors.WORKSPACE_TOO_LARGE,
    Status.SNAPSHOT_TOO_LARGE: errors.SNAPSHOT_TOO_LARGE,
    Status.PAYLOAD_TOO_LARGE: errors.PAYLOAD_TOO_LARGE,
    Status.PROBE_FAILED: errors.PROBE_FAILED,
    Status.INVALID_REQUEST: errors.REQUEST_REFUSED,
    Status.COMMIT_CONFLICT: errors.RESULT_LOST,
}

MAY_HAVE_COMMITTED = frozenset(
    {Status.OK, Status.ERROR, Status.STORAGE_UNAVAILABLE, Status.COMMIT_CONFLICT}
)
"""An uncommitted outcome of these may hide a commit whose answer was lost on its way."""


def trouble_of(outcome: Outcome, *, must_commit: bool = True) -> Trouble | None:
    """Return what went wrong according to the outcome, or None where the cell simply ran.

    Args:
        outcome: authentic.
        must_commit: False for requests that change nothing.
    """
    started = Started.YES if outcome.started else Started.NO
    if outcome.status in {Status.OK, Status.ERROR}:
        if outcome.committed or not must_commit:
            return None
        return Trouble(failure=errors.RESULT_LOST, started=started, detail=outcome.message)
    failure = _FAILURES[outcome.status]
    if outcome.status is Status.STORAGE_UNAVAILABLE and outcome.started:
        failure = _CHANGES_NOT_STORED
    return Trouble(failure=failure, started=started, detail=outcome.message)


def trouble_from(problem: InvokeError, *, seen_started: bool) -> Trouble:
    """Return what went wrong where no outcome came.

    Args:
        problem: how the Invoke ended.
        seen_started: whether an authentic frame said that user code began.
    """
    if isinstance(problem, errors.InvokeTimedOut):
        failure = errors.CELL_TIMEOUT
    elif isinstance(problem, errors.ForgedStream):
        failure = errors.FORGED_OUTCOME
    elif isinstance(problem, errors.InvokeThrottled):
        failure = errors.THROTTLED
    elif isinstance(problem, errors.LeaseLost):
        failure = errors.KERNEL_MOVED
    else:
        failure = errors.CONTAINER_DIED
    if seen_started:
        started = Started.YES
    elif problem.started is Started.NO:
        started = Started.NO
    else:
        started = Started.UNKNOWN
    return Trouble(failure=failure, started=started, detail=str(problem))
