"""What a client is told, from outcomes and exceptions."""

from __future__ import annotations

import pytest

from kernel_gateway import errors
from kernel_gateway.dispatch.failures import Trouble, trouble_from, trouble_of
from kernel_gateway.errors import Started
from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.outcome import Outcome, Status


def outcome(status: Status, *, started: bool = True, committed: bool = False) -> Outcome:
    head = Head(seq=1, digest="a" * 64) if committed else None
    return Outcome(status=status, started=started, committed=committed, head=head, nonce="0" * 32)


@pytest.mark.parametrize("status", [Status.OK, Status.ERROR])
def test_a_cell_that_ran_and_committed_is_no_trouble(status: Status) -> None:
    assert trouble_of(outcome(status, committed=True)) is None
    assert trouble_of(outcome(status), must_commit=False) is None


@pytest.mark.parametrize(
    ("status", "started", "ename"),
    [
        (Status.OK, True, "ResultLost"),
        (Status.TIMEOUT, True, "CellTimeout"),
        (Status.OUT_OF_MEMORY, True, "CellOutOfMemory"),
        (Status.PROCESS_DIED, True, "CellProcessDied"),
        (Status.INTERRUPTED, True, "CellInterrupted"),
        (Status.STORAGE_UNAVAILABLE, False, "StorageUnavailable"),
        (Status.STORAGE_UNAVAILABLE, True, "StorageUnavailable"),
        (Status.WORKSPACE_TOO_LARGE, False, "WorkspaceTooLarge"),
        (Status.SNAPSHOT_TOO_LARGE, True, "SnapshotTooLarge"),
        (Status.PAYLOAD_TOO_LARGE, False, "PayloadTooLarge"),
        (Status.PROBE_FAILED, False, "ProbeFailed"),
        (Status.COMMIT_CONFLICT, True, "ResultLost"),
    ],
)
def test_every_other_end_has_its_name(status: Status, started: bool, ename: str) -> None:
    trouble = trouble_of(outcome(status, started=started))

    assert trouble is not None
    assert trouble.failure.ename == ename
    assert trouble.started is (Started.YES if started else Started.NO)


def test_every_status_is_mapped() -> None:
    for status in Status:
        trouble_of(outcome(status))


@pytest.mark.parametrize(
    ("problem", "seen", "ename", "started"),
    [
        (errors.InvokeThrottled("x"), False, "Throttled", Started.NO),
        (errors.InvokeNotSent("x"), False, "ContainerDied", Started.NO),
        (errors.InvokeBroken("x"), False, "ContainerDied", Started.UNKNOWN),
        (errors.InvokeBroken("x"), True, "ContainerDied", Started.YES),
        (errors.InvokeTimedOut("x"), True, "CellTimeout", Started.YES),
        (errors.InvokeTimedOut("x"), False, "CellTimeout", Started.UNKNOWN),
        (errors.ForgedStream("x"), False, "ForgedOutcome", Started.UNKNOWN),
    ],
)
def test_an_invocation_without_outcome_has_its_name(
    problem: errors.InvokeError, seen: bool, ename: str, started: Started
) -> None:
    trouble = trouble_from(problem, seen_started=seen)

    assert (trouble.failure.ename, trouble.started) == (ename, started)


def test_the_text_says_what_started_and_what_is_left() -> None:
    trouble = Trouble(failure=errors.CELL_TIMEOUT, started=Started.YES, detail="15 s")

    assert trouble.text(6) == (
        "the cell ran into its time limit (15 s). Started: yes; "
        "variables and files are as after cell [6]."
    )
    assert "as at the start of the session" in trouble.text(None)
    assert "not known yet" in trouble.text(6, position_known=False)
