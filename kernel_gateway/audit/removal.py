"""Removes what cells have said from a journal, so that it says so and still verifies."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernel_gateway.audit.chain import CellFinished, CellStarted
from kernel_gateway.audit.journal import Journal
from kernel_gateway.audit.later_events import ContentRemoved
from kernel_gateway.errors import BadRequest, Conflict, NotFound

READ_AHEAD_COUNT = 16


@dataclass(slots=True, kw_only=True)
class Removable:
    """What can be removed, and what cannot.

    Attributes:
        blobs: digests of the objects to be deleted, by number of the entry that names them.
        execution_counts: of the cells whose outputs go.
        inline: execution counts of the cells whose outputs stand in signed entries.
        removed: digests that a journal's entries name as removed already.
    """

    blobs: dict[int, str] = field(default_factory=dict)
    execution_counts: list[int] = field(default_factory=list)
    inline: list[int] = field(default_factory=list)
    removed: set[str] = field(default_factory=set)

    @property
    def is_news(self) -> bool:
        """Whether the journal does not say yet that all of it is removed."""
        return not set(self.blobs.values()) <= self.removed


async def find(journal: Journal, *, execution_count: int | None) -> Removable:
    """Return what can be removed from a journal.

    Args:
        journal: written to its end.
        execution_count: of the one cell; None = of all cells and comm messages.

    Raises:
        NotFound: there is no such cell.
        BadRequest: there are several, because the kernel was restarted.
        Conflict: nothing can be removed, or some of it is under Object Lock.
        StorageError: S3 does not answer.
    """
    found, count = await _listed(journal, execution_count)
    if execution_count is not None and count != 1:
        if not count:
            raise NotFound(f"the journal has no cell [{execution_count}]")
        raise BadRequest(
            f"{count} cells were [{execution_count}], before and after restarts: remove the "
            "content of the whole kernel"
        )
    if not found.blobs:
        raise Conflict(
            "nothing can be removed: what these cells said stands in signed entries, where it was "
            "written without audit.removable = true, or they said nothing"
        )
    for number, blob in found.blobs.items():
        if await journal.locked_until(blob) is not None:
            raise Conflict(f"what entry {number} names is under Object Lock: nothing was removed")
    return found


async def _listed(journal: Journal, execution_count: int | None) -> tuple[Removable, int]:
    """Return what stands apart from the entries, and how many cells are meant."""
    found, count, ends = Removable(), 0, dict[str, tuple[int, CellFinished]]()
    async for entry in journal.newest_first(ahead_count=READ_AHEAD_COUNT):
        event = entry.event
        if isinstance(event, ContentRemoved):
            found.removed.update(event.blobs)
        elif isinstance(event, CellFinished):
            ends[event.request_id] = (entry.number, event)
        elif isinstance(event, CellStarted) and _is_meant(event, execution_count):
            count += 1
            if event.request_id in ends:
                _add(found, event, *ends.pop(event.request_id))
    return found, count


async def remove(
    journal: Journal, found: Removable, event: ContentRemoved | None, *, epoch: int, time: str
) -> None:
    """Have the journal say what is removed, then delete it.

    Args:
        journal: of the kernel.
        found: what goes.
        event: says so; None = the journal does already.
        epoch: of the kernel's record, or what the journal asks for.
        time: ISO 8601, UTC.

    Raises:
        StorageError, JournalConflict: the journal could not say it, and nothing is deleted; or
            something is left, which a second call deletes.
    """
    if event is not None:
        await journal.append(event, epoch=epoch, time=time)
    for blob in sorted(set(found.blobs.values())):
        await journal.erase_blob(blob)


def _is_meant(event: CellStarted, execution_count: int | None) -> bool:
    if execution_count is None:
        return True
    return event.is_cell and event.execution_count == execution_count


def _add(found: Removable, started: CellStarted, number: int, end: CellFinished) -> None:
    if end.outputs.blob is not None:
        found.blobs[number] = end.outputs.blob
        found.execution_counts.append(started.execution_count)
    elif end.outputs.messages or end.reply is not None:
        found.inline.append(started.execution_count)
