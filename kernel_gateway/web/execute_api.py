"""``/api/kernels/{id}/execute``: one cell by plain REST, as JSON or as server-sent events."""

from __future__ import annotations

import asyncio
import json
import logging
from base64 import b64encode
from weakref import WeakKeyDictionary

from tornado.iostream import StreamClosedError

from kernel_gateway.errors import BadRequest, GatewayError, Started
from kernel_gateway.kernels.execution import Execution
from kernel_gateway.kernels.idempotency import IdempotencyKeys
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.messaging.idempotency import Idempotency
from kernel_gateway.messaging.message import OutMessage
from kernel_gateway.web.base import GatewayHandler, endpoint
from kernel_gateway.web.execute_request import KEY_HEADER, ExecuteBody

logger = logging.getLogger(__name__)

EVENT_STREAM = "text/event-stream"
REPLAYED_HEADER = "Idempotent-Replayed"
LAST_EVENT_HEADER = "Last-Event-ID"
MAX_BODY_BYTES = 64 << 20
HEARTBEAT_S = 15.0
HEARTBEAT = b": still there\n\n"


class BodyTooLarge(GatewayError):
    """The body is larger than a websocket frame may be."""

    http_status = 413
    code_started = Started.NO


class ExecuteHandler(GatewayHandler):
    """Executes code in one kernel.

    Without ``interrupt_on_disconnect`` the cell goes on when its caller is gone, and a retry with
    the same idempotency key attaches to it.
    """

    auth_resource = "kernels"

    def initialize(self) -> None:
        """Begin without a cell."""
        self._execution: Execution | None = None
        self._is_gone = False

    def on_connection_close(self) -> None:
        """Have the handler notice that its caller is gone."""
        super().on_connection_close()
        self._is_gone = True
        if self._execution is not None:
            self._execution.wake()

    def error_facts(self, error: object) -> dict[str, str]:
        """Return ``code_started``: whether this request ran, or one before it with its key."""
        told: Started | None = getattr(error, "code_started", None)
        if told is not None:
            return {"code_started": told}
        is_open = self._execution is not None or self._has_key()
        return {"code_started": Started.UNKNOWN if is_open else Started.NO}

    def _has_key(self) -> bool:
        try:
            body = ExecuteBody.read(self.request.body, self.request.headers.get(KEY_HEADER))
        except BadRequest:
            return False
        return body.idempotency_key is not None

    @endpoint
    async def post(self, kernel_id: str) -> None:
        """Execute, and answer when the cell has ended, or with events while it runs."""
        kernel = self.own_kernel(kernel_id)
        if len(self.request.body) > MAX_BODY_BYTES:
            raise BodyTooLarge(f"the body is larger than {MAX_BODY_BYTES >> 20} MiB")
        body = ExecuteBody.read(self.request.body, self.request.headers.get(KEY_HEADER))
        execution = self._execution = await self._begin(kernel, body)
        execution.readers_count += 1
        try:
            if EVENT_STREAM in self.request.headers.get("Accept", ""):
                await self._stream(execution)
            else:
                await self._answer(execution)
        except StreamClosedError:
            self._is_gone = True
        finally:
            execution.readers_count -= 1
            if self._is_gone and body.interrupt_on_disconnect and not execution.readers_count:
                await execution.cancel()

    async def _begin(self, kernel: LambdaKernel, body: ExecuteBody) -> Execution:
        if body.idempotency_key is None:
            return self._begun(kernel, body, None)
        of_kernels: WeakKeyDictionary[LambdaKernel, IdempotencyKeys]
        of_kernels = self.settings["idempotency_keys"]
        keys = of_kernels.setdefault(kernel, IdempotencyKeys())
        asked = Idempotency.of(body.idempotency_key, {**body.content, "timeout_s": body.timeout_s})
        execution = await keys.look_up(asked, kernel)
        if execution is None:
            execution = self._begun(kernel, body, asked)
            keys.remember(asked, execution)
        else:
            self.set_header(REPLAYED_HEADER, "true")
        return execution

    def _begun(
        self, kernel: LambdaKernel, body: ExecuteBody, asked: Idempotency | None
    ) -> Execution:
        return Execution.begin(
            kernel, body.content, timeout_s=body.timeout_s, caller=self.caller, idempotency=asked
        )

    async def _answer(self, execution: Execution) -> None:
        while not (execution.ended or self._is_gone):
            await execution.news()
        if self._is_gone:
            return
        if execution.refusal is not None:
            raise execution.refusal
        self.finish(json.dumps(execution.result))

    async def _stream(self, execution: Execution) -> None:
        if execution.refusal is not None:
            raise execution.refusal
        self.set_header("Content-Type", f"{EVENT_STREAM}; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Accel-Buffering", "no")
        stream = getattr(self.request.connection, "stream", None)
        if stream is not None:
            # Else an event can wait 40 ms for the ACK of the one before.
            stream.set_nodelay(True)
        await self.flush()
        place = self._last_place() if execution.is_complete else -1
        while not self._is_gone:
            said = execution.read(place)
            for place, message in said:
                self.write(event_of(place, message))
            if said:
                await self.flush()
            elif execution.ended:
                self.finish(set_content_type=f"{EVENT_STREAM}; charset=utf-8")
                return
            else:
                await self._news_or_heartbeat(execution)

    async def _news_or_heartbeat(self, execution: Execution) -> None:
        try:
            async with asyncio.timeout(HEARTBEAT_S):
                await execution.news()
        except TimeoutError:
            self.write(HEARTBEAT)
            await self.flush()

    def _last_place(self) -> int:
        text = self.request.headers.get(LAST_EVENT_HEADER, "")
        is_number = text.isascii() and text.isdigit() and len(text) < 10
        return int(text) if is_number else -1


def event_of(number: int, message: OutMessage) -> bytes:
    """Return a message as a server-sent event; its id is its place among those of the cell.

    Source: HTML standard, "Server-sent events".
    """
    buffers = [b64encode(part).decode() for part in message.buffers]
    data = json.dumps({**message.to_dict(), "buffers": buffers}, default=str)
    return f"id: {number}\nevent: {message.msg_type}\ndata: {data}\n\n".encode()
