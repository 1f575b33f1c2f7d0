"""The STS address: records every AssumeRole as CloudTrail would, then passes it on unchanged."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from tornado.httpclient import HTTPRequest, HTTPResponse
from tornado.httpserver import HTTPServer
from tornado.iostream import IOStream
from tornado.netutil import Resolver
from tornado.simple_httpclient import SimpleAsyncHTTPClient
from tornado.web import RequestHandler

from kernel_gateway.local.relay import UnixAddress

logger = logging.getLogger(__name__)

STS_BODY_BYTES = 64 * 1024
TIMEOUT_S = 20.0

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length", "upgrade"}


class NoDelayServer(HTTPServer):
    """An HTTP server whose small answers are not held back by Nagle's algorithm.

    Attributes:
        max_connections: at once, others are closed; None = any number.
    """

    max_connections: int | None = None

    def handle_stream(self, stream: IOStream, address: Any) -> Any:
        """Serve one connection, if there are not too many."""
        if self.max_connections is not None and len(self._connections) >= self.max_connections:
            stream.close()
            return None
        stream.set_nodelay(True)
        return super().handle_stream(stream, address)


class _UnixResolver(Resolver):
    """Resolves every name to one unix socket."""

    def initialize(self, address: UnixAddress) -> None:
        self._address = address

    async def resolve(self, host: str, port: int, family: Any = None) -> list[tuple[int, Any]]:
        return [(socket.AF_UNIX, self._address.value)]


class StsFront:
    """Forwards STS requests to SeaweedFS and keeps the record of them."""

    def __init__(
        self, client: SimpleAsyncHTTPClient, record_path: Path, now: Callable[[], datetime]
    ) -> None:
        self._client = client
        self._record_path = record_path
        self._now = now

    @classmethod
    def create(
        cls,
        target: UnixAddress,
        record_path: Path,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> StsFront:
        """Return a front for the STS behind ``target`` that appends to ``record_path``."""
        record_path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        client = SimpleAsyncHTTPClient(
            force_instance=True, resolver=_UnixResolver(address=target), max_clients=64
        )
        return cls(client, record_path, now)

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    async def forward(self, handler: RequestHandler, source: str) -> None:
        """Answer ``handler``'s request with what STS says.

        Args:
            handler: the request, whose headers are passed on so that its signature stays valid.
            source: who asks, for the record.
        """
        received = handler.request
        headers = {
            name: value
            for name, value in received.headers.get_all()
            if name.lower() not in _HOP_BY_HOP
        }
        headers["Connection"] = "close"
        request = HTTPRequest(
            f"http://sts{received.uri}",
            method="POST",
            headers=headers,
            body=received.body,
            connect_timeout=TIMEOUT_S,
            request_timeout=TIMEOUT_S,
            follow_redirects=False,
            decompress_response=False,
        )
        try:
            response = await self._client.fetch(request, raise_error=False)
        except OSError:
            response = HTTPResponse(request, 599)
        status = 503 if response.code == 599 else response.code
        self._record(received.body, source, status)
        handler.set_status(status)
        for name in ("Content-Type", "X-Amz-Request-Id"):
            if name in response.headers:
                handler.set_header(name, response.headers[name])
        await handler.finish(response.body or b"")

    def _record(self, body: bytes, source: str, status: int) -> None:
        form = {name: values[0] for name, values in parse_qs(body.decode("latin-1")).items()}
        if form.get("Action") != "AssumeRole":
            return
        duration = form.get("DurationSeconds", "")
        line = {
            "time": self._now().isoformat(timespec="milliseconds"),
            "role_arn": form.get("RoleArn"),
            "role_session_name": form.get("RoleSessionName"),
            "duration_s": int(duration) if duration.isdecimal() else None,
            "policy": form.get("Policy"),
            "source": source,
            "status": status,
        }
        with self._record_path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def no_log(handler: RequestHandler) -> None:
    """Write no line per request: the record of AssumeRole is the log."""
