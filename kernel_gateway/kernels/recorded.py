"""The side of a kernel that remembers: its clients, what they missed, and its journal."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace

from kernel_gateway.audit.journal import Journal
from kernel_gateway.dispatch.failures import CellRefused, Trouble
from kernel_gateway.dispatch.settle import Settled
from kernel_gateway.environments.environment import Environment
from kernel_gateway.errors import (
    AUDIT_UNAVAILABLE,
    CELL_INTERRUPTED,
    KERNEL_MOVED,
    STORAGE_UNAVAILABLE,
    Failure,
    GatewayError,
    HeldElsewhere,
    Moved,
    NotFound,
    Started,
)
from kernel_gateway.kernels import recovery
from kernel_gateway.kernels.cell import Call
from kernel_gateway.kernels.evidence import opening, start_facts
from kernel_gateway.kernels.lineage import Lineage
from kernel_gateway.kernels.missed import Replay
from kernel_gateway.kernels.model import KernelModel
from kernel_gateway.kernels.outlet import Client, Sink
from kernel_gateway.kernels.position import Position
from kernel_gateway.kernels.recorder import Recorded
from kernel_gateway.kernels.services import KernelServices
from kernel_gateway.kernels.transcript import Transcript
from kernel_gateway.messaging.message import InMessage
from lambda_kernel.contract.invocation import Invocation

logger = logging.getLogger(__name__)

UNRECORDED = (
    "[gateway] the audit journal cannot be written: this cell, and those after it as long as that "
    "is so, run unrecorded, as audit.required = false says\n"
)


async def at_once() -> None:
    """Return: the client can always take more."""


class RecordedKernel(KernelModel):
    """A kernel whose cells are in a journal, from which clients get what they missed."""

    __slots__ = ("_services",)

    def __init__(
        self, lineage: Lineage, environment: Environment, services: KernelServices
    ) -> None:
        super().__init__(lineage, environment, clocks=services.clocks)
        self._services = services

    def attach(
        self,
        sink: Sink,
        session_id: str | None = None,
        *,
        replay: Replay | None = None,
        ready: Callable[[], Awaitable[None]] = at_once,
    ) -> None:
        """Send iopub messages to ``sink`` from now on, after what its session has missed.

        Args:
            sink: takes the messages.
            session_id: of the client; one that was here before gets what it missed.
            replay: what a new session asks for.
            ready: waits until the client can take more of the past.
        """
        client = self._outlet.attach(sink, session_id, replay)
        # Now, so that the first cell need not wait for it.
        self._record_opening()
        if client.missed is not None or not self.journal.is_settled:
            self._services.start(self._bring_up_to_date(client, ready))

    async def settle_past(self) -> None:
        """Make sure that every cell of an earlier gateway has its end, and is told.

        Raises:
            GatewayError: the journal, or a commit, cannot be read or written.
        """
        settling, kernel_id = self._services.settling, self.kernel_id
        if self.journal.is_settled:
            return
        task = settling.get(kernel_id)
        if task is None:
            work = recovery.settle_past(self._lineage, self._outlet, self._services)
            task = settling[kernel_id] = asyncio.get_running_loop().create_task(work)
            task.add_done_callback(lambda _: settling.pop(kernel_id, None))
        await asyncio.shield(task)

    @property
    def journal(self) -> Journal:
        """What was asked of it, and what came out."""
        # Made when it is first needed: most kernels of a gateway are idle. A place that is known
        # before is that of a new kernel.
        recorder = self._services.recorder
        return recorder.journal(self.kernel_id, is_new=self._lineage.is_placed)

    def said_now(self, msg_id: str) -> Transcript | None:
        """Return what the cell of a request has said, where it runs."""
        said = self._outlet.said
        return said if said is not None and said.parent.get("msg_id") == msg_id else None

    async def _place(self) -> Position:
        """Return where its next cell commits, after the end of the one before is recorded.

        Raises:
            CellRefused: KernelMoved, AuditUnavailable or StorageUnavailable.
        """
        failure = STORAGE_UNAVAILABLE
        try:
            await self._lineage.hold()
            failure = AUDIT_UNAVAILABLE
            await self.settle_past()
            failure = STORAGE_UNAVAILABLE
            return await self._lineage.locate()
        except (HeldElsewhere, Moved, NotFound) as problem:
            raise CellRefused(KERNEL_MOVED, str(problem)) from problem
        except GatewayError as problem:
            raise CellRefused(failure, str(problem)) from problem

    async def _bring_up_to_date(self, client: Client, ready: Callable[[], Awaitable[None]]) -> None:
        try:
            await self.settle_past()
        except GatewayError:
            logger.warning("what an earlier gateway left cannot be settled yet", exc_info=True)
        await self._outlet.catch_up(client, self.journal, ready)

    def _record_opening(self) -> None:
        if self._lineage.record.opened_by is not None and self.journal.number == 0:
            event = opening(self.record, self.environment, self._services)
            self._services.recorder.opened_session(self.record, event)

    async def _record_start(self, request: InMessage, invocation: Invocation) -> bool:
        """Record that a cell is about to be sent; return whether it is (raises GatewayError)."""
        services = self._services
        self._record_opening()
        facts = start_facts(self.record, self.environment, services, invocation, request)
        found = await services.recorder.started(self.record, invocation, request, facts)
        if found is Recorded.NO_LONGER:
            self._outlet.publish("stream", {"name": "stderr", "text": UNRECORDED}, request)
        return found is Recorded.YES

    def _record_end(self, cell: Call, settled: Settled) -> None:
        said = self._outlet.said
        assert said is not None  # noqa: S101  (set when the cell began)
        said.is_over = True
        if cell.flight is None or not cell.is_recorded:
            self._outlet.forget(said)
            return
        self._services.recorder.finished(
            self.record,
            cell.flight.invocation,
            settled,
            said,
            cell.timings_ms,
            functools.partial(self._outlet.forget, said),
            answers=() if cell.stdin is None else cell.stdin.answers,
            code=self._services.dispatcher.code_of(cell.flight, settled.outcome),
        )

    async def _close_open_cell(self, killed: Call | None) -> None:
        """Make sure that a killed cell commits no more, and record its end.

        Raises:
            StorageError: that cannot be made sure.
        """
        if killed is None:
            return
        settled = killed_settled(killed, "")
        if killed.flight is not None and killed.flight.sent:
            left = await self._services.dispatcher.settle_left(killed.flight.invocation)
            self._lineage.advance(killed.flight.invocation, left)
            settled = replace(settled, head=left.head)
        self._record_end(killed, settled)


def killed_settled(cell: Call, why: str, failure: Failure = CELL_INTERRUPTED) -> Settled:
    """Return the end of a cell that was killed, as long as its commit point was not looked at."""
    is_sent = cell.flight is not None and cell.flight.sent
    started = Started.UNKNOWN if is_sent else Started.NO
    # Where another gateway has the kernel, it settles what was sent.
    return Settled(
        trouble=Trouble(failure=failure, started=started, detail=why),
        position_known=failure is not KERNEL_MOVED or not is_sent,
    )
