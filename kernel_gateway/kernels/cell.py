"""What a kernel runs, one after the other: a call; and the execute_request, which is one."""

from __future__ import annotations

import functools
import logging
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

from kernel_gateway.dispatch.failures import CellRefused
from kernel_gateway.dispatch.gate import Ticket
from kernel_gateway.dispatch.plan import CellFacts, plan_cell
from kernel_gateway.dispatch.run import Flight
from kernel_gateway.dispatch.settle import Settled
from kernel_gateway.errors import AUDIT_UNAVAILABLE, RESULT_LOST, GatewayError, Started
from kernel_gateway.kernels.lineage import Lineage
from kernel_gateway.kernels.outlet import Outlet, Sink
from kernel_gateway.kernels.services import KernelServices
from kernel_gateway.kernels.stdin import Stdin
from kernel_gateway.messaging.message import InMessage, utc_text
from kernel_gateway.messaging.replies import error_content
from lambda_kernel.contract.frames import CHILD_MESSAGE_TYPES, Frame, FrameKind
from lambda_kernel.contract.invocation import Invocation
from lambda_kernel.contract.outcome import Status

logger = logging.getLogger(__name__)

OUTPUT_TYPES = CHILD_MESSAGE_TYPES - {"input_request"}
"""What is published on iopub."""

LOST_OUTPUT = (
    "[gateway] the connection to the container was lost after the cell had run: its variables and "
    "files are committed, but some of its output may be missing\n"
)


class Call(ABC):
    """One message that an invocation answers, from the queue to its end.

    Attributes:
        message: what came.
        sink: who asked; None when that client is gone.
        stdin: what it asks its user, once it is sent.
        count: the number the cell shows, once it is admitted.
        ticket: its place in line for a container.
        flight: the invocation, once planned.
        is_recorded: the journal has it, or may have it.
        ended: clients were told that it is over.
        behind_count: how many calls waited when it said that it failed; None = it did not.
        comms: target names of the comms that it has opened, by id; None for those it has closed.
        timings_ms: milliseconds per step.
    """

    __slots__ = (
        "_begun_s",
        "_request_id",
        "_said",
        "_started_date",
        "behind_count",
        "comms",
        "count",
        "ended",
        "flight",
        "is_recorded",
        "message",
        "sink",
        "stdin",
        "ticket",
        "timings_ms",
    )

    def __init__(
        self, message: InMessage, sink: Sink | None, *, request_id: str | None = None
    ) -> None:
        self.message = message
        self.sink = sink
        self.stdin: Stdin | None = None
        self.behind_count: int | None = None
        self.count = 0
        self.ticket = Ticket()
        self.flight: Flight | None = None
        self.is_recorded = self.ended = False
        self.comms: dict[str, str | None] = {}
        self._begun_s = time.monotonic()
        self.timings_ms = {"receive": _ms(message.received_s, self._begun_s)}
        self._request_id = request_id or uuid.uuid4().hex
        self._said: set[str] = set()
        self._started_date = ""

    def detach(self, sink: Sink) -> None:
        """Send ``sink`` nothing more: that client is gone."""
        if self.sink == sink:
            self.sink = None
        if self.stdin is not None:
            self.stdin.detach(sink)

    @property
    def silent(self) -> bool:
        """Whether nothing of it may be broadcast."""
        return False

    @property
    def stores_history(self) -> bool:
        """Whether it takes a number. Source: messaging spec, "Execute"."""
        return False

    @property
    def stops_queue(self) -> bool:
        """Whether its error aborts the cells behind it."""
        return False

    @property
    def code(self) -> str:
        """The source of a cell."""
        return ""

    def takes_over(self, other: Call) -> bool:
        """Return whether this one, which waits, does what ``other`` asks, too."""
        return False

    @abstractmethod
    def admit(self, last_count: int, say: Callable[..., None], services: KernelServices) -> None:
        """Give it its number, and tell clients that it begins."""

    @abstractmethod
    async def foregone(
        self, lineage: Lineage, say: Callable[..., None], services: KernelServices
    ) -> Settled | None:
        """Return how it ends where nothing has to run for it (raises StorageError)."""

    @abstractmethod
    def plan(self, facts: CellFacts, nonce: str) -> Invocation:
        """Return its invocation (raises CellRefused)."""

    @abstractmethod
    def answer(self, settled: Settled, last_count: int | None, outlet: Outlet) -> bool:
        """Tell clients how it ended; return whether that was well.

        Args:
            settled: how it ended.
            last_count: execution count of the last committed cell.
            outlet: where messages go.
        """

    async def invoke(
        self,
        facts: CellFacts,
        function_name: str,
        say: Callable[..., None],
        services: KernelServices,
        note: Callable[[Invocation], Awaitable[bool]],
    ) -> AsyncGenerator[Settled, None]:
        """Send the cell, publish what it says, and yield how it ended, once.

        ``note`` records it before it is sent, and returns whether it is recorded.

        Going on after that waits until Lambda is done with the invocation.

        Raises:
            CellRefused: nothing started.
        """
        invocation = self.plan(facts, uuid.uuid4().hex)
        flight = self.flight = Flight(
            invocation=invocation,
            ticket=self.ticket,
            on_wait=lambda ahead: self._wait(ahead, say),
            may_start=services.replica.permit(),
        )
        try:
            self.is_recorded = True
            self.is_recorded = await note(invocation)
        except GatewayError as problem:
            self.is_recorded = False
            raise CellRefused(AUDIT_UNAVAILABLE, str(problem)) from problem
        self._lap("plan")
        try:
            async with aclosing(services.dispatcher.run_cell(flight, function_name)) as events:
                async for event in events:
                    if isinstance(event, Frame):
                        self._output(event, say)
                        continue
                    self._lap("invoke")
                    yield event
        finally:
            await services.dispatcher.clean_up(flight)

    def _metadata(
        self, settled: Settled, child_metadata: dict[str, Any], failure: str | None
    ) -> dict[str, Any]:
        outcome = settled.outcome
        ours: dict[str, Any] = {
            "request_id": self._request_id,
            "seq": self.flight.invocation.seq if self.flight is not None else None,
            "committed": settled.committed,
            "adopted": settled.adopted,
            "failure": failure,
            "code_started": settled.trouble.started if settled.trouble else Started.YES,
        }
        if outcome is not None:
            data = outcome.to_dict()
            self.timings_ms.update(outcome.timings_ms)
            for name in ("aws_request_id", "container_id", "aws_calls", "aws_sequential", "probe"):
                ours[name] = data[name]
        # The reply cannot hold how long it takes to send itself; `published` adds that.
        self._lap("publish")
        ours["timings_ms"] = dict(self.timings_ms)
        return {
            **child_metadata,
            "started": self._started_date,
            "dependencies_met": True,
            "engine": "",
            "lambda_kernel": ours,
        }

    def published(self) -> None:
        """Note that the reply was sent."""
        self.ended = True
        self._lap("publish")

    def _wait(self, ahead: int, say: Callable[..., None]) -> None:
        if not self.silent:
            before = f" ({ahead} before this one)" if ahead else ""
            text = f"[gateway] every container is busy: waiting for a free one{before}\n"
            say("stream", {"name": "stderr", "text": text})

    def _output(self, frame: Frame, say: Callable[..., None]) -> None:
        if frame.kind is not FrameKind.MESSAGE:
            return
        msg_type = frame.data.get("msg_type")
        content, metadata = frame.data.get("content"), frame.data.get("metadata")
        if msg_type == "input_request" and isinstance(content, dict) and self.stdin is not None:
            self.stdin.ask(content, metadata)
            return
        if msg_type not in OUTPUT_TYPES or not isinstance(content, dict):
            logger.warning("a container sent a message that is not an output")
            return
        self._said.add(msg_type)
        if msg_type in ("comm_open", "comm_close"):
            self.comms[str(content.get("comm_id"))] = (
                str(content.get("target_name")) if msg_type == "comm_open" else None
            )
        metadata = dict(metadata) if isinstance(metadata, dict) else {}
        # What stands under this name is the gateway's word.
        metadata.pop("lambda_kernel", None)
        if msg_type == "execute_result":
            content = {**content, "execution_count": self.count}
        say(msg_type, content, metadata=metadata, buffers=frame.buffers)

    def _lap(self, step: str) -> None:
        now_s = time.monotonic()
        self.timings_ms[step] = self.timings_ms.get(step, 0.0) + _ms(self._begun_s, now_s)
        self._begun_s = now_s


class Cell(Call):
    """One execute_request."""

    __slots__ = ()

    @property
    def silent(self) -> bool:
        """Whether nothing of it may be broadcast."""
        return self.message.content.get("silent", False) is True

    @property
    def stores_history(self) -> bool:
        """Whether it takes a number. Source: messaging spec, "Execute"."""
        return self.message.content.get("store_history", True) is True and not self.silent

    @property
    def stops_queue(self) -> bool:
        """Whether its error aborts the requests behind it."""
        return self.message.content.get("stop_on_error", True) is True and not self.silent

    @property
    def code(self) -> str:
        """The source."""
        code: str = self.message.content["code"]
        return code

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to run; clients send such cells to see if a kernel lives."""
        return not self.code.strip() and not self.message.content.get("user_expressions")

    def admit(self, last_count: int, say: Callable[..., None], services: KernelServices) -> None:
        """Give it its number and publish ``execute_input``."""
        self.count = last_count + 1
        self._started_date = utc_text(services.now())
        if not self.silent:
            say(
                "execute_input",
                {"code": self.code, "execution_count": self.count},
                metadata={"lambda_kernel": {"request_id": self._request_id}},
            )
        self._lap("admit")

    async def foregone(
        self, lineage: Lineage, say: Callable[..., None], services: KernelServices
    ) -> Settled | None:
        """Return its end where it is empty."""
        if not self.is_empty:
            return None
        body = {"content": {"status": "ok", "execution_count": lineage.execution_count}}
        return Settled(reply=body)

    def plan(self, facts: CellFacts, nonce: str) -> Invocation:
        """Return its invocation (raises CellRefused)."""
        header, content = self.message.header, self.message.content
        return plan_cell(header, content, facts, request_id=self._request_id, nonce=nonce)

    def answer(self, settled: Settled, last_count: int | None, outlet: Outlet) -> bool:
        """Publish what must precede the reply, and reply."""
        say = functools.partial(outlet.publish, message=self.message)
        content, metadata = self.reply_to(settled, last_count, say)
        outlet.reply(self.message, self.sink, content, metadata)
        self.published()
        return bool(content["status"] != "error")

    def reply_to(
        self, settled: Settled, last_count: int | None, say: Callable[..., None]
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Publish what must precede the reply; return the reply's content and metadata.

        Args:
            settled: how the cell ended.
            last_count: execution count of the last committed cell.
            say: publishes on iopub with this cell as parent.
        """
        if settled.trouble is not None:
            text = settled.trouble.text(last_count, position_known=settled.position_known)
            failure: str | None = settled.trouble.failure.ename
            content = error_content(settled.trouble.failure.ename, text)
            metadata: dict[str, Any] = {}
            if not self.silent:
                say("error", error_message(content))
        else:
            content, metadata, failure = self._ran(settled, say)
            # Stamped here: a child can say any number.
            counted = self.stores_history and not self.is_empty
            content["execution_count"] = self.count if counted else self.count - 1
        content.setdefault("execution_count", self.count)
        content.setdefault("user_expressions", {})
        content.setdefault("payload", [])
        metadata = self._metadata(settled, metadata, failure)
        return content, {**metadata, "status": content["status"]}

    def _ran(
        self, settled: Settled, say: Callable[..., None]
    ) -> tuple[dict[str, Any], dict[str, Any], str | None]:
        body = settled.reply or {}
        content = body.get("content")
        if settled.adopted and not self.silent:
            say("stream", {"name": "stderr", "text": LOST_OUTPUT})
        if not isinstance(content, dict) or content.get("status") not in {"ok", "error"}:
            outcome = settled.outcome
            if outcome is None or outcome.status is Status.OK:
                return {"status": "ok"}, {}, None
            failure = RESULT_LOST.ename
            text = "the cell raised an error whose text was lost"
            return error_content(failure, text), {}, failure
        # IPython itself says some errors on a stream only: then there is no traceback.
        is_unsaid = content["status"] == "error" and "error" not in self._said
        if is_unsaid and content.get("traceback") and not self.silent:
            say("error", error_message(content))
        metadata = body.get("metadata")
        return dict(content), dict(metadata) if isinstance(metadata, dict) else {}, None


def error_message(content: dict[str, Any]) -> dict[str, Any]:
    """Return the content of an ``error`` message with what a reply says."""
    return {name: content.get(name, "") for name in ("ename", "evalue")} | {
        "traceback": content.get("traceback", [])
    }


def _ms(begin_s: float, end_s: float) -> float:
    return round((end_s - begin_s) * 1000, 3)
