"""Which cells of a trail a replay runs, in which way, and which it cannot. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from kernel_gateway import errors
from kernel_gateway.errors import BadRequest
from kernel_gateway.replay.recorded import RecordedCell

Mode = Literal["sequential", "pinned"]
Network = Literal["none", "recorded"]

NO_FAULT_OF_THE_CELL = frozenset(
    failure.ename
    for failure in (
        errors.CELL_TIMEOUT,
        errors.CELL_INTERRUPTED,
        errors.CONTAINER_DIED,
        errors.KERNEL_MOVED,
        errors.STORAGE_UNAVAILABLE,
        errors.THROTTLED,
        errors.WORKSPACE_TOO_LARGE,
        errors.RESULT_LOST,
        errors.FORGED_OUTCOME,
        errors.PROBE_FAILED,
        errors.AUDIT_UNAVAILABLE,
        errors.CELL_LOST,
    )
)
"""Names of failures that say more of the day it ran than of its code."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRequest:
    """What a caller asks for; checked when made (raises BadRequest).

    Attributes:
        mode: ``sequential``: one after the other in one session. ``pinned``: each from its own
            recorded state.
        begin: sequential from this cell on, with the recorded state before it; None = the first.
        only: these cells alone, which is always pinned.
        parameters: variables that are set anew, by name.
        network: ``recorded`` is what was recorded, which is ``none``.
        has_connectors: whether cells get the connectors of the recorded agent.
        keeps_files: whether what it wrote stays.
    """

    mode: Mode = "sequential"
    begin: int | None = None
    only: tuple[int, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)
    network: Network = "none"
    has_connectors: bool = False
    keeps_files: bool = True

    def __post_init__(self) -> None:
        if self.begin is not None and (self.only or self.mode == "pinned"):
            raise BadRequest("--from: is for the mode sequential, and not together with --only")
        if self.parameters and self.is_pinned:
            raise BadRequest(
                "-p: pinned cells begin with recorded variables, which parameters would not "
                "change; leave --mode pinned and --only out"
            )
        for name in self.parameters:
            if not name.isidentifier():
                raise BadRequest(f"-p: {name[:64]!a} is no name of a variable")

    @property
    def is_pinned(self) -> bool:
        """Whether each cell begins with its own recorded state."""
        return self.mode == "pinned" or bool(self.only)

    def selected(self, cells: Sequence[RecordedCell]) -> list[RecordedCell]:
        """Return the cells that are asked for, in order.

        Raises:
            BadRequest: there is no such cell.
        """
        count = len(cells)
        for option, numbers in (("--from", (self.begin or 1,)), ("--only", self.only)):
            wrong = [n for n in numbers if not 1 <= n <= count]
            if wrong and count:
                raise BadRequest(f"{option} {wrong[0]}: the trail has the cells 1 to {count}")
        if self.only:
            return [cell for cell in cells if cell.number in self.only]
        return [cell for cell in cells if cell.number >= (self.begin or 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """What happens to a cell.

    Attributes:
        runs: whether it is run at all: what comes later may build on it.
        reason: why it is not compared, ``""`` where it is; see CellPair.
    """

    runs: bool = True
    reason: str = ""


def treatment(cell: RecordedCell) -> Treatment:
    """Return what a replay does with a cell."""
    if not cell.started.is_cell:
        return _left_out("a message of a widget's front end: its comm exists in that session only")
    finished = cell.finished
    if finished is None:
        return _left_out("how it ended is not recorded")
    if cell.facts is None:
        return _left_out("an earlier version recorded it, which did not say what it ran in")
    if cell.facts.received_mac is not None:
        return _left_out("its source was redacted: what ran is not recorded")
    if finished.status == "lost":
        return _left_out("it was lost: a gateway ended while it was in flight")
    if finished.failure in NO_FAULT_OF_THE_CELL:
        return _left_out(f"it ended by {finished.failure}, which its code does not decide alone")
    if cell.was_interrupted:
        return _left_out("it was interrupted: how far it came is not decided by its code")
    if not finished.outputs.is_complete:
        return Treatment(reason="not-replayable: what it printed is not recorded")
    return Treatment()


def _left_out(why: str) -> Treatment:
    return Treatment(runs=False, reason=f"not-replayable: {why}")
