"""What a comparison says of a cell: how near the replay came, and why. Pure values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Standing(StrEnum):
    """How near a replay came to the record; see README, "What is compared"."""

    IDENTICAL = "identical"
    EQUIVALENT = "equivalent"
    DECLARED = "nondeterministic-declared"
    DIFFERENT = "different"
    FAILED = "failed"
    FIXED = "fixed"
    UNAVAILABLE = "unavailable"
    NOT_REPLAYABLE = "not-replayable"
    SKIPPED = "skipped"


COMPARED = (Standing.IDENTICAL, Standing.EQUIVALENT, Standing.DECLARED, Standing.DIFFERENT)
"""What outputs, files and state can be, the best first."""
NOT_RUN = (Standing.UNAVAILABLE, Standing.NOT_REPLAYABLE, Standing.SKIPPED)
"""What a cell is that was not run, or has nothing to be held against."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One thing that is not the same.

    Attributes:
        code: for programs, as ``text-differs`` or ``sanitised:address``.
        where: the output (``output 2, text/html``), path or variable; ``""`` = the cell as a whole.
        detail: a few words for people; text of the cell's in it is untrusted.
    """

    code: str
    where: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstDifference:
    """The first line that differs, as it was printed: untrusted.

    Attributes:
        where: as in `Reason`.
        recorded, replayed: the line; None where that side has none.
    """

    where: str
    recorded: str | None
    replayed: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartVerdict:
    """Of the outputs, of the files or of the state: one of `COMPARED`, and why."""

    standing: Standing
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Of one cell.

    Attributes:
        standing: of the cell: outputs and files decide, never the state.
        reasons: why the cell was not run, or ended in another way than it was recorded.
        outputs, files: None where there was nothing to compare.
        state: None where there was nothing to compare, or the variables are not known.
        first: the first line of the outputs that differs, None for none.
    """

    standing: Standing
    reasons: tuple[Reason, ...] = ()
    outputs: PartVerdict | None = None
    files: PartVerdict | None = None
    state: PartVerdict | None = None
    first: FirstDifference | None = None

    @property
    def all_reasons(self) -> tuple[Reason, ...]:
        """Return every reason: of the cell, its outputs, files and state."""
        parts = (self.outputs, self.files, self.state)
        return self.reasons + tuple(r for part in parts if part is not None for r in part.reasons)
