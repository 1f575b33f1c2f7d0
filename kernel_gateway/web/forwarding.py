"""Requests for kernels that another gateway on the same buckets serves: handed on to that one.

The caller's own token goes along, and the other gateway asks for it as ever. What was handed on
once is marked, and never again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
from collections.abc import Iterable, Mapping
from typing import Any

from tornado.httpclient import AsyncHTTPClient, HTTPClientError, HTTPRequest, HTTPResponse
from tornado.httputil import HTTPHeaders, HTTPServerRequest, parse_response_start_line
from tornado.simple_httpclient import SimpleAsyncHTTPClient
from tornado.web import RequestHandler

from kernel_gateway.errors import GatewayError, HeldElsewhere, Started
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.kernels.replica import Replica

logger = logging.getLogger(__name__)

FORWARDED_HEADER = "Lambda-Kernel-Forwarded"
CONNECT_TIMEOUT_S = 3.0
LIST_TIMEOUT_S = 3.0
ANSWER_TIMEOUT_S = 24 * 3600.0
MAX_CLIENTS_COUNT = 1000
MAX_ANSWER_BYTES = 1 << 40
NO_MODELS = (ValueError, TypeError, KeyError, RecursionError)
"""What an answer raises that is no list of models."""
UNKNOWN = "unknown"
"""``execution_state`` of a kernel whose gateway cannot be asked; JupyterLab knows the word."""

NOT_SENT_ON = frozenset(
    {
        *("connection", "content-length", "cookie", "expect", "host", "keep-alive", "origin"),
        *("proxy-authorization", "referer", "te", "trailer", "transfer-encoding", "upgrade"),
    }
)
NOT_SENT_BACK = frozenset(
    {
        *("connection", "content-length", "date", "keep-alive", "server", "set-cookie"),
        *("trailer", "transfer-encoding", "upgrade"),
    }
)


class Unreachable(GatewayError):
    """The gateway that serves the kernel cannot be reached; nothing was sent.

    Attributes:
        retry_after_s: when the kernel is taken over here, if that gateway is gone.
    """

    http_status = 503

    def __init__(self, elsewhere: HeldElsewhere, problem: object) -> None:
        super().__init__(f"{elsewhere} (it does not answer: {problem})")
        self.retry_after_s = elsewhere.retry_after_s


class AnswerLost(GatewayError):
    """The gateway that serves the kernel was asked, and did not answer.

    Attributes:
        retry_after_s: when the kernel is taken over here, if that gateway is gone.
    """

    http_status = 502
    code_started = Started.UNKNOWN

    def __init__(self, elsewhere: HeldElsewhere, problem: object) -> None:
        super().__init__(
            f"the gateway that serves the kernel was lost before it answered: {problem}; what it "
            "was asked to do may have been done"
        )
        self.retry_after_s = elsewhere.retry_after_s


def was_forwarded(request: HTTPServerRequest) -> bool:
    """Return whether another gateway has handed this request on to us."""
    return FORWARDED_HEADER in request.headers


def headers_to_send(request: HTTPServerRequest) -> HTTPHeaders:
    """Return a client's headers as the other gateway gets them, marked."""
    headers = HTTPHeaders({FORWARDED_HEADER: "1"})
    for name, value in request.headers.get_all():
        if name.lower() not in NOT_SENT_ON and not name.lower().startswith("sec-websocket"):
            headers.add(name, value)
    return headers


def url_there(url: str, handler: RequestHandler, path: str | None = None) -> str:
    """Return the URL of a request at the other gateway, whose base URL may be another."""
    if path is None:
        base: str = handler.settings.get("base_url", "/")
        path = (handler.request.uri or "").removeprefix(base)
    return f"{url.rstrip('/')}/{path.lstrip('/')}"


class Forwarder:
    """Hands requests on to other gateways."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica
        self._client: AsyncHTTPClient = SimpleAsyncHTTPClient(
            force_instance=True, max_clients=MAX_CLIENTS_COUNT, max_body_size=MAX_ANSWER_BYTES
        )

    def close(self) -> None:
        """Close what is open."""
        self._client.close()

    async def forward(self, handler: RequestHandler, elsewhere: HeldElsewhere) -> None:
        """Answer a request with what the gateway that serves the kernel answers.

        Raises:
            HeldElsewhere: nothing may be sent there.
            Unreachable: there is no connection to it.
            AnswerLost: it does not answer any more.
        """
        url = _url(handler, elsewhere)
        answer = _Answer(handler)
        request = HTTPRequest(
            url_there(url, handler),
            method=handler.request.method or "GET",
            headers=headers_to_send(handler.request),
            body=handler.request.body or None,
            allow_nonstandard_methods=True,
            follow_redirects=False,
            decompress_response=False,
            connect_timeout=CONNECT_TIMEOUT_S,
            request_timeout=ANSWER_TIMEOUT_S,
            header_callback=answer.take_header,
            streaming_callback=answer.take_body,
        )
        try:
            await self._fetched(request, elsewhere)
        finally:
            answer.end()
        handler.finish()

    async def delete(
        self, handler: RequestHandler, elsewhere: HeldElsewhere, kernel_id: str
    ) -> None:
        """Have the gateway that serves a kernel end it (raises as `forward`)."""
        request = HTTPRequest(
            url_there(_url(handler, elsewhere), handler, f"api/kernels/{kernel_id}"),
            method="DELETE",
            headers=headers_to_send(handler.request),
            follow_redirects=False,
            connect_timeout=CONNECT_TIMEOUT_S,
        )
        response = await self._fetched(request, elsewhere)
        if response.code >= 300 and response.code != 404:
            raise Unreachable(elsewhere, f"it says {response.code}")

    async def models(
        self, handler: RequestHandler, kernels: Iterable[LambdaKernel]
    ) -> dict[str, dict[str, Any]]:
        """Return what other gateways say of the kernels that they serve, by id.

        Of those whose gateway cannot be asked only the state is returned, `UNKNOWN`.
        """
        ids_by_holder: dict[str, set[str]] = {}
        for kernel in kernels:
            if not kernel.is_held and kernel.record.holder is not None:
                ids_by_holder.setdefault(kernel.record.holder, set()).add(kernel.kernel_id)
        asked = (self._models_of(handler, *item) for item in ids_by_holder.items())
        return {name: model for found in await asyncio.gather(*asked) for name, model in found}

    async def _models_of(
        self, handler: RequestHandler, holder: str, ids: set[str]
    ) -> list[tuple[str, dict[str, Any]]]:
        unknown = [(kernel_id, {"execution_state": UNKNOWN}) for kernel_id in ids]
        try:
            sighting = await self.replica.sight(holder)
            if sighting is None:
                return []
            if sighting.lease.url is None:
                return unknown
            request = HTTPRequest(
                url_there(sighting.lease.url, handler, "api/kernels"),
                headers=headers_to_send(handler.request),
                follow_redirects=False,
                connect_timeout=CONNECT_TIMEOUT_S,
                request_timeout=LIST_TIMEOUT_S,
            )
            models = json.loads((await self._client.fetch(request)).body)
            return [(model["id"], model) for model in models if model["id"] in ids]
        except (GatewayError, HTTPClientError, OSError, *NO_MODELS):
            logger.info("another gateway's kernels could not be asked for", exc_info=True)
            return unknown

    async def _fetched(self, request: HTTPRequest, elsewhere: HeldElsewhere) -> HTTPResponse:
        fetching = asyncio.ensure_future(self._client.fetch(request, raise_error=False))
        with self.replica.watching(elsewhere.lease_id) as over:
            over.add_done_callback(lambda over: over.cancelled() or fetching.cancel())
            await asyncio.wait([fetching])
        if fetching.cancelled():
            raise AnswerLost(elsewhere, "it gives no sign any more")
        try:
            response = fetching.result()
        except (OSError, HTTPClientError) as problem:
            is_sent = not isinstance(problem, ConnectionRefusedError | socket.gaierror)
            if is_sent and "connecting" not in str(problem):
                raise AnswerLost(elsewhere, problem) from problem
            raise Unreachable(elsewhere, problem) from problem
        return response


class _Answer:
    """The other gateway's answer on its way to the client."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._headers = HTTPHeaders()
        self._is_over = False

    def take_header(self, line: str) -> None:
        """Take one line of the head."""
        if self._is_over:
            return
        if line.startswith("HTTP/"):
            self._handler.set_status(parse_response_start_line(line.strip()).code)
            self._headers = HTTPHeaders()
        elif line.strip():
            self._headers.parse_line(line)
        else:
            self._pass_headers(self._headers)

    def take_body(self, chunk: bytes) -> None:
        """Hand a piece of the body on at once."""
        if not self._is_over:
            self._handler.write(chunk)
            self._handler.flush()

    def end(self) -> None:
        """Hand nothing more on."""
        self._is_over = True

    def _pass_headers(self, headers: Mapping[str, str]) -> None:
        for name, value in headers.items():
            # Other origins are this gateway's to admit.
            if name.lower() not in NOT_SENT_BACK and not name.lower().startswith("access-control"):
                self._handler.set_header(name, value)


def _url(handler: RequestHandler, elsewhere: HeldElsewhere) -> str:
    if elsewhere.url is None or was_forwarded(handler.request):
        raise elsewhere
    return elsewhere.url
