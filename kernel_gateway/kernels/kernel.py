"""One kernel, as its clients speak to it; no process and, while idle, no task."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

from kernel_gateway.errors import (
    KERNEL_MOVED,
    GatewayError,
)
from kernel_gateway.kernels import asking, query, seeds
from kernel_gateway.kernels.asking import Asking
from kernel_gateway.kernels.cell import Call, Cell
from kernel_gateway.kernels.cells_reply import cells_content
from kernel_gateway.kernels.comms import COMM_MESSAGES, CommCall, comm_info
from kernel_gateway.kernels.inputs import past_inputs
from kernel_gateway.kernels.missed import Replay
from kernel_gateway.kernels.outlet import Sink
from kernel_gateway.kernels.recorded import at_once
from kernel_gateway.kernels.running import RunningKernel
from kernel_gateway.kernels.state import ExecutionState, KernelEvent
from kernel_gateway.kernels.stdin import take_reply
from kernel_gateway.kernels.variables import Variable
from kernel_gateway.messaging import requests
from kernel_gateway.messaging.caller import GATEWAY, Actor, Caller
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


class LambdaKernel(RunningKernel):
    """A kernel whose cells are Lambda invocations."""

    __slots__ = ()

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
        self.note_activity()
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

    async def interrupt(self, actor: Actor = GATEWAY) -> None:
        """Have the running cell interrupted; the second time, killed. Nothing happens while idle.

        Interrupted code raises KeyboardInterrupt, and what it did is committed. Code that does not
        end by that is killed (CellInterrupted) after some seconds.

        Args:
            actor: who asks, for the journal; here as in what follows.

        Raises:
            StorageError: its container cannot be told.
        """
        cell = self._cell
        if cell is None or cell.ended:
            return
        cell.ticket.withdraw()
        if cell.flight is not None:
            if cell.is_recorded:
                self._services.recorder.interrupted(self.record, cell.flight.invocation, actor)
            await self._services.dispatcher.interrupt(cell.flight)

    async def cancel(self, msg_id: str, actor: Actor = GATEWAY) -> None:
        """Withdraw the execute_request with this id if it waits, interrupt it if it runs.

        Raises:
            StorageError: as `interrupt`.
        """
        if self._cell is not None and self._cell.message.msg_id == msg_id:
            await self.interrupt(actor)
            return
        for cell in [each for each in self._queue or () if each.message.msg_id == msg_id]:
            cast("deque[Call]", self._queue).remove(cell)
            self._turn_away(cell.message, cell.sink, {"status": "aborted"})

    async def restart(self, *, was_announced: bool = True, actor: Actor = GATEWAY) -> None:
        """Abort everything, kill the running cell, empty the namespace; the id stays.

        Clients see ``starting`` and ``idle``, as those of jupyter_server do. ``restarting``, of
        which JupyterLab makes a dialog, they see before that only where a kernel ended without a
        word to its server, for a shutdown_request. A cell that kills its process ends no kernel.

        Args:
            was_announced: the restart was asked for by REST.
            actor: who asks.

        Raises:
            IllegalTransition: it is dead, or being restarted.
            StorageError: the restart cannot be recorded; the namespace is as it was.
        """
        self._move(KernelEvent.RESTART)
        try:
            await self._close_open_cell(await self._stop("the kernel was restarted"))
            await self.settle_past()
            floor_seq = await self._lineage.close_open_cell()
            await self._lineage.empty(floor_seq, seeds.drawn(self.environment))
            self._services.recorder.restarted(self.record, actor)
            self._outlet.session = self._session_id()
            if not was_announced:
                self._outlet.status("restarting")
            self._outlet.status("starting")
        finally:
            if self.execution_state is ExecutionState.RESTARTING:
                self._move(KernelEvent.READY)
                self._outlet.status("idle")
                self._begin()

    async def shutdown(self, reason: str = "shut down", actor: Actor = GATEWAY) -> None:
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
        await self._services.recorder.closed(self.record, self.journal, reason, actor)
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
        actor = Actor.of(message.caller)
        try:
            if message.msg_type == "interrupt_request":
                await self.interrupt(actor)
            elif message.content.get("restart") is True:
                content["restart"] = True
                await self.restart(was_announced=False, actor=actor)
            else:
                content["restart"] = False
                await self._services.shut_down(self.kernel_id, actor)
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
