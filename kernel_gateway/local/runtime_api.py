"""Lambda's Runtime API for one container: next, response (streamed), error, init/error.

Written on h11 because a streamed response reports its error in HTTP trailers, which tornado's
server does not read.

Source: AWS Lambda, "Using the Lambda runtime API" and "Building a custom runtime: streaming".
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import json
import logging
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, cast

import h11

from kernel_gateway.local.invokes import FunctionError, Invoke

logger = logging.getLogger(__name__)

VERSION = "/2018-06-01/runtime"
READ_BYTES = 256 * 1024
HEAD_BYTES = 1024 * 1024
"""Also holds the error body that a streamed response may end with."""

BUFFERED_RESPONSE_BYTES = 6 * 1024 * 1024
"""Source: AWS Lambda quota, 6 MB for a synchronous response that is not streamed."""

ERROR_BYTES = 256 * 1024

MAX_CONNECTIONS = 8
"""The runtime needs one; what a cell opens beyond is closed at once."""


class RuntimeSide(Protocol):
    """The container's place in the Lambda service, as its Runtime API sees it."""

    current: Invoke | None

    async def next_invoke(self) -> Invoke:
        """Wait for the next invoke of this container."""

    def deadline_ms(self) -> int:
        """Return when the current invoke is ended, in milliseconds since the epoch."""

    def function_arn(self) -> str:
        """Return the ARN the runtime was invoked by."""

    def undelivered(self, invoke: Invoke) -> None:
        """Take back ``invoke``, which the runtime cannot have begun."""

    def init_failed(self, error: FunctionError) -> None:
        """Note why the runtime could not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""


class RuntimeApi:
    """Serves one container's Runtime API on the listener that came out of it."""

    def __init__(self, side: RuntimeSide) -> None:
        self._side = side
        self._connections: set[asyncio.Task[None]] = set()
        self._runtime: asyncio.StreamWriter | None = None
        self._server: asyncio.Server | None = None

    @classmethod
    async def open(cls, listener: socket.socket, side: RuntimeSide) -> RuntimeApi:
        """Return the running API; it owns ``listener`` from now on."""
        api = cls(side)
        api._server = await asyncio.start_server(api._accept, sock=listener)
        return api

    async def drained(self, timeout_s: float) -> None:
        """Wait until every connection has ended, at most ``timeout_s``."""
        if self._connections:
            await asyncio.wait(list(self._connections), timeout=timeout_s)

    async def close(self) -> None:
        """Stop accepting and end every connection."""
        if self._server is not None:
            self._server.close()
        for task in list(self._connections):
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= MAX_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (a server callback runs as a task)
        self._connections.add(task)
        try:
            await _Connection(self, self._side, reader, writer).serve()
        except asyncio.CancelledError:
            pass  # closing; asyncio would log the cancellation of a server callback
        except (h11.ProtocolError, OSError) as error:
            logger.info("runtime api connection ended", extra={"reason": str(error)})
        finally:
            self._connections.discard(task)
            if self._runtime is writer:
                self._runtime = None
            writer.close()

    def is_runtime(self, writer: asyncio.StreamWriter) -> bool:
        """Return whether this connection may ask for the next invoke.

        The Runtime API knows no authentication: a process of the user's that outlives its cell
        could ask in the runtime's place. As long as the connection that asked first is open,
        only it may.
        """
        if self._runtime is None:
            self._runtime = writer
        return self._runtime is writer

    def is_foreign(self, writer: asyncio.StreamWriter) -> bool:
        """Return whether another connection is the runtime's: this one may not answer for it."""
        return self._runtime is not None and self._runtime is not writer

    @property
    def is_initialized(self) -> bool:
        """Whether the runtime has asked for an invoke: its init is over."""
        return self._runtime is not None


class _Connection:
    """One connection from the runtime."""

    def __init__(
        self,
        api: RuntimeApi,
        side: RuntimeSide,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._api = api
        self._side = side
        self._reader = reader
        self._writer = writer
        self._reading: asyncio.Task[bytes] | None = None
        self._delivered: Invoke | None = None
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        sock = writer.get_extra_info("socket")
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    async def serve(self) -> None:
        """Answer requests until the runtime closes the connection."""
        try:
            while isinstance(request := await self._event(), h11.Request):
                self._delivered = None
                answer = await self._answer(request)
                if answer is None:
                    return
                await self._send(answer)
                if self._http.our_state is not h11.DONE or self._http.their_state is not h11.DONE:
                    return
                self._http.start_next_cycle()
        except ConnectionResetError:
            # The kernel resets a connection that is closed before everything sent on it was read:
            # the runtime died without having read the event, so another may have it.
            if self._delivered is not None:
                self._side.undelivered(self._delivered)
            raise
        finally:
            if self._reading is not None:
                self._reading.cancel()
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await self._reading

    async def _answer(self, request: h11.Request) -> _Answer | None:
        path = request.target.decode("ascii", "replace").partition("?")[0]
        method = request.method.decode("ascii")
        headers = {name.decode(): value.decode("latin-1") for name, value in request.headers}
        if path == f"{VERSION}/invocation/next" and method == "GET":
            await self._body(0)
            current = self._side.current
            if not self._api.is_runtime(self._writer):
                return _refused(403, "Forbidden", "another connection is the runtime's")
            if current is not None and not current.response.ended:
                return _refused(400, "InvalidStateTransition", "an invocation is in flight")
            return await self._next()
        if path == f"{VERSION}/init/error" and method == "POST":
            body = await self._body(ERROR_BYTES)
            if self._api.is_initialized:
                return _refused(403, "InvalidStateTransition", "the init of this runtime is over")
            self._side.init_failed(_reported(headers, body))
            return _accepted()
        return await self._answer_to_invoke(method, path, headers)

    async def _answer_to_invoke(
        self, method: str, path: str, headers: dict[str, str]
    ) -> _Answer | None:
        request_id, _, action = path.removeprefix(f"{VERSION}/invocation/").partition("/")
        if method != "POST" or action not in {"response", "error"}:
            return _refused(404, "NotFound", "there is no such resource")
        if self._api.is_foreign(self._writer):
            await self._body(0)
            return _refused(403, "Forbidden", "another connection is the runtime's")
        invoke = self._side.current
        if invoke is None or invoke.request_id != request_id or invoke.response.ended:
            await self._body(0)
            return _refused(400, "InvalidRequestID", "that invocation is not in flight here")
        if action == "error":
            invoke.response.end(_reported(headers, await self._body(ERROR_BYTES)))
            return _accepted()
        if headers.get("lambda-runtime-function-response-mode", "").lower() == "streaming":
            return await self._stream(invoke)
        return await self._buffered(invoke)

    async def _next(self) -> _Answer | None:
        waiting = asyncio.ensure_future(self._side.next_invoke())
        self._start_reading()
        assert self._reading is not None  # noqa: S101  (the line above)
        try:
            await asyncio.wait({waiting, self._reading}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            waiting.cancel()
            raise
        if self._reading.done():
            # Nothing may follow the request: the runtime has gone while it was waiting.
            if not waiting.cancel():
                self._side.undelivered(waiting.result())
            return None
        invoke = self._delivered = waiting.result()
        headers = [
            ("Content-Type", "application/json"),
            ("Lambda-Runtime-Aws-Request-Id", invoke.request_id),
            ("Lambda-Runtime-Deadline-Ms", str(self._side.deadline_ms())),
            ("Lambda-Runtime-Invoked-Function-Arn", self._side.function_arn()),
        ]
        if invoke.tenant_id is not None:
            headers.append(("Lambda-Runtime-Aws-Tenant-Id", invoke.tenant_id))
        if invoke.client_context is not None:
            headers.append(("Lambda-Runtime-Client-Context", invoke.client_context))
        return _Answer(status=200, headers=tuple(headers), body=invoke.payload)

    async def _stream(self, invoke: Invoke) -> _Answer:
        truncated = FunctionError.create(
            "Runtime.TruncatedResponse", "the runtime closed the response before its end"
        )
        try:
            while isinstance(event := await self._event(), h11.Data):
                await invoke.response.put(bytes(event.data))
        except (h11.RemoteProtocolError, OSError):
            invoke.response.end(truncated)
            raise
        if not isinstance(event, h11.EndOfMessage):
            invoke.response.end(truncated)
            return _refused(400, "TruncatedResponse", "the response has no end")
        invoke.response.end(_trailing_error(event.headers))
        return _accepted()

    async def _buffered(self, invoke: Invoke) -> _Answer:
        body = await self._body(BUFFERED_RESPONSE_BYTES)
        if len(body) > BUFFERED_RESPONSE_BYTES:
            text = f"Response payload size exceeded maximum allowed ({BUFFERED_RESPONSE_BYTES})."
            invoke.response.end(FunctionError.create("Function.ResponseSizeTooLarge", text))
            return _refused(413, "RequestEntityTooLarge", text)
        await invoke.response.put(body)
        invoke.response.end()
        return _accepted()

    async def _body(self, limit_bytes: int) -> bytes:
        """Return the request's body; of one over the limit, just enough to show that it is."""
        body = bytearray()
        while isinstance(event := await self._event(), h11.Data):
            if len(body) <= limit_bytes:
                body += event.data
        return bytes(body)

    async def _event(self) -> h11.Event | type[h11.PAUSED]:
        while True:
            event = self._http.next_event()
            if event is not h11.NEED_DATA:
                return cast("h11.Event | type[h11.PAUSED]", event)
            if self._http.they_are_waiting_for_100_continue:
                await self._write(h11.InformationalResponse(status_code=100, headers=[]))
            self._start_reading()
            assert self._reading is not None  # noqa: S101  (the line above)
            data = await self._reading
            self._reading = None
            self._http.receive_data(data)

    def _start_reading(self) -> None:
        if self._reading is None:
            self._reading = asyncio.ensure_future(self._reader.read(READ_BYTES))

    async def _send(self, answer: _Answer) -> None:
        headers = [*answer.headers, ("Content-Length", str(len(answer.body)))]
        await self._write(
            h11.Response(status_code=answer.status, headers=headers),
            h11.Data(data=answer.body),
            h11.EndOfMessage(),
        )

    async def _write(self, *events: h11.Event) -> None:
        self._writer.write(b"".join(self._http.send(event) or b"" for event in events))
        await self._writer.drain()


def _accepted() -> _Answer:
    headers = (("Content-Type", "application/json"),)
    return _Answer(status=202, headers=headers, body=b'{"status":"OK"}')


def _refused(status: int, error_type: str, message: str) -> _Answer:
    body = json.dumps({"errorType": error_type, "errorMessage": message}).encode()
    return _Answer(status=status, headers=(("Content-Type", "application/json"),), body=body)


def _reported(headers: dict[str, str], body: bytes) -> FunctionError:
    """Return the error that the runtime posted as JSON."""
    named = headers.get("lambda-runtime-function-error-type")
    try:
        data = json.loads(body)
        named = named or data["errorType"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return FunctionError.create(named or "Runtime.Unknown", "the runtime gave no error object")
    return FunctionError(type=str(named), body=body)


def _trailing_error(trailers: Iterable[tuple[bytes, bytes]]) -> FunctionError | None:
    """Return the error that a streamed response ended with, if it did."""
    found = {name.decode().lower(): value.decode("latin-1") for name, value in trailers}
    error_type = found.get("lambda-runtime-function-error-type")
    if error_type is None:
        return None
    try:
        body = base64.b64decode(found.get("lambda-runtime-function-error-body", ""), validate=True)
        json.loads(body)
    except (binascii.Error, ValueError, RecursionError):
        return FunctionError.create(error_type, "")
    return FunctionError(type=error_type, body=body)
