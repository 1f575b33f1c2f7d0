"""Invoker on AWS Lambda's InvokeWithResponseStream, by boto3 in one daemon thread a request."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from botocore import exceptions
from botocore.config import Config

from kernel_gateway import aws
from kernel_gateway.config import Deployment
from kernel_gateway.errors import (
    InvokeBroken,
    InvokeError,
    InvokeNotSent,
    InvokeRefused,
    InvokeThrottled,
    InvokeTimedOut,
)
from kernel_gateway.function_code import FunctionCode
from lambda_kernel.storage.refusals import refusal_of

logger = logging.getLogger(__name__)

READ_SLACK_S = 30
CONNECT_TIMEOUT_S = 5
CHUNKS_AHEAD = 64
"""How far the reading thread may be ahead of the event loop."""

_NOT_SENT = (
    exceptions.EndpointConnectionError,
    exceptions.ConnectTimeoutError,
    exceptions.ProxyConnectionError,
    exceptions.SSLError,
)
_REFUSED = (
    exceptions.ParamValidationError,
    exceptions.NoCredentialsError,
    exceptions.PartialCredentialsError,
    exceptions.NoRegionError,
)


class LambdaInvoker:
    """Invoker on boto3; see the protocol.

    A thread of its own per request, and a daemon: one that waits for a cell must not hold up the
    end of the gateway, as a thread pool's would.
    """

    def __init__(self, deployment: Deployment, *, max_concurrency: int) -> None:
        self._deployment = deployment
        self._max_concurrency = max_concurrency
        self._clients: list[Any] = []
        self._client_for = functools.cache(self._new_client)

    @classmethod
    def create(
        cls, deployment: Deployment, *, timeouts_s: Iterable[float] = (), max_concurrency: int = 200
    ) -> LambdaInvoker:
        """Return an invoker for the deployment's Lambda.

        Args:
            deployment: where Lambda is.
            timeouts_s: the environments' timeouts, whose clients are made now: it takes a while.
            max_concurrency: how many connections are kept.
        """
        invoker = cls(deployment, max_concurrency=max_concurrency)
        for timeout_s in timeouts_s:
            invoker._client_for(timeout_s)
        return invoker

    async def invoke(
        self,
        function_name: str,
        payload: bytes,
        *,
        timeout_s: float,
        tenant_id: str | None = None,
        on_version: Callable[[str], object] = lambda version: None,
    ) -> AsyncGenerator[bytes, None]:
        """Yield the chunks of the response, an empty one first; see Invoker."""
        arguments = {"FunctionName": function_name, "Payload": payload}
        if tenant_id is not None:
            arguments["TenantId"] = tenant_id
        exchange = _Exchange(self._client_for(timeout_s), arguments)
        threading.Thread(target=exchange.run, name="invoke", daemon=True).start()
        try:
            while (item := await exchange.take()) is not None:
                if isinstance(item, InvokeError):
                    raise item
                if not item:
                    on_version(exchange.executed_version)
                yield item
        finally:
            exchange.hang_up()

    async def code_of(self, function_name: str, version: str, *, asked: str) -> FunctionCode:
        """Return what GetFunctionConfiguration says; see Invoker."""
        return await asyncio.to_thread(self._code_of, function_name, version, asked)

    def _code_of(self, function_name: str, version: str, asked: str) -> FunctionCode:
        arguments = {"FunctionName": function_name}
        if version:
            arguments["Qualifier"] = version
        try:
            found = self._describing.get_function_configuration(**arguments)
        except exceptions.ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            text = f"Lambda answered {code} to GetFunctionConfiguration"
            raise InvokeRefused(text) from error
        except exceptions.BotoCoreError as error:
            raise InvokeNotSent(f"GetFunctionConfiguration: {type(error).__name__}") from error
        return FunctionCode(
            version=version,
            arn=found.get("FunctionArn"),
            code_sha256=found.get("CodeSha256"),
            package_type=found.get("PackageType"),
            last_modified=found.get("LastModified"),
            revision_id=found.get("RevisionId"),
            asked=asked,
        )

    @functools.cached_property
    def _describing(self) -> Any:
        config = Config(connect_timeout=1, read_timeout=2, retries={"total_max_attempts": 1})
        client = aws.client("lambda", config=config, **self._deployment.client_arguments("lambda"))
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close the connections that nobody uses."""
        for client in self._clients:
            client.close()

    def _new_client(self, timeout_s: float) -> Any:
        # boto3's defaults send a slow request three times. Source: gateway.md, pitfall 12.
        config = Config(
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=timeout_s + READ_SLACK_S,
            retries={"total_max_attempts": 1},
            tcp_keepalive=True,
            max_pool_connections=self._max_concurrency,
        )
        arguments = self._deployment.client_arguments("lambda")
        client = aws.client("lambda", config=config, **arguments)
        self._clients.append(client)
        return client


class _Exchange:
    """One request and its response, between a thread and the event loop."""

    def __init__(self, client: Any, arguments: dict[str, Any]) -> None:
        self._client = client
        self._arguments = arguments
        self._loop = asyncio.get_running_loop()
        self._items: asyncio.Queue[bytes | InvokeError | None] = asyncio.Queue()
        self._room = threading.Semaphore(CHUNKS_AHEAD)
        self._stream: Any = None
        self.executed_version = ""
        self._ended = False
        self._abandoned = False

    async def take(self) -> bytes | InvokeError | None:
        """Return the next chunk, the error that ended the stream, or None at its good end."""
        item = await self._items.get()
        self._room.release()
        return item

    def hang_up(self) -> None:
        """End the thread: whatever it waits for."""
        self._abandoned = True
        self._room.release()
        if not self._ended:
            _shut_down(self._stream)

    def run(self) -> None:
        """Send the request and hand over what comes back (in the thread)."""
        try:
            answer = self._client.invoke_with_response_stream(**self._arguments)
            self.executed_version = str(answer.get("ExecutedVersion") or "")
            self._stream = answer["EventStream"]
            end = self._read()
        except exceptions.EventStreamError as error:
            end = _chained(InvokeBroken("Lambda broke the response stream off"), error)
        except exceptions.ClientError as error:
            end = translated(error)
        except _NOT_SENT as error:
            end = _chained(InvokeNotSent("Lambda cannot be reached"), error)
        except _REFUSED as error:
            end = _chained(InvokeRefused(f"boto3 refused the request: {error}"), error)
        except Exception as error:
            # Also what urllib3 and the event stream's parser raise; it may have started.
            logger.info("an invocation's connection broke", exc_info=True)
            end = _chained(InvokeBroken(f"the connection broke: {type(error).__name__}"), error)
        self._ended = True
        if self._stream is not None:
            # Gives a connection that is still of use back to the pool, ends any other.
            self._stream.close()
        self._put(end)

    def _read(self) -> InvokeError | None:
        self._put(b"")
        end: InvokeError | None = InvokeBroken("the response stream ended early")
        # To its very end, without which the connection is not used again.
        for event in self._stream:
            if self._abandoned:
                return None
            if "PayloadChunk" in event:
                self._put(event["PayloadChunk"]["Payload"])
            elif "InvokeComplete" in event:
                end = completed(event["InvokeComplete"])
        return end

    def _put(self, item: bytes | InvokeError | None) -> None:
        self._room.acquire()
        try:
            self._loop.call_soon_threadsafe(self._items.put_nowait, item)
        except RuntimeError:
            # The loop is closed: nobody listens any more.
            self._abandoned = True


def translated(error: exceptions.ClientError) -> InvokeError:
    """Return the error of ours that Lambda's refusal means.

    Source: AWS Lambda API, Invoke, "Errors": 4xx is refused before the function runs; 5xx may come
    from a container that had begun.
    """
    code = error.response.get("Error", {}).get("Code", "")
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
    text = f"Lambda answered {status} {refusal_of(error.response)}"
    if status == 429 or code == "TooManyRequestsException":
        return _chained(InvokeThrottled(text), error)
    if 400 <= status < 500:
        return _chained(InvokeRefused(text), error)
    return _chained(InvokeBroken(text), error)


def completed(event: dict[str, Any]) -> InvokeError | None:
    """Return what an InvokeComplete event says: None for a good end."""
    code = event.get("ErrorCode")
    if not code:
        return None
    details = str(event.get("ErrorDetails") or "")[:500]
    text = f"Lambda reports {code}: {details}" if details else f"Lambda reports {code}"
    return InvokeTimedOut(text) if code == "Sandbox.Timedout" else InvokeBroken(text)


def _chained(problem: InvokeError, cause: Exception) -> InvokeError:
    problem.__cause__ = cause
    return problem


def _shut_down(stream: Any) -> None:
    # Closing a socket does not wake a thread that reads from it; shutting it down does.
    raw = getattr(stream, "_raw_stream", None)
    try:
        if raw is not None and hasattr(raw, "shutdown"):
            raw.shutdown()
    except (OSError, ValueError, RuntimeError):
        logger.debug("a response stream was already closed")
