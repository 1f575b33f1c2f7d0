"""Events that say what a journal does not hold: what was removed from it, what never got there."""

from __future__ import annotations

from dataclasses import dataclass

from lambda_kernel.contract.schema import InvalidField

LISTED_COUNT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentRemoved:
    """Stored outputs were deleted on purpose; the entries that name them stay.

    Attributes:
        blobs: SHA-256 (hex) of the objects.
        entries: numbers of the entries that name them.
        reason: why, in the words of who asked for it.
        user, agent: who asked for it; None where nobody did but the configuration.
    """

    blobs: tuple[str, ...]
    entries: tuple[int, ...]
    reason: str
    user: str | None = None
    agent: str | None = None

    def __post_init__(self) -> None:
        if not self.blobs or not self.reason.strip():
            raise InvalidField("content_removed", "must name what was removed, and why")


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrecorded:
    """A cell that ran although the journal could not be written.

    Attributes:
        request_id: of its invocation.
        execution_count: the number that it showed.
        time: when it was sent; ISO 8601, UTC.
        source_digest: SHA-256 (hex) of its source, redacted as an entry's is; None for a comm
            message.
    """

    request_id: str
    execution_count: int
    time: str
    source_digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellsUnrecorded:
    """Cells ran here that have no entries: the journal could not be written.

    Attributes:
        count: how many.
        cells: the first of them.
        reason: why the first could not be recorded.
    """

    count: int
    cells: tuple[Unrecorded, ...]
    reason: str


def removal_text(event: ContentRemoved) -> str:
    """Return what was removed, for people."""
    who = event.user or "the gateway"
    agent = f" (agent {event.agent})" if event.agent else ""
    entries = ", ".join(map(str, event.entries))
    reason = " ".join(event.reason.split())
    return f"{who}{agent} removed the outputs that entries {entries} name: {reason}"


def gap_text(event: CellsUnrecorded) -> str:
    """Return which cells are missing, for people."""
    numbers = ", ".join(f"[{cell.execution_count}]" for cell in event.cells)
    more = f" and {event.count - len(event.cells)} more" if event.count > len(event.cells) else ""
    return f"{event.count} cells ran here that are not recorded: {numbers}{more}: {event.reason}"
