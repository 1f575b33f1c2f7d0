"""What both AWS addresses (the host's and a container's) answer at ``/``: STS, Secrets Manager."""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any

from tornado.httputil import HTTPServerRequest
from tornado.web import Application, RequestHandler

from kernel_gateway.local.secrets_api import TARGET_PREFIX, SecretsApi
from kernel_gateway.local.sigv4 import SignedRequest
from kernel_gateway.local.sts_front import STS_BODY_BYTES, NoDelayServer, StsFront, no_log

CONTAINER_CONNECTIONS = 16
"""On the listener of one container: what a cell opens beyond is closed at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsFront:
    """The services without a path of their own."""

    sts: StsFront
    secrets: SecretsApi

    def route(self, source: str) -> tuple[str, type[RequestHandler], dict[str, Any]]:
        """Return the route; ``source`` is the name of who asks, for the records."""
        return ("/", RootHandler, {"front": self, "source": source})


class RootHandler(RequestHandler):
    """``POST /``: the JSON API of Secrets Manager, the query API of STS."""

    def initialize(self, front: AwsFront, source: str) -> None:
        """Keep what the requests need."""
        self._front = front
        self._source = source

    async def post(self) -> None:
        """Answer the request, by the service that its target names."""
        if not self.request.headers.get("X-Amz-Target", "").startswith(TARGET_PREFIX):
            await self._front.sts.forward(self, self._source)
            return
        answer = self._front.secrets.answer(signed_request(self.request), self._source)
        self.set_status(answer.status)
        for name, value in answer.headers.items():
            self.set_header(name, value)
        await self.finish(answer.body)


def signed_request(request: HTTPServerRequest, body: bytes | None = None) -> SignedRequest:
    """Return what tornado received as what a signature is verified against."""
    return SignedRequest(
        method=request.method or "",
        url=f"http://{request.headers.get('Host', '')}{request.uri}",
        headers=dict(request.headers.get_all()),
        body=request.body if body is None else body,
    )


def serve_container(front: AwsFront, listener: socket.socket, source: str) -> NoDelayServer:
    """Serve a container's AWS address: STS, Secrets Manager and nothing else.

    Args:
        front: what answers.
        listener: the listening socket that came out of the container.
        source: its name in the records.
    """
    server = NoDelayServer(
        Application([front.route(source)], log_function=no_log), max_body_size=STS_BODY_BYTES
    )
    server.max_connections = CONTAINER_CONNECTIONS
    server.add_sockets([listener])
    return server
