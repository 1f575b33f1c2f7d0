"""What is told of a cell whose end is in the journal: no code, no output, no name that it chose."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from kernel_gateway.audit.chain import CellFinished
from kernel_gateway.kernels.record import KernelRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedCell:
    """One cell.

    Attributes:
        kernel_id, user, agent, workspace: of its kernel.
        request_id: of its invocation.
        execution_count: the number that it shows.
        entry: number of the journal's entry about its end.
        finished: the time in that entry; ISO 8601, UTC.
        status, failure: see CellFinished.
        committed: whether its variables and files were kept.
        files: how many it created, modified and deleted.
        timings_ms: duration per step that the gateway has measured.
    """

    kernel_id: str
    user: str
    agent: str | None
    workspace: str
    request_id: str
    execution_count: int
    entry: int
    finished: str
    status: str
    failure: str | None
    committed: bool
    files: dict[str, int] = field(default_factory=dict)
    timings_ms: dict[str, float] = field(default_factory=dict)

    @classmethod
    def of(
        cls, record: KernelRecord, event: CellFinished, count: int, entry: int, time: str
    ) -> FinishedCell:
        """Return what is told of a cell; the last ones are what its attributes say."""
        changes = Counter(each.change for each in event.handler.files) if event.handler else {}
        return cls(
            kernel_id=record.kernel_id,
            user=record.owner.user,
            agent=record.owner.agent,
            workspace=record.options.workspace,
            request_id=event.request_id,
            execution_count=count,
            entry=entry,
            finished=time,
            status=event.status,
            failure=event.failure,
            committed=event.head is not None,
            files={name: changes.get(name, 0) for name in ("created", "modified", "deleted")},
            timings_ms={} if event.gateway is None else dict(event.gateway.timings_ms),
        )
