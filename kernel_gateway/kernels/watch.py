"""What the journals last said of each kernel's conditions, so that a change is an event."""

from __future__ import annotations

from dataclasses import dataclass

from kernel_gateway.audit.chain import CellFinished, CellStarted, Event
from kernel_gateway.audit.events import ConnectorsGranted, PolicyChanged, changes_between
from kernel_gateway.audit.facts import StartFacts
from kernel_gateway.audit.journal import Journal

LOOK_BACK_COUNT = 8
"""So many entries of an earlier gateway are read."""


@dataclass(slots=True)
class _Said:
    facts: StartFacts | None = None
    connectors: tuple[str, ...] = ()


class Watch:
    """Remembers it; one of a gateway."""

    def __init__(self) -> None:
        self._kernels: dict[str, _Said] = {}

    async def recall(self, kernel_id: str, journal: Journal) -> None:
        """Read what an earlier gateway has said (raises StorageError)."""
        said, seen_end = _Said(), False
        read_count = 0
        async for entry in journal.newest_first(ahead_count=LOOK_BACK_COUNT):
            event = entry.event
            if isinstance(event, CellFinished) and not seen_end and event.handler is not None:
                seen_end = True
                said.connectors = _connectors(event)
            if isinstance(event, CellStarted):
                said.facts = event.gateway
                break
            read_count += 1
            if read_count >= LOOK_BACK_COUNT:
                break
        self._kernels[kernel_id] = said

    def before(self, kernel_id: str, facts: StartFacts) -> PolicyChanged | None:
        """Return what is to be said before a cell, None where nothing is different."""
        said = self._kernels.setdefault(kernel_id, _Said())
        changed = () if said.facts is None else changes_between(said.facts, facts)
        said.facts = facts
        return PolicyChanged(changed=changed) if changed else None

    def after(self, kernel_id: str, event: CellFinished) -> ConnectorsGranted | None:
        """Return what is to be said after a cell, None where nothing is different."""
        said = self._kernels.setdefault(kernel_id, _Said())
        if event.handler is None or event.handler.witness is None:
            return None
        connectors = _connectors(event)
        if connectors == said.connectors:
            return None
        said.connectors = connectors
        return ConnectorsGranted(
            request_id=event.request_id,
            connectors=connectors,
            secret=event.handler.witness.secret,
        )

    def forget(self, kernel_id: str) -> None:
        """Know nothing of a kernel."""
        self._kernels.pop(kernel_id, None)


def _connectors(event: Event) -> tuple[str, ...]:
    said = event.handler if isinstance(event, CellFinished) else None
    return () if said is None or said.witness is None else said.witness.connectors
