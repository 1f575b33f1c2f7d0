"""Cells that ran although the journal could not be written, until it can say so."""

from __future__ import annotations

from dataclasses import dataclass, field

from kernel_gateway.audit.chain import CellStarted
from kernel_gateway.audit.later_events import LISTED_COUNT, CellsUnrecorded, Unrecorded


@dataclass(slots=True)
class Gaps:
    """The cells of each kernel that its journal misses so far, bounded."""

    _by_kernel: dict[str, CellsUnrecorded] = field(default_factory=dict)

    def find(self, kernel_id: str) -> CellsUnrecorded | None:
        """Return what is to be written before the kernel's next entry, None for nothing."""
        return self._by_kernel.get(kernel_id)

    def note(self, kernel_id: str, started: CellStarted, time: str, reason: str) -> bool:
        """Note a cell that goes without entries; return whether it is the first of its gap.

        Args:
            kernel_id: whose.
            started: what its entry would have said.
            time: when.
            reason: why it has none.
        """
        gap = self._by_kernel.get(kernel_id)
        facts = started.gateway
        cell = Unrecorded(
            request_id=started.request_id,
            execution_count=started.execution_count,
            time=time,
            source_digest=None if facts is None else facts.source_digest,
        )
        if gap is None:
            gap = CellsUnrecorded(count=0, cells=(), reason=reason)
        self._by_kernel[kernel_id] = CellsUnrecorded(
            count=gap.count + 1, cells=(*gap.cells, cell)[:LISTED_COUNT], reason=gap.reason
        )
        return gap.count == 0

    def close(self, kernel_id: str) -> None:
        """Forget a gap: the journal tells of it, or is another gateway's to write."""
        self._by_kernel.pop(kernel_id, None)
