"""A cell that was in flight when its gateway ended: what became of it, for the next gateway."""

from __future__ import annotations

import logging

from kernel_gateway.audit.chain import CellStarted
from kernel_gateway.audit.journal import JournalConflict
from kernel_gateway.dispatch.failures import Trouble
from kernel_gateway.dispatch.settle import Attempt, Settled
from kernel_gateway.errors import CELL_LOST, Started
from kernel_gateway.kernels.cell import Call, Cell
from kernel_gateway.kernels.comms import CommCall
from kernel_gateway.kernels.lineage import Lineage
from kernel_gateway.kernels.outlet import Outlet
from kernel_gateway.kernels.position import UnreadableCommit
from kernel_gateway.kernels.services import KernelServices
from kernel_gateway.kernels.transcript import Transcript
from kernel_gateway.messaging.message import InMessage

logger = logging.getLogger(__name__)

ATTEMPTS = 3


async def settle_past(lineage: Lineage, outlet: Outlet, services: KernelServices) -> None:
    """Find the end of a cell that an earlier gateway left, record it, and tell its session.

    A cell that has not committed is lost, also where its container still runs: what is known at
    once and for good is worth more than an end whose output nobody would have.

    Raises:
        GatewayError: the journal or the commit cannot be read or written.
    """
    # What another gateway's cells become is not for this one to say.
    await lineage.hold()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            await _settle(lineage, outlet, services)
            break
        except JournalConflict:
            # The gateway before was still writing: what it wrote is the end.
            if attempt == ATTEMPTS:
                raise
    services.recorder.journal(lineage.record.kernel_id).is_settled = True


async def _settle(lineage: Lineage, outlet: Outlet, services: KernelServices) -> None:
    record, recorder = lineage.record, services.recorder
    found = await recorder.open_cell(record.kernel_id)
    if found is None:
        return
    settled = await services.dispatcher.settle_left(_attempt(found, lineage))
    if settled.head is None:
        settled = Settled(trouble=Trouble(failure=CELL_LOST, started=Started.UNKNOWN))
    said = _said(found, settled, await _last_count(lineage), outlet.session, services)
    await recorder.settled(record, found, settled, said)
    outlet.tell_late(said)
    logger.warning(
        "a cell of an earlier gateway was settled",
        extra={"request_id": found.request_id, "committed": settled.committed},
    )


async def _last_count(lineage: Lineage) -> int | None:
    try:
        return (await lineage.look()).head_count
    except UnreadableCommit:
        # The kernel's next cell says so; a restart, which helps, must not fail for it.
        return None


def _attempt(cell: CellStarted, lineage: Lineage) -> Attempt:
    return Attempt(
        kernel_id=lineage.record.kernel_id,
        scope=lineage.scope,
        seq=cell.seq,
        parent_head=cell.parent,
        parent_kernel_id=cell.parent_kernel_id,
        request_id=cell.request_id,
        execution_count=cell.execution_count,
    )


def _said(
    started: CellStarted,
    settled: Settled,
    last_count: int | None,
    session: str,
    services: KernelServices,
) -> Transcript:
    """Return what is told of the cell now, which is not all that it said."""
    request = InMessage(header=started.header, metadata=started.metadata, content=started.content)
    kind: type[Call] = Cell if started.is_cell else CommCall
    cell = kind(request, None, request_id=started.request_id)
    cell.count = started.execution_count
    # Nobody is attached to it: its transcript is what is wanted.
    draft = Outlet(session, clocks=services.clocks)
    said = draft.begin(started.header, limit_bytes=services.settings.kept_bytes)
    draft.status("busy", request)
    cell.answer(settled, last_count, draft)
    draft.status("idle", request)
    said.is_over = True
    return said
