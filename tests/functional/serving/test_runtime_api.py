"""The Runtime API loop against a small server that speaks as Lambda does."""

from __future__ import annotations

import base64
import gc
import json
import threading
import weakref
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from lambda_kernel.serving import runtime_api
from lambda_kernel.serving.runtime_api import Event, Response, RuntimeApi


class FakeLambda:
    """Hands out events and keeps what the runtime answered."""

    def __init__(self, events: list[bytes]) -> None:
        self.events = events
        self.answers: list[dict[str, Any]] = []
        self.connections: set[object] = set()
        api = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                api.connections.add(self.connection)
                if not api.events:
                    self.send_error(410)
                    return
                body = api.events.pop(0)
                self.send_response(200)
                self.send_header("Lambda-Runtime-Aws-Request-Id", f"id-{len(api.answers)}")
                self.send_header("Lambda-Runtime-Deadline-Ms", "1234")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self) -> None:
                chunked = self.headers.get("Transfer-Encoding") == "chunked"
                answer: dict[str, Any] = {"path": self.path, "headers": dict(self.headers)}
                if chunked:
                    answer |= self._read_chunks()
                else:
                    answer["body"] = self.rfile.read(int(self.headers["Content-Length"]))
                api.answers.append(answer)
                self.send_response(202)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def _read_chunks(self) -> dict[str, Any]:
                chunks = []
                while size := int(self.rfile.readline(), 16):
                    chunks.append(self.rfile.read(size))
                    self.rfile.readline()
                trailers = {}
                while line := self.rfile.readline().strip():
                    name, _, value = line.decode().partition(": ")
                    trailers[name] = value
                return {"chunks": chunks, "trailers": trailers}

            def log_message(self, *arguments: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"127.0.0.1:{self.server.server_address[1]}"


@pytest.fixture
def fake_lambda() -> Iterator[FakeLambda]:
    fake = FakeLambda([b"one", b"two"])
    thread = threading.Thread(target=fake.server.serve_forever)
    thread.start()
    yield fake
    fake.server.shutdown()
    thread.join()
    fake.server.server_close()


def serve_all(fake: FakeLambda, handle: Any) -> None:
    api = RuntimeApi(fake.address)
    with pytest.raises(runtime_api.RuntimeApiError):
        runtime_api.serve(api, handle, between=gc.collect)
    api.close()


def test_events_are_answered_in_chunks_over_one_connection(fake_lambda: FakeLambda) -> None:
    def handle(event: Event, response: Response) -> bool:
        response.send(event.body)
        response.send(b"more")
        return True

    serve_all(fake_lambda, handle)
    assert [answer["chunks"] for answer in fake_lambda.answers] == [
        [b"one", b"more"],
        [b"two", b"more"],
    ]
    headers = fake_lambda.answers[0]["headers"]
    assert headers["Lambda-Runtime-Function-Response-Mode"] == "streaming"
    assert fake_lambda.answers[0]["path"] == "/2018-06-01/runtime/invocation/id-0/response"
    assert len(fake_lambda.connections) == 1


def serve_once(fake: FakeLambda, handle: Any) -> None:
    api = RuntimeApi(fake.address)
    runtime_api.serve(api, handle, between=gc.collect)
    api.close()
    assert fake.events == [b"two"], "no other cell may follow a failure in this container"


def test_an_error_in_the_middle_stands_in_the_trailers(fake_lambda: FakeLambda) -> None:
    def handle(event: Event, response: Response) -> bool:
        response.send(b"begun")
        raise ValueError("broken")

    serve_once(fake_lambda, handle)
    trailers = fake_lambda.answers[0]["trailers"]
    assert trailers["Lambda-Runtime-Function-Error-Type"] == "Runtime.ValueError"
    body = json.loads(base64.b64decode(trailers["Lambda-Runtime-Function-Error-Body"]))
    assert body["errorMessage"] == "broken"


def test_an_error_before_anything_was_sent_is_posted_as_one(fake_lambda: FakeLambda) -> None:
    def handle(event: Event, response: Response) -> bool:
        raise ValueError("broken")

    serve_once(fake_lambda, handle)
    assert [answer["path"] for answer in fake_lambda.answers] == [
        "/2018-06-01/runtime/invocation/id-0/error"
    ]


def test_a_spent_container_asks_for_no_other_event(fake_lambda: FakeLambda) -> None:
    def handle(event: Event, response: Response) -> bool:
        response.send(b"last")
        return False

    api = RuntimeApi(fake_lambda.address)
    runtime_api.serve(api, handle, between=gc.collect)
    api.close()
    assert fake_lambda.events == [b"two"]


class Left:
    """What a handler leaves in a cycle."""

    def __init__(self, response: Response) -> None:
        self.response, self.itself = response, self


def test_what_an_invocation_left_is_gone_before_the_next_is_handled(
    fake_lambda: FakeLambda,
) -> None:
    left: list[weakref.ref[Left]] = []
    alive: list[int] = []

    def handle(event: Event, response: Response) -> bool:
        alive.append(sum(each() is not None for each in left))
        left.append(weakref.ref(Left(response)))
        response.send(event.body)
        return True

    serve_all(fake_lambda, handle)
    assert alive == [0, 0]
