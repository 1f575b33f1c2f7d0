"""One kernel: its queue, its state, its clients; no process and, while idle, no task."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from typing import Any, cast

from kernel_gateway.dispatch.failures import CellRefused, Trouble
from kernel_gateway.dispatch.settle import Settled
from kernel_gateway.environments.environment import Environment
from kernel_gateway.errors import (
    CELL_INTERRUPTED,
    CONTAINER_DIED,
    KERNEL_MOVED,
    STORAGE_UNAVAILABLE,
    Failure,
    GatewayError,
    Started,
    StorageError,
)
from kernel_gateway.kernels import asking, query
from kernel_gateway.kernels.asking import Asking
from kernel_gateway.kernels.cell import Call, Cell
from kernel_gateway.kernels.cells_reply import cells_content
from kernel_gateway.kernels.comms import COMM_MESSAGES, CommCall, comm_info, notice
from kernel_gateway.kernels.inputs import past_inputs
from kernel_gateway.kernels.lineage import Lineage
from kernel_gateway.kernels.missed import Replay
from kernel_gateway.kernels.outlet import Sink
from kernel_gateway.kernels.recorded import RecordedKernel, at_once, killed_settled
from kernel_gateway.kernels.services import KernelServices
from kernel_gateway.kernels.state import ExecutionState, KernelEvent
from kernel_gateway.kernels.stdin import Stdin, take_reply
from kernel_gateway.kernels.variables import Variable
from kernel_gateway.messaging import requests
from kernel_gateway.messaging.caller import Caller
from kernel_gateway.messaging.message import BadMessage, InMessage
from kernel_gateway.messaging.replies import (
    KernelView,
    PastInput,
    error_content,
    is_known,
    reply_content,
)
from lambda_kernel.contract import keys
from lambda_kernel.contract.schema import encode

logger = logging.getLogger(__name__)

CONTROL_REQUESTS = frozenset({"interrupt_request", "shutdown_request"})


class LambdaKernel(RecordedKernel):
    """A kernel whose cells are Lambda invocations."""

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

    @property
    def probe(self) -> dict[str, Any] | None:
        """What isolation the last container of its environment had; None before the first cell."""
        found = self._services.probes.get(self.environment.id)
        return None if found is None else encode(found)

    def attach(
        self,
        sink: Sink,
        session_id: str | None = None,
        *,
        replay: Replay | None = None,
        ready: Callable[[], Awaitable[None]] = at_once,
    ) -> None:
        """Attach a client as RecordedKernel does, and ask it what the running cell asks."""
        super().attach(sink, session_id, replay=replay, ready=ready)
        if self._cell is not None and self._cell.stdin is not None:
            self._cell.stdin.attach(sink, session_id or "")

    def detach(self, sink: Sink) -> None:
        """Send ``sink`` nothing more; its session is given what it missed when it comes back."""
        self._outlet.detach(sink)
        if self._asking is not None:
            self._asking.forget(sink)
        for cell in (self._cell, *(self._queue or ())):
            if cell is not None:
                cell.detach(sink)

    def receive_raw(
        self,
        data: object,
        sink: Sink,
        *,
        buffers: Sequence[bytes | memoryview] = (),
        channel: str | None = None,
        caller: Caller | None = None,
    ) -> None:
        """Read a message from decoded JSON and `receive` it.

        What is not a message is logged and answered with an ``error`` on iopub for ``sink`` only.
        """
        try:
            message = InMessage.read(data, buffers=buffers, channel=channel, caller=caller)
        except BadMessage as problem:
            self.refuse(str(problem), sink)
            return
        self.receive(message, sink)

    def refuse(self, problem: str, sink: Sink) -> None:
        """Tell ``sink``, and nobody else, that what it sent is not a message."""
        logger.warning("a message was refused", extra={"reason": problem})
        content = error_content("BadMessage", problem)
        del content["status"]
        self._outlet.tell(sink, "error", content)

    def receive(self, message: InMessage, sink: Sink) -> None:
        """Answer, queue or log a message; the reply goes to ``sink``. Never raises."""
        self._outlet.last_activity = self._services.now()
        try:
            self._take(requests.checked(message), sink)
        except BadMessage as problem:
            logger.warning("a request was refused", extra={"reason": str(problem)})
            self._turn_away(message, sink, error_content("BadMessage", str(problem)))
        except Exception as problem:
            logger.exception("a message could not be handled")
            if message.msg_type.endswith("_request"):
                content = error_content("RequestFailed", f"the gateway failed: {problem!r}")
                self._turn_away(message, sink, content)
            else:
                self._idle_after(message)

    def _take(self, message: InMessage, sink: Sink) -> None:
        msg_type = message.msg_type
        if msg_type == "execute_request":
            self._enqueue(Cell(message, sink))
        elif msg_type in COMM_MESSAGES:
            self._enqueue(CommCall(message, sink))
        elif msg_type in CONTROL_REQUESTS:
            self._services.start(self._control(message, sink))
        elif msg_type in asking.KINDS:
            self._ask(asking.checked(message), sink)
        elif msg_type == "history_request":
            self._services.start(self._recall(message, sink))
        elif msg_type == "comm_info_request":
            self._services.start(self._tell_comms(message, sink))
        elif msg_type == "cells_request":
            self._services.start(self._tell_cells(message, sink))
        elif msg_type.endswith("_request"):
            self._answer_now(message, sink)
        elif msg_type == "input_reply":
            cell = self._cell
            stdin, flight = (cell.stdin, cell.flight) if cell is not None else (None, None)
            take_reply(message, sink, stdin, flight, self._services, self.refuse)
        else:
            logger.info("a message is ignored", extra={"msg_type": msg_type[:64]})

    async def variables(self) -> list[Variable]:
        """Return what the newest commit holds, by name (raises StorageError)."""
        return await query.variables(self._lineage, self._services)

    async def represent(self, name: str) -> dict[str, object]:
        """Return a variable with its ``repr``; raises as `query.represent` does."""
        return await query.represent(self._lineage, self.environment, self._services, name)

    def kept_output(self, seq: int) -> tuple[str, str]:
        """Return bucket and key of all that cell ``seq`` said, where it was too much to be sent."""
        key = keys.output_key(self._lineage.scope, self.kernel_id, seq)
        return self._services.stack.state, key

    async def interrupt(self) -> None:
        """Have the running cell interrupted; the second time, killed. Nothing happens while idle.

        Interrupted code raises KeyboardInterrupt, and what it did is committed. Code that does not
        end by that is killed (CellInterrupted) after some seconds.

        Raises:
            StorageError: its container cannot be told.
        """
        cell = self._cell
        if cell is None or cell.ended:
            return
        cell.ticket.withdraw()
        if cell.flight is not None:
            if cell.is_recorded:
                self._services.recorder.interrupted(self.record, cell.flight.invocation)
            await self._services.dispatcher.interrupt(cell.flight)

    async def cancel(self, msg_id: str) -> None:
        """Withdraw the execute_request with this id if it waits, interrupt it if it runs.

        Raises:
            StorageError: as `interrupt`.
        """
        if self._cell is not None and self._cell.message.msg_id == msg_id:
            await self.interrupt()
            return
        for cell in [each for each in self._queue or () if each.message.msg_id == msg_id]:
            cast("deque[Call]", self._queue).remove(cell)
            self._turn_away(cell.message, cell.sink, {"status": "aborted"})

    async def restart(self) -> None:
        """Abort everything, kill the running cell, empty the namespace; the id stays.

        Clients see ``starting`` and ``idle``; ``restarting`` is on the wire only where a kernel
        died by itself, and JupyterLab then says so in a dialog.

        Raises:
            IllegalTransition: it is dead, or being restarted.
            StorageError: the restart cannot be recorded; the namespace is as it was.
        """
        self._move(KernelEvent.RESTART)
        try:
            await self._close_open_cell(await self._stop("the kernel was restarted"))
            await self.settle_past()
            await self._lineage.empty(await self._lineage.close_open_cell())
            self._services.recorder.restarted(self.record)
            self._outlet.session = self._session_id()
            self._outlet.status("starting")
        finally:
            if self.execution_state is ExecutionState.RESTARTING:
                self._move(KernelEvent.READY)
                self._outlet.status("idle")
                self._begin()

    async def shutdown(self, reason: str = "shut down") -> None:
        """Abort everything, kill the running cell; the kernel is dead. Use the registry's."""
        if self.execution_state is ExecutionState.DEAD:
            return
        self._move(KernelEvent.SHUTDOWN)
        self.reason = reason
        killed = await self._stop("the kernel was shut down")
        try:
            await self._close_open_cell(killed)
        except GatewayError:
            logger.warning("the last cell of a kernel may still commit", exc_info=True)
        await self._services.recorder.closed(self.record, self.journal, reason)
        self._lineage.forget()
        self._outlet.status("dead")

    async def suspend(self, *, is_moved: bool = False) -> None:
        """Stop what runs: the gateway stops, or another has the kernel; what comes is refused."""
        self._lineage.is_left = is_moved
        if self.execution_state is ExecutionState.DEAD:
            return
        self._move(KernelEvent.SHUTDOWN)
        if is_moved:
            self.reason = "taken over by another gateway: connect again"
            await self._stop("this one gave no sign for too long", failure=KERNEL_MOVED)
        else:
            self.reason = "left to the next gateway: this one stops"
            await self._stop("the gateway stopped")

    def _ask(self, message: InMessage, sink: Sink) -> None:
        if self.execution_state is ExecutionState.DEAD:
            content = error_content("DeadKernel", f"this kernel was {self.reason}")
            self._turn_away(message, sink, content)
        else:
            if self._asking is None:
                self._asking = Asking(self._lineage, self.environment, self._services, self._answer)
            self._asking.ask(message, sink)

    def _answer(self, message: InMessage, sink: Sink, content: dict[str, Any]) -> None:
        self._outlet.status("busy", message)
        self._outlet.reply(message, sink, content)
        self._idle_after(message)

    async def _recall(self, message: InMessage, sink: Sink) -> None:
        self._answer_now(message, sink, await past_inputs(self._lineage, self._services))

    def _answer_now(self, message: InMessage, sink: Sink, past: Sequence[PastInput] = ()) -> None:
        if not is_known(message.msg_type):
            logger.warning("a request of unknown type", extra={"msg_type": message.msg_type[:64]})
        number, python = self._lineage.session_number, self._services.python_of(self.environment)
        view = KernelView(history=past, probe=self.probe, session=number, python=python)
        self._answer(message, sink, reply_content(message, view))

    async def _control(self, message: InMessage, sink: Sink) -> None:
        self._outlet.status("busy", message)
        content: dict[str, Any] = {"status": "ok"}
        try:
            if message.msg_type == "interrupt_request":
                await self.interrupt()
            elif message.content.get("restart") is True:
                content["restart"] = True
                await self.restart()
            else:
                content["restart"] = False
                await self._services.shut_down(self.kernel_id)
        except GatewayError as problem:
            content |= error_content(type(problem).__name__, str(problem))
        self._outlet.reply(message, sink, content)
        self._idle_after(message)

    async def _tell_comms(self, message: InMessage, sink: Sink) -> None:
        since = self._cell.comms if self._cell is not None else {}
        content = await comm_info(message.content, since, self._lineage, self._services)
        self._answer(message, sink, content)

    async def _tell_cells(self, message: InMessage, sink: Sink) -> None:
        try:
            await self.settle_past()
            content = await cells_content(
                message.content, self.journal, self._open_calls, lambda: self._outlet.said
            )
        except GatewayError as problem:
            content = error_content(type(problem).__name__, str(problem))
        self._answer(message, sink, content)
        if self._cell is not None and self._cell.stdin is not None:
            self._cell.stdin.attach(sink, "")

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
            aborted = [waiting for waiting in behind if isinstance(waiting, Cell)]
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
