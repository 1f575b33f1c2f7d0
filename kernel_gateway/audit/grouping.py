"""Which entries of a chain are about one cell. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from kernel_gateway.audit.chain import CellFinished, CellInterrupted, CellStarted, Entry
from kernel_gateway.audit.events import SessionForked


def incomplete(entries: Iterable[Entry]) -> list[CellStarted]:
    """Return the cells that started and of which no end is known, oldest first."""
    open_cells: dict[str, CellStarted] = {}
    for entry in entries:
        event = entry.event
        if isinstance(event, CellStarted):
            open_cells[event.request_id] = event
        elif isinstance(event, CellFinished):
            open_cells.pop(event.request_id, None)
    return list(open_cells.values())


def belongs(entry: Entry, first: Entry, last: Entry) -> bool:
    """Return whether an entry goes on with a cell (or comm message), of which some are known.

    Args:
        entry: the one in question.
        first: of those that are known, which may be many: one for each interrupt.
        last: of the same.
    """
    started, event = first.event, entry.event
    return (
        isinstance(started, CellStarted)
        and not isinstance(last.event, CellFinished)
        and (
            # A kernel may be forked while its cell runs.
            isinstance(event, SessionForked)
            or (
                isinstance(event, CellFinished | CellInterrupted)
                and event.request_id == started.request_id
            )
        )
    )
