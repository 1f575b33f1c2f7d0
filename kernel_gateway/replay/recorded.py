"""What a trail says of its cells, read entry by entry: the input of a replay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kernel_gateway.audit.chain import (
    CellFinished,
    CellInterrupted,
    CellStarted,
    Entry,
    KernelRestarted,
    SignedEntry,
    epoch_after,
)
from kernel_gateway.audit.facts import Session, StartFacts
from kernel_gateway.audit.journal import ContentMissing, Journal
from kernel_gateway.audit.trail import groups
from kernel_gateway.errors import BadRequest, Conflict
from lambda_kernel.contract import keys
from lambda_kernel.contract.scope import Scope


class TrailSource(Protocol):
    """Where the entries of a trail are."""

    def entries(self) -> AsyncIterator[SignedEntry]:
        """Yield them from the first on (raises StorageError, BadRequest)."""

    async def end(self, cell: RecordedCell) -> CellFinished | None:
        """Return a cell's end with all that it said; None where only a digest of that is here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedCell:
    """A cell or comm message of a trail.

    Attributes:
        number: its place among them, from 1.
        started: how it began.
        finished: how it ended, without its messages; None = that is not recorded.
        finished_number: of the entry that says so.
        was_interrupted: somebody asked for it.
        session: counts restarts: cells of one session build on each other.
    """

    number: int
    started: CellStarted
    finished: CellFinished | None = None
    finished_number: int | None = None
    was_interrupted: bool = False
    session: int = 0

    @property
    def facts(self) -> StartFacts | None:
        """What the gateway knew of it."""
        return self.started.gateway

    @property
    def has_committed(self) -> bool:
        """Whether its variables and files were kept."""
        return self.finished is not None and self.finished.head is not None

    @property
    def tags(self) -> tuple[str, ...]:
        """Tags of the notebook's cell, where the front end sent them."""
        found = self.started.metadata.get("tags")
        return tuple(t for t in found if isinstance(t, str)) if isinstance(found, list) else ()

    @property
    def connectors(self) -> tuple[str, ...]:
        """Ids of the connectors whose values it could read."""
        handler = None if self.finished is None else self.finished.handler
        witness = None if handler is None else handler.witness
        return () if witness is None else witness.connectors


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTrail:
    """What is replayed.

    Attributes:
        kernel_id: whose journal it is.
        number, digest: of its last entry.
        cells: in order.
    """

    kernel_id: str
    number: int
    digest: str
    cells: Sequence[RecordedCell]

    @property
    def facts(self) -> StartFacts | None:
        """What the gateway knew of the first cell of which it said anything."""
        return next((cell.facts for cell in self.cells if cell.facts is not None), None)


def root_of(session: Session) -> str:
    """Return the prefix that the cells of a recorded session saw."""
    recorded = keys.workspace_prefix(session.owner.user, session.workspace, session.run)
    return session.prefix or recorded


def scope_of(session: Session, kernel_id: str) -> Scope | None:
    """Return whose state they saw; None for a replay's, which is not kept."""
    if session.derived_from is not None:
        return None
    execution = kernel_id if session.scope == "execution" else None
    return Scope(user=session.owner.user, agent=session.owner.agent, execution=execution)


async def read(source: TrailSource) -> RecordedTrail:
    """Return the trail of a source.

    Raises:
        BadRequest: its entries do not follow each other, or there are none.
        StorageError: S3 does not answer.
    """
    cells: list[RecordedCell] = []
    places: dict[str, int] = {}
    session, last = 0, None
    async for signed in source.entries():
        _check_follows(last, signed)
        last = signed
        event = signed.entry.event
        if isinstance(event, CellStarted):
            places[event.request_id] = len(cells)
            cells.append(RecordedCell(number=len(cells) + 1, started=event, session=session))
        elif isinstance(event, CellFinished | CellInterrupted) and event.request_id in places:
            place = places[event.request_id]
            cells[place] = _with_event(cells[place], signed.entry)
        elif isinstance(event, KernelRestarted):
            session += 1
    if last is None:
        raise BadRequest("the trail has no entries")
    return RecordedTrail(
        kernel_id=last.entry.kernel_id, number=last.entry.number, digest=last.digest, cells=cells
    )


def _check_follows(last: SignedEntry | None, signed: SignedEntry) -> None:
    entry = signed.entry
    if last is None:
        if entry.number != 1:
            raise BadRequest("the trail does not begin with entry 1")
        return
    if (
        entry.number != last.entry.number + 1
        or entry.previous != last.digest
        or entry.kernel_id != last.entry.kernel_id
        or entry.epoch < epoch_after(last.entry)
    ):
        raise Conflict(f"entry {entry.number} does not follow entry {last.entry.number}: tampered")


def _with_event(cell: RecordedCell, entry: Entry) -> RecordedCell:
    event = entry.event
    if not isinstance(event, CellFinished):
        return replace(cell, was_interrupted=True)
    outputs = replace(event.outputs, messages=())
    return replace(
        cell,
        finished=replace(event, outputs=outputs),
        finished_number=entry.number,
    )


@dataclass(frozen=True, slots=True)
class JournalSource:
    """A trail in this deployment's own journal, up to an entry."""

    journal: Journal
    last_number: int

    async def entries(self) -> AsyncIterator[SignedEntry]:
        """Yield them from the first on (raises StorageError)."""
        async for group in groups(self.journal, self.last_number):
            for signed in group:
                yield signed

    async def end(self, cell: RecordedCell) -> CellFinished | None:
        """Return a cell's end with all that it said; None where that was removed.

        Raises:
            StorageError: S3 does not answer.
        """
        assert cell.finished_number is not None  # noqa: S101  (it has an end)
        try:
            event = (await self.journal.entry(cell.finished_number)).event
        except ContentMissing:
            return None
        return event if isinstance(event, CellFinished) else None


@dataclass(frozen=True, slots=True)
class SentSource:
    """A trail that a caller brings along: the payloads of its entries."""

    signed: Sequence[SignedEntry]

    async def entries(self) -> AsyncIterator[SignedEntry]:
        """Yield them from the first on."""
        for each in self.signed:
            yield each

    async def end(self, cell: RecordedCell) -> CellFinished | None:
        """Return a cell's end with all that it said; None where its entry does not hold that."""
        assert cell.finished_number is not None  # noqa: S101  (it has an end)
        event = self.signed[cell.finished_number - 1].entry.event
        if not isinstance(event, CellFinished) or event.outputs.blob is not None:
            return None
        return event
