"""The host's AWS address: the Lambda API, STS and Secrets Manager.

Source: AWS Lambda API reference, Invoke and InvokeWithResponseStream.
"""

from __future__ import annotations

import json
import logging
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

from tornado.iostream import StreamClosedError
from tornado.web import Application, RequestHandler, stream_request_body

from kernel_gateway.local import event_stream
from kernel_gateway.local.aws_root import AwsFront, signed_request
from kernel_gateway.local.function_configuration import configuration_of
from kernel_gateway.local.invokes import FunctionError, Invoke
from kernel_gateway.local.lambda_service import FunctionNotFound, LambdaService, TooManyRequests
from kernel_gateway.local.runtime_api import BUFFERED_RESPONSE_BYTES
from kernel_gateway.local.sigv4 import SignatureRefused, verify
from kernel_gateway.local.sts_front import NoDelayServer, no_log
from kernel_gateway.local.warm_container import Function

logger = logging.getLogger(__name__)

REQUEST_BYTES = 6 * 1024 * 1024
"""Source: AWS Lambda quota, 6 MB for a synchronous request."""

DISCARD_BYTES = 4 * 1024**3
"""How much of a request over the limit is read (and dropped) so that the answer arrives."""

CHUNK_BYTES = 256 * 1024
"""Payload of one event; botocore refuses events over 16 MB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LambdaAccess:
    """Who may invoke.

    Attributes:
        secret_keys: access key id to secret key.
        region: that signatures must be scoped to.
    """

    secret_keys: Mapping[str, str]
    region: str


class LambdaError(Exception):
    """An answer other than a result.

    Attributes:
        code: AWS's name of it.
        status: its HTTP status.
    """

    def __init__(self, status: int, code: str, message: str, **more: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.body = {"Type": "User", "Message": message, "message": message, **more}


@stream_request_body
class _LambdaHandler(RequestHandler):
    """What Invoke and InvokeWithResponseStream have in common."""

    def initialize(self, service: LambdaService, access: LambdaAccess) -> None:
        self._service = service
        self._access = access
        self._body = bytearray()
        self._size_bytes = 0
        self._invoke: Invoke | None = None

    def prepare(self) -> None:
        connection = self.request.connection
        connection.set_max_body_size(DISCARD_BYTES)  # type: ignore[union-attr]
        self.set_header("x-amzn-RequestId", str(uuid.uuid4()))

    def data_received(self, chunk: bytes) -> None:
        self._size_bytes += len(chunk)
        if self._size_bytes <= REQUEST_BYTES:
            self._body += chunk

    async def post(self, function: str) -> None:
        try:
            invoke = self._invoke = self._submit(unquote(function))
        except LambdaError as error:
            await self._refuse(error)
            return
        self.set_header("x-amzn-RequestId", invoke.request_id)
        self.set_header("X-Amz-Executed-Version", "$LATEST")
        try:
            await self._respond(invoke)
        except StreamClosedError:
            invoke.response.detach()

    async def _respond(self, invoke: Invoke) -> None:
        raise NotImplementedError

    def on_connection_close(self) -> None:
        if self._invoke is not None:
            self._invoke.response.detach()

    def _submit(self, function: str) -> Invoke:
        if self._size_bytes > REQUEST_BYTES:
            raise LambdaError(
                413,
                "RequestTooLargeException",
                f"{self._size_bytes} byte payload is too large for the RequestResponse invocation "
                f"type (limit {REQUEST_BYTES} bytes)",
            )
        payload = bytes(self._body)
        self._authenticate(payload)
        headers = self.request.headers
        if headers.get("X-Amz-Invocation-Type", "RequestResponse") != "RequestResponse":
            raise LambdaError(
                400, "InvalidParameterValueException", "only RequestResponse is offered here"
            )
        invoke = Invoke(
            function_name=_plain_name(function),
            payload=payload or b"{}",
            tenant_id=headers.get("X-Amz-Tenant-Id"),
            client_context=headers.get("X-Amz-Client-Context"),
        )
        try:
            self._service.submit(invoke)
        except FunctionNotFound:
            raise LambdaError(
                404, "ResourceNotFoundException", f"Function not found: {invoke.function_name}"
            ) from None
        except TooManyRequests:
            raise LambdaError(
                429,
                "TooManyRequestsException",
                "Rate Exceeded.",
                Reason="ConcurrentInvocationLimitExceeded",
            ) from None
        return invoke

    def _authenticate(self, payload: bytes) -> None:
        try:
            verify(
                signed_request(self.request, payload),
                secret_keys=self._access.secret_keys,
                service="lambda",
                region=self._access.region,
            )
        except SignatureRefused as error:
            raise LambdaError(403, error.code, str(error)) from error

    async def _refuse(self, error: LambdaError) -> None:
        self.set_status(error.status)
        self.set_header("x-amzn-ErrorType", error.code)
        self.set_header("Content-Type", "application/json")
        await self.finish(json.dumps(error.body))


class InvokeHandler(_LambdaHandler):
    """Invoke: the whole response in one answer."""

    async def _respond(self, invoke: Invoke) -> None:
        body = bytearray()
        async for chunk in invoke.response.chunks():
            if len(body) <= BUFFERED_RESPONSE_BYTES:
                body += chunk
        error = invoke.response.error
        self.set_header("Content-Type", "application/json")
        if error is not None:
            self.set_header("X-Amz-Function-Error", "Unhandled")
            await self.finish(error.body)
        elif len(body) > BUFFERED_RESPONSE_BYTES:
            too_large = FunctionError.create(
                "Function.ResponseSizeTooLarge", "the response is larger than Invoke may return"
            )
            self.set_header("X-Amz-Function-Error", "Unhandled")
            await self.finish(too_large.body)
        else:
            await self.finish(bytes(body))


class InvokeStreamHandler(_LambdaHandler):
    """InvokeWithResponseStream: what the runtime writes goes out as it comes."""

    async def _respond(self, invoke: Invoke) -> None:
        self.set_header("Content-Type", event_stream.CONTENT_TYPE)
        async for chunk in invoke.response.chunks():
            view = memoryview(chunk)
            for start in range(0, len(chunk), CHUNK_BYTES):
                self.write(event_stream.payload_chunk(bytes(view[start : start + CHUNK_BYTES])))
            await self.flush()
        error = invoke.response.error
        if error is None:
            await self.finish(event_stream.invoke_complete())
        else:
            details = error.body.decode(errors="replace")
            await self.finish(event_stream.invoke_complete(error.type, details))


class ConfigurationHandler(_LambdaHandler):
    """GetFunctionConfiguration: what a function is."""

    async def get(self, function: str) -> None:
        """Say it of the one version that there is."""
        try:
            self._authenticate(b"")
            found = self._function(_plain_name(unquote(function)))
        except LambdaError as error:
            await self._refuse(error)
            return
        self.set_header("Content-Type", "application/json")
        await self.finish(json.dumps(configuration_of(found)))

    def _function(self, name: str) -> Function:
        qualifier = self.get_query_argument("Qualifier", "$LATEST")
        found = self._service.function(name)
        if found is None or qualifier != "$LATEST":
            text = f"Function not found: {name}:{qualifier}"
            raise LambdaError(404, "ResourceNotFoundException", text)
        return found


def serve_host(
    service: LambdaService, front: AwsFront, access: LambdaAccess, listener: socket.socket
) -> NoDelayServer:
    """Serve the Lambda API, STS and Secrets Manager on ``listener``."""
    lambda_arguments = {"service": service, "access": access}
    application = Application(
        [
            (r"/2015-03-31/functions/([^/]+)/invocations", InvokeHandler, lambda_arguments),
            (
                r"/2021-11-15/functions/([^/]+)/response-streaming-invocations",
                InvokeStreamHandler,
                lambda_arguments,
            ),
            (
                r"/2015-03-31/functions/([^/]+)/configuration",
                ConfigurationHandler,
                lambda_arguments,
            ),
            front.route("host"),
        ],
        log_function=no_log,
    )
    server = NoDelayServer(application, max_body_size=REQUEST_BYTES)
    server.add_sockets([listener])
    return server


def _plain_name(function: str) -> str:
    """Return the function's name from a name, partial or full ARN, with or without qualifier."""
    name = function.split(":function:", 1)[-1] if ":function:" in function else function
    return name.removesuffix(":$LATEST")
