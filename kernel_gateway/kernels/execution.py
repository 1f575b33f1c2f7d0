"""One execute_request that no websocket waits for: all it has said, for any number of readers."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kernel_gateway.errors import (
    AUDIT_UNAVAILABLE,
    CELL_INTERRUPTED,
    INVALID_CODE,
    PAYLOAD_TOO_LARGE,
    PROBE_FAILED,
    REQUEST_REFUSED,
    STORAGE_UNAVAILABLE,
    THROTTLED,
    WORKSPACE_TOO_LARGE,
    GatewayError,
    Started,
)
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.messaging.backlog import merged, rough_bytes
from kernel_gateway.messaging.caller import Actor, Caller, Door
from kernel_gateway.messaging.idempotency import Idempotency
from kernel_gateway.messaging.message import InMessage, OutMessage, new_header
from kernel_gateway.messaging.notebook_outputs import outputs_of

logger = logging.getLogger(__name__)

NOT_RUN_STATUS = {
    INVALID_CODE.ename: 400,
    "BadMessage": 400,
    "DeadKernel": 409,
    CELL_INTERRUPTED.ename: 409,
    PAYLOAD_TOO_LARGE.ename: 413,
    WORKSPACE_TOO_LARGE.ename: 413,
    "QueueFull": 429,
    THROTTLED.ename: 429,
    "RequestFailed": 500,
    REQUEST_REFUSED.ename: 502,
    STORAGE_UNAVAILABLE.ename: 503,
    PROBE_FAILED.ename: 503,
    AUDIT_UNAVAILABLE.ename: 503,
}
"""The HTTP status by the name of the failure, where a request did not become a running cell."""

MAX_SAID_BYTES = 64 << 20
"""Roughly what is held of one cell; as a websocket that does not read, it gets no more."""

OVER = "[gateway] the cell has sent more messages than are kept for it: the rest is dropped\n"

ABORTED = (
    "the request was taken out of the queue: a cell before it failed, it was withdrawn, or the "
    "kernel was restarted or shut down"
)


class CellNotRun(GatewayError):
    """A request did not become a cell; nothing of it ran.

    Attributes:
        http_status: says why.
        code_started: it did not.
    """

    code_started = Started.NO

    def __init__(self, text: str, http_status: int) -> None:
        super().__init__(text)
        self.http_status = http_status


class Execution:
    """A cell that was asked for by REST, from the request to the reply.

    Attributes:
        msg_id: of its execute_request.
        messages: what it has said, the reply last.
        is_complete: whether that is all; not where a gateway ended while the cell ran.
        size_bytes: roughly what these hold in memory.
        readers_count: how many callers wait for it.
        reply: the execute_reply, None until then.
    """

    def __init__(
        self,
        msg_id: str,
        kernel: LambdaKernel | None,
        timeout_s: float | None,
        caller: Caller | None = None,
    ) -> None:
        # Let go of at the end: who keeps results must not keep kernels.
        self._kernel = kernel
        self._caller = caller
        self._answer: Callable[[OutMessage], str | None] | None = None
        self.msg_id = msg_id
        self.messages: list[OutMessage] = []
        self.is_complete = True
        self._numbers: list[int] = []
        self._said_count = 0
        self.size_bytes = 0
        self.readers_count = 0
        self.reply: OutMessage | None = None
        self._timeout_s = timeout_s
        self._timer: asyncio.TimerHandle | None = None
        self._interruption: asyncio.Task[None] | None = None
        self._read_count = 0
        self._news = asyncio.Event()

    @classmethod
    def begin(
        cls,
        kernel: LambdaKernel,
        content: dict[str, Any],
        *,
        timeout_s: float | None = None,
        caller: Caller | None = None,
        metadata: dict[str, Any] | None = None,
        idempotency: Idempotency | None = None,
        answer: Callable[[OutMessage], str | None] | None = None,
    ) -> Execution:
        """Ask ``kernel`` to execute; return what becomes of it.

        Args:
            kernel: whose queue the request joins.
            content: of the execute_request.
            timeout_s: the cell is interrupted when it has run for so long; None = never.
            caller: who asks.
            metadata: of the execute_request.
            idempotency: its key, which the journal keeps.
            answer: answers a question of the cell; what it does not answer interrupts the cell.
                None = the cell cannot ask.
        """
        header = new_header("execute_request", session="rest", username=kernel.owner.user)
        execution = cls(header["msg_id"], kernel, timeout_s, caller)
        execution._answer = answer
        request = InMessage(
            header=header,
            metadata=metadata or {},
            content={**content, "allow_stdin": answer is not None},
            caller=caller,
            idempotency=idempotency,
        )
        kernel.watch(execution.msg_id, execution._take)
        kernel.receive(request, execution._hear)
        return execution

    @classmethod
    def past(
        cls, msg_id: str, said: Iterable[OutMessage], reply: OutMessage, *, is_complete: bool
    ) -> Execution:
        """Return one that ended before; see the attributes of this class."""
        execution = cls(msg_id, None, None)
        execution.is_complete = is_complete
        for message in said:
            execution._take(message)
        execution._end(reply)
        return execution

    @property
    def ended(self) -> bool:
        """Whether the reply is there."""
        return self.reply is not None

    @property
    def refusal(self) -> CellNotRun | None:
        """Why nothing of it ran; None where something did, or may have, or is yet to."""
        if self.reply is None:
            return None
        content, ours = self.reply.content, self.reply.metadata.get("lambda_kernel", {})
        if content["status"] == "aborted":
            return CellNotRun(ABORTED, 409)
        if ours.get("failure") is None or ours.get("code_started") != Started.NO:
            return None
        ename = content.get("ename", "")
        return CellNotRun(f"{ename}: {content.get('evalue')}", NOT_RUN_STATUS.get(ename, 503))

    @property
    def result(self) -> dict[str, Any]:
        """The JSON form of how it ended; only once it has."""
        assert self.reply is not None  # noqa: S101  (see above)
        content = self.reply.content
        names = ("ename", "evalue", "traceback") if content["status"] == "error" else ()
        return {
            "status": content["status"],
            "execution_count": content.get("execution_count"),
            "outputs": outputs_of(self.messages),
            **{name: content.get(name) for name in names},
            "user_expressions": content.get("user_expressions", {}),
            "payload": content.get("payload", []),
            "lambda_kernel": self.reply.metadata.get("lambda_kernel", {}),
        }

    def read(self, after: int = -1) -> list[tuple[int, OutMessage]]:
        """Return what it has said after this number, each with its number.

        What was read is not changed any more. The number counts what the cell itself has said, so
        that it is the same where that is read from the journal.
        """
        self._read_count = max(self._read_count, len(self.messages))
        begin = bisect_right(self._numbers, after)
        return list(zip(self._numbers[begin:], self.messages[begin:], strict=True))

    async def news(self) -> None:
        """Wait until it has said more, has ended, or `wake` was called."""
        await self._news.wait()

    def wake(self) -> None:
        """Let everybody who waits look again."""
        self._news.set()
        self._news = asyncio.Event()

    async def cancel(self, door: Door = "client_gone") -> None:
        """Withdraw it while it waits, interrupt it while it runs; once it has ended, do nothing.

        Args:
            door: why, for the journal; see Actor.
        """
        if self.ended or self._kernel is None:
            return
        try:
            await self._kernel.cancel(self.msg_id, Actor(door=door, caller=self._caller))
        except GatewayError:
            logger.warning("a cell could not be interrupted", exc_info=True)

    def _take(self, message: OutMessage) -> None:
        if message.msg_type == "status":
            self._status(message.content["execution_state"])
        if self.ended:
            return
        self._said_count += 1
        if self.size_bytes > MAX_SAID_BYTES:
            return
        last = self.messages[-1] if len(self.messages) > self._read_count else None
        joined = merged(last, message) if last is not None else None
        if joined is not None:
            self._numbers.pop()
            self.size_bytes -= rough_bytes(self.messages.pop())
        self._add(joined or message)
        if self.size_bytes > MAX_SAID_BYTES:
            header = {**message.header, "msg_type": "stream"}
            self._add(replace(message, header=header, content={"name": "stderr", "text": OVER}))
        self.wake()

    def _hear(self, message: OutMessage) -> None:
        if message.msg_type != "input_request":
            self._end(message)
            return
        value = None if self._answer is None else self._answer(message)
        if value is None:
            self._interrupt("replay")
        elif self._kernel is not None:
            reply = InMessage(
                channel="stdin",
                header=new_header("input_reply", session="rest"),
                parent_header=message.header,
                content={"value": value},
                caller=self._caller,
            )
            self._kernel.receive(reply, self._hear)

    def _end(self, reply: OutMessage) -> None:
        self.reply = reply
        self._said_count += 1
        self._add(reply)
        if self._timer is not None:
            self._timer.cancel()
        self.wake()

    def _add(self, message: OutMessage) -> None:
        self._numbers.append(self._said_count - 1)
        self.messages.append(message)
        self.size_bytes += rough_bytes(message)

    def _status(self, state: str) -> None:
        if state == "idle" and self._kernel is not None:
            self._kernel.unwatch(self.msg_id)
            self._kernel = None
        elif state == "busy" and self._timeout_s is not None and self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._timeout_s, self._run_out)

    def _run_out(self) -> None:
        self._interrupt("time_limit")

    def _interrupt(self, door: Door) -> None:
        self._interruption = asyncio.get_running_loop().create_task(self.cancel(door))
