"""How a function is invoked, as a protocol, and an implementation in memory for tests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Protocol

from kernel_gateway.errors import InvokeRefused, InvokeThrottled
from kernel_gateway.function_code import FunctionCode


class Invoker(Protocol):
    """Sends one request to a Lambda function and hands on its response stream."""

    def invoke(
        self,
        function_name: str,
        payload: bytes,
        *,
        timeout_s: float,
        tenant_id: str | None = None,
        on_version: Callable[[str], object] = lambda version: None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the chunks of the response; an empty chunk says that Lambda took the request.

        The request is sent once and never again. Closing the generator gives up the connection.

        Args:
            function_name: which function.
            payload: the event, at most 6 MB.
            timeout_s: how long the function may take to say anything.
            tenant_id: for functions with tenant isolation.
            on_version: told, before the empty chunk, which version of the function executes it.

        Raises:
            InvokeThrottled: 429, nothing started.
            InvokeNotSent: no connection, nothing started.
            InvokeRefused: Lambda refused the request, nothing started.
            InvokeBroken: lost after it was sent.
            InvokeTimedOut: the function ran into its own limit.
        """

    async def code_of(self, function_name: str, version: str, *, asked: str) -> FunctionCode:
        """Return what Lambda says of a function's code; ``asked`` is the time, for the answer.

        Raises:
            InvokeError: it does not say.
        """


@dataclass
class InMemoryInvoker:
    """Invoker whose functions are Python callables, with a concurrency limit as Lambda's.

    Attributes:
        function: called with the event; an async generator of chunks.
        max_concurrency: how many may run at once; more is a 429.
        payloads: every event that was accepted, in order.
        throttled_count: how many were refused with 429.
        most_running: the highest number that ran at once.
        code_sha256: of every function; None = Lambda does not say.
        asked_count: how often that was asked.
    """

    function: Callable[[bytes], AsyncIterator[bytes]]
    max_concurrency: int = 1000
    payloads: list[bytes] = field(default_factory=list)
    throttled_count: int = 0
    most_running: int = 0
    code_sha256: str | None = "the code"
    asked_count: int = 0
    _running: int = 0

    async def code_of(self, function_name: str, version: str, *, asked: str) -> FunctionCode:
        """Return `code_sha256` as that of every function; see Invoker."""
        self.asked_count += 1
        if self.code_sha256 is None:
            raise InvokeRefused("Lambda answered 403 AccessDeniedException")
        return FunctionCode(version=version, code_sha256=self.code_sha256, asked=asked)

    async def invoke(
        self,
        function_name: str,
        payload: bytes,
        *,
        timeout_s: float,
        tenant_id: str | None = None,
        on_version: Callable[[str], object] = lambda version: None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield what the function yields; see Invoker."""
        if self._running >= self.max_concurrency:
            self.throttled_count += 1
            raise InvokeThrottled(f"{function_name} has no free container")
        self._running += 1
        self.most_running = max(self.most_running, self._running)
        self.payloads.append(payload)
        try:
            on_version("$LATEST")
            yield b""
            async for chunk in self.function(payload):
                yield chunk
        finally:
            self._running -= 1
