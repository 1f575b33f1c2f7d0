"""The gateway's S3 client as a server sees it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kernel_gateway.config import Deployment
from kernel_gateway.objects import S3ObjectStore
from lambda_kernel.contract.keys import Stack


class _Server(ThreadingHTTPServer):
    """Takes every PUT, and asks for no body that was not sent with it."""

    daemon_threads = True
    seen: list[tuple[dict[str, str], bytes]]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.seen.append(({k.lower(): v for k, v in self.headers.items()}, body))
        self.send_response(200)
        self.send_header("ETag", '"e"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.seen = []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


async def test_a_body_is_sent_without_a_round_trip_to_ask_for_leave(server: _Server) -> None:
    store = S3ObjectStore.create(
        Deployment(
            stack=Stack(),
            region="us-east-1",
            handler_digest="d" * 64,
            s3_endpoint=f"http://127.0.0.1:{server.server_port}",
            access_key_id="id",
            secret_access_key="secret",
        )
    )

    etag = await store.put("b", "k", b"stored", if_absent=True)
    store.close()

    ((headers, body),) = server.seen
    assert (etag, body, headers["if-none-match"]) == ('"e"', b"stored", "*")
    assert "expect" not in headers
    assert "x-amz-checksum-sha256" in headers
