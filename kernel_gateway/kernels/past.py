"""The cells of a kernel, as its journal has them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, replace

from kernel_gateway.audit.chain import CellFinished, CellStarted, Entry, SessionClosed
from kernel_gateway.audit.journal import Journal

READ_AHEAD_COUNT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class PastCell:
    """One cell.

    Attributes:
        number: of the entry about its end, or about its start where there is no end.
        started: what was asked.
        started_time, finished_time: by the gateway's clock; ISO 8601, UTC.
        finished: how it ended, None where it runs.
    """

    number: int
    started: CellStarted
    started_time: str
    finished: CellFinished | None = None
    finished_time: str | None = None


async def past_cells(
    journal: Journal,
    *,
    last_count: int,
    since: str | None = None,
    is_open: bool = False,
    is_wanted: Callable[[], bool] = lambda: True,
) -> list[PastCell]:
    """Return the newest cells, oldest first, without what they said.

    Args:
        journal: of their kernel.
        last_count: at most so many.
        since: only those after the cell of this request, a msg_id.
        is_wanted: asked while it reads; what was found so far is returned once it is not.
        is_open: the kernel is there, so what was closed is an earlier one of the same id.

    Raises:
        GatewayError: the journal cannot be read.
    """
    await journal.flush()
    found: list[PastCell] = []
    ends: dict[str, Entry] = {}
    async with aclosing(journal.newest_first(ahead_count=READ_AHEAD_COUNT)) as entries:
        async for entry in entries:
            event = entry.event
            if not is_wanted():
                break
            if isinstance(event, CellFinished):
                bare = replace(event, outputs=replace(event.outputs, messages=()))
                ends[event.request_id] = replace(entry, event=bare)
            elif is_open and isinstance(event, SessionClosed):
                break
            elif isinstance(event, CellStarted):
                if event.msg_id == since or len(found) == last_count:
                    break
                if event.is_cell:
                    found.append(_cell(entry, event, ends.pop(event.request_id, None)))
    return found[::-1]


def _cell(entry: Entry, started: CellStarted, end: Entry | None) -> PastCell:
    finished = end.event if end is not None else None
    assert finished is None or isinstance(finished, CellFinished)  # noqa: S101
    return PastCell(
        number=entry.number if end is None else end.number,
        started=started,
        started_time=entry.time,
        finished=finished,
        finished_time=None if end is None else end.time,
    )
