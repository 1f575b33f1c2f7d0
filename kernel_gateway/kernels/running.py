"""The side of a kernel that runs calls, one after the other; no task while there is none."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

from kernel_gateway.dispatch.failures import CellRefused, Trouble
from kernel_gateway.dispatch.settle import Settled
from kernel_gateway.environments.environment import Environment
from kernel_gateway.errors import (
    CELL_INTERRUPTED,
    CONTAINER_DIED,
    STORAGE_UNAVAILABLE,
    Failure,
    GatewayError,
    Started,
    StorageError,
)
from kernel_gateway.kernels.asking import Asking
from kernel_gateway.kernels.cell import Call, Cell
from kernel_gateway.kernels.comms import COMM_MESSAGES, notice
from kernel_gateway.kernels.lineage import Lineage
from kernel_gateway.kernels.outlet import Sink
from kernel_gateway.kernels.recorded import RecordedKernel, killed_settled
from kernel_gateway.kernels.services import KernelServices
from kernel_gateway.kernels.state import ExecutionState, KernelEvent
from kernel_gateway.kernels.stdin import Stdin
from kernel_gateway.messaging.message import InMessage
from kernel_gateway.messaging.replies import error_content

logger = logging.getLogger(__name__)


class RunningKernel(RecordedKernel):
    """A kernel with a queue of calls, the call that runs, and questions beside them."""

    __slots__ = ("_asking", "_cell", "_queue", "_task")

    def __init__(
        self, lineage: Lineage, *, environment: Environment, services: KernelServices
    ) -> None:
        super().__init__(lineage, environment, services)
        self._asking: Asking | None = None
        self._queue: deque[Call] | None = None
        self._cell: Call | None = None
        self._task: asyncio.Task[None] | None = None
        self._move(KernelEvent.READY)

    @property
    def queued(self) -> int:
        """How many cells and comm messages wait behind the running one."""
        return len(self._queue or ())

    def _open_calls(self) -> list[Call]:
        running = [self._cell] if self._cell is not None and not self._cell.ended else []
        return [*running, *(self._queue or ())]

    def _enqueue(self, cell: Call) -> None:
        if self.execution_state is ExecutionState.DEAD:
            content = error_content("DeadKernel", f"this kernel was {self.reason}")
            self._turn_away(cell.message, cell.sink, content)
        elif self._queue and self._queue[-1].takes_over(cell):
            return
        elif self.queued >= self._services.settings.max_queued:
            content = error_content("QueueFull", f"{self.queued} requests wait already")
            self._turn_away(cell.message, cell.sink, content)
        else:
            if self._queue is None:
                self._queue = deque()
            self._queue.append(cell)
            self._begin()

    def _begin(self) -> None:
        if self._queue and self._task is None and self.execution_state is ExecutionState.IDLE:
            self._task = asyncio.get_running_loop().create_task(self._run_queue())

    async def _run_queue(self) -> None:
        while self._queue:
            self._cell = cell = self._queue.popleft()
            try:
                await self._run_cell(cell)
            except CellRefused as refused:
                trouble = Trouble(
                    failure=refused.failure, started=Started.NO, detail=refused.detail
                )
                self._conclude(cell, Settled(trouble=trouble))
            except Exception:
                logger.exception("a cell could not be handled")
                if not cell.ended:
                    trouble = Trouble(failure=CONTAINER_DIED, started=Started.UNKNOWN)
                    self._conclude(cell, Settled(trouble=trouble, position_known=False))
            self._cell = None
        self._queue = self._task = None

    async def _run_cell(self, cell: Call) -> None:
        lineage, say = self._lineage, self._say(cell)
        self._outlet.begin(cell.message.header, limit_bytes=self._services.settings.kept_bytes)
        self._move(KernelEvent.CELL_BEGINS)
        self._outlet.status("busy", cell.message)
        try:
            position = await self._place()
        except CellRefused:
            cell.admit(lineage.execution_count, say, self._services)
            raise
        cell.admit(lineage.execution_count, say, self._services)
        try:
            foregone = await cell.foregone(lineage, say, self._services)
        except StorageError as problem:
            raise CellRefused(STORAGE_UNAVAILABLE, str(problem)) from problem
        if foregone is not None:
            self._conclude(cell, foregone)
            return
        if cell.stores_history:
            lineage.execution_count = cell.count
            history, session = self._services.history, lineage.session_number
            history.add(self.kernel_id, cell.count, cell.code, session)
        facts = lineage.facts(position, cell.count, self.environment)
        if self._asking is not None:
            await self._asking.give_way()
        function_name = self._services.stack.function_name(self.environment.id)
        cell.stdin = Stdin(cell.message, cell.sink, self._outlet)
        note = functools.partial(self._record_start, cell.message)
        async with aclosing(cell.invoke(facts, function_name, say, self._services, note)) as ends:
            async for settled in ends:
                self._conclude(cell, settled)
        await lineage.prefetch()

    def _conclude(self, cell: Call, settled: Settled) -> None:
        """Step 9: the session advances or does not; the client is told; the queue goes on."""
        self._lineage.advance(cell.flight.invocation if cell.flight else None, settled)
        went_well = cell.answer(settled, self._lineage.last_count, self._outlet)
        self._note_timings(cell.timings_ms)
        if settled.outcome is not None and settled.outcome.probe is not None:
            self._services.probes[self.environment.id] = settled.outcome.probe
        self._move(KernelEvent.CELL_ENDS)
        self._outlet.status("idle", cell.message)
        self._record_end(cell, settled)
        if not went_well and cell.stops_queue and self._queue:
            # What came after the error was shown was sent by somebody who knows of it.
            behind = list(self._queue)[: cell.behind_count]
            aborted = dict.fromkeys(waiting for waiting in behind if isinstance(waiting, Cell))
            self._queue = deque(each for each in self._queue if each not in aborted)
            for waiting in aborted:
                self._turn_away(waiting.message, waiting.sink, {"status": "aborted"})

    def _turn_away(self, message: InMessage, sink: Sink | None, content: dict[str, Any]) -> None:
        """Answer a request that does not become a cell."""
        self._outlet.status("busy", message)
        if message.msg_type in COMM_MESSAGES:
            why = content.get("evalue", "the kernel was restarted or shut down")
            self._outlet.publish("stream", notice(f"it was not handled: {why}"), message)
            self._idle_after(message)
            return
        metadata = {
            "dependencies_met": True,
            "engine": "",
            "status": content["status"],
            "lambda_kernel": {"failure": content.get("ename"), "code_started": Started.NO},
        }
        self._outlet.reply(message, sink, content, metadata)
        self._idle_after(message)

    async def _stop(self, why: str, *, failure: Failure = CELL_INTERRUPTED) -> Call | None:
        """End the queue and the running cell; return the cell that was killed."""
        task, cell, queue = self._task, self._cell, self._queue
        self._task = self._cell = self._queue = None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        killed = cell if cell is not None and not cell.ended else None
        if killed is not None:
            await self._kill(killed, why, failure)
        for waiting in queue or ():
            self._turn_away(waiting.message, waiting.sink, {"status": "aborted"})
        return killed

    async def _kill(self, cell: Call, why: str, failure: Failure) -> None:
        flight = cell.flight
        settled = killed_settled(cell, why, failure)
        cell.answer(settled, self._lineage.last_count, self._outlet)
        self._outlet.status("idle", cell.message)
        if flight is None:
            return
        try:
            await self._services.dispatcher.interrupt(flight, kill=True)
        except GatewayError:
            logger.warning("a container could not be told to stop its cell", exc_info=True)

    def _idle_after(self, message: InMessage) -> None:
        """Say idle for a request that was answered at once; say again that a cell runs, if so.

        Clients show the last status they saw, whatever its parent.
        """
        self._outlet.status("idle", message)
        if self.execution_state is ExecutionState.BUSY and self._cell is not None:
            self._outlet.status("busy", self._cell.message)

    def _say(self, cell: Call) -> Callable[..., None]:
        def say(msg_type: str, content: dict[str, Any], **rest: Any) -> None:
            if msg_type == "error" and cell.behind_count is None:
                cell.behind_count = self.queued
            self._outlet.publish(msg_type, content, cell.message, **rest)

        return say
