"""One Invoke inside the local Lambda service, and the bounded pipe its response flows through."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

PIPE_BYTES = 1024 * 1024
"""What a slow client may leave unread before the runtime has to wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionError:
    """How a function failed: its error type and the error object as JSON."""

    type: str
    body: bytes

    @classmethod
    def create(cls, type: str, message: str) -> FunctionError:  # noqa: A002  (AWS's own name)
        """Return the error object that Lambda itself writes for ``type``."""
        return cls(
            type=type, body=json.dumps({"errorType": type, "errorMessage": message}).encode()
        )


class ResponsePipe:
    """Response bytes from the runtime to the client; bounded, ended once, possibly unread."""

    def __init__(self) -> None:
        self._chunks: deque[bytes] = deque()
        self._size_bytes = 0
        self._readable = asyncio.Event()
        self._writable = asyncio.Event()
        self._detached = False
        self.ended = False
        self.error: FunctionError | None = None

    async def put(self, chunk: bytes) -> None:
        """Add ``chunk``; waits while the client is more than PIPE_BYTES behind."""
        if not chunk or self._is_over():
            return
        self._chunks.append(chunk)
        self._size_bytes += len(chunk)
        self._readable.set()
        while self._size_bytes >= PIPE_BYTES and not self._is_over():
            self._writable.clear()
            await self._writable.wait()

    def _is_over(self) -> bool:
        return self._detached or self.ended

    def end(self, error: FunctionError | None = None) -> None:
        """End the response; only the first call counts."""
        if self.ended:
            return
        self.ended = True
        self.error = error
        self._readable.set()
        self._writable.set()

    def detach(self) -> None:
        """Forget the client: what still comes is dropped, the function goes on.

        Source: AWS Lambda, a closed client connection does not end a synchronous invocation.
        """
        self._detached = True
        self._chunks.clear()
        self._size_bytes = 0
        self._writable.set()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield what arrives until the response has ended; ``error`` is known then."""
        while True:
            if self._chunks:
                chunk = b"".join(self._chunks)
                self._chunks.clear()
                self._size_bytes = 0
                self._writable.set()
                yield chunk
            elif self.ended:
                return
            else:
                self._readable.clear()
                await self._readable.wait()


@dataclass(eq=False, slots=True, kw_only=True)
class Invoke:
    """One request to run a function.

    Attributes:
        function_name: which function.
        payload: the event, as sent.
        tenant_id: ``X-Amz-Tenant-Id`` of the request.
        client_context: ``X-Amz-Client-Context`` of the request.
        request_id: Lambda's id of the invocation.
        response: where the answer appears.
    """

    function_name: str
    payload: bytes
    tenant_id: str | None = None
    client_context: str | None = None
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    response: ResponsePipe = field(default_factory=ResponsePipe)
