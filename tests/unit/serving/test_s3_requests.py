"""Requests to S3: where they go, what is tried again, what an answer means."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from lambda_kernel.serving import credentials
from lambda_kernel.serving.errors import ObjectNotFound, PreconditionFailed, StorageUnavailable
from lambda_kernel.serving.objects import S3ObjectStore
from lambda_kernel.storage import s3_requests

Answer = tuple[int, bytes]


class Server(ThreadingHTTPServer):
    """Answers what a test has put into ``answers``, and keeps what was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: list[Answer] = []
        self.asked: list[tuple[str, str, bytes]] = []
        self.headers: list[dict[str, str]] = []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        self.server.asked.append((self.command, self.path, body))
        self.server.headers.append({k.lower(): v for k, v in self.headers.items()})
        status, content = self.server.answers.pop(0)
        self.send_response(status)
        self.send_header("Content-Length", str(len(content) + (status == 299)))
        self.send_header("ETag", '"e"')
        self.send_header("x-amz-meta-Mode", "755")
        self.end_headers()
        self.wfile.write(content)
        self.close_connection = status == 299

    do_GET = do_PUT = do_DELETE = do_POST = do_HEAD = answer  # noqa: N815

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def make_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., S3ObjectStore]]:
    monkeypatch.setattr(s3_requests, "_PAUSE_S", 0.0)
    opened = []

    def make(**platform: str) -> S3ObjectStore:
        keys = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s", "AWS_REGION": "eu-west-1"}
        clients = credentials.open_clients(keys | platform, lambda **_: None)
        clients.swappable.swap(credentials.execution_role(keys))
        opened.append(clients)
        return S3ObjectStore(clients.s3, clients.requests)

    yield make
    for clients in opened:
        clients.requests.close()
        clients.s3.close()
        clients.sts.close()


@pytest.fixture
def store(server: Server, make_store: Callable[..., S3ObjectStore]) -> S3ObjectStore:
    return make_store(AWS_ENDPOINT_URL_S3=f"http://127.0.0.1:{server.server_port}")


def refusal(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code></Error>".encode()


def test_on_aws_a_bucket_is_asked_in_its_own_region(
    make_store: Callable[..., S3ObjectStore],
) -> None:
    requests = make_store()._requests
    assert requests.address("lkg-state") == "https://lkg-state.s3.eu-west-1.amazonaws.com/"


def test_a_key_travels_as_it_is(server: Server, store: S3ObjectStore) -> None:
    server.answers = [(200, b"body")]
    assert store.get("b", "é ü+%/f~x(1)?") == b"body"
    assert server.asked[0][1] == "/b/%C3%A9%20%C3%BC%2B%25/f~x%281%29%3F"


def test_metadata_comes_back_and_nobody_asks_leave_for_a_body(
    server: Server, store: S3ObjectStore
) -> None:
    server.answers = [(200, b""), (200, b"")]
    store.put("b", "k", b"body", metadata={"mode": "755"}, tags={"run": "r"}, if_match='"e"')
    assert store.head("b", "k").metadata == {"mode": "755"}
    sent = server.headers[0]
    assert (sent["x-amz-meta-mode"], sent["x-amz-tagging"], sent["if-match"]) == (
        "755",
        "run=r",
        '"e"',
    )
    assert "expect" not in sent


def test_a_file_is_sent_again_from_where_it_began(server: Server, store: S3ObjectStore) -> None:
    server.answers = [(503, refusal("SlowDown")), (500, b""), (200, b"")]
    body = io.BytesIO(b"skipped,body")
    body.seek(8)
    store.put("b", "k", body, size_bytes=4)
    assert [sent for _, _, sent in server.asked] == [b"body"] * 3


def test_it_is_not_tried_for_ever(server: Server, store: S3ObjectStore) -> None:
    server.answers = [(503, refusal("SlowDown"))] * 3
    with pytest.raises(StorageUnavailable, match="SlowDown"):
        store.get("b", "k")


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (404, "NoSuchKey", ObjectNotFound),
        (412, "PreconditionFailed", PreconditionFailed),
        (409, "ConditionalRequestConflict", PreconditionFailed),
        (403, "AccessDenied", StorageUnavailable),
        (404, "NoSuchBucket", StorageUnavailable),
    ],
)
def test_a_refusal_is_an_error_of_ours(
    server: Server, store: S3ObjectStore, status: int, code: str, error: type[Exception]
) -> None:
    server.answers = [(status, refusal(code))]
    with pytest.raises(error) as raised:
        store.put("b", "k", b"x")
    assert type(raised.value) is error
    assert len(server.asked) == 1


def test_a_refused_tag_names_the_permission(server: Server, store: S3ObjectStore) -> None:
    server.answers = [(403, refusal("AccessDenied"))]
    with pytest.raises(StorageUnavailable, match="s3:PutObjectTagging") as refused:
        store.put("b", "users/u1/default/runs/r1/x", b"x", tags={"run": "r1"})
    assert "users/u1/default/runs/r1/x" in str(refused.value)


@pytest.mark.parametrize(
    ("status", "code", "tags"),
    [
        (403, "AccessDenied", None),
        (400, "KeyTooLongError", {"run": "r"}),
        (404, "NoSuchBucket", {"run": "r"}),
    ],
)
def test_other_refusals_name_no_permission(
    server: Server, store: S3ObjectStore, status: int, code: str, tags: dict[str, str] | None
) -> None:
    server.answers = [(status, refusal(code))]
    with pytest.raises(StorageUnavailable, match=code) as refused:
        store.put("b", "k", b"x", tags=tags)
    assert "Tagging" not in str(refused.value)


def test_a_body_that_is_cut_short_is_an_error(server: Server, store: S3ObjectStore) -> None:
    server.answers = [(299, b"half")]
    with pytest.raises(StorageUnavailable, match="did not answer"):
        store.download("b", "k", len)


def test_nobody_there_is_an_error(make_store: Callable[..., S3ObjectStore]) -> None:
    store = make_store(AWS_ENDPOINT_URL_S3="http://127.0.0.1:1")
    with pytest.raises(StorageUnavailable, match="did not answer for k"):
        store.get("b", "k")


def test_a_listing_ends_where_it_shall(server: Server, store: S3ObjectStore) -> None:
    entry = (
        "<Contents><Key>{}</Key><ETag>e</ETag><Size>1</Size>"
        "<LastModified>2026-01-01T00:00:00.5Z</LastModified></Contents>"
    )
    page = "<L xmlns='urn:x'><IsTruncated>true</IsTruncated>{}<NextContinuationToken>t</{}></L>"
    server.answers = [
        (200, page.format("".join(map(entry.format, keys)), "NextContinuationToken").encode())
        for keys in ("ab", "cd")
    ]
    assert [found.key for found in store.list("b", "p/", after="0", until="c")] == ["a", "b", "c"]
    assert "start-after=0" in server.asked[0][1]
    assert "continuation-token=t" in server.asked[1][1]


def test_clocks_that_differ_are_told_with_what_to_do(server: Server, store: S3ObjectStore) -> None:
    server.answers = [(403, refusal("RequestTimeTooSkewed"))]
    with pytest.raises(StorageUnavailable, match=r"clock of the machine .* AWS's; set it \(NTP\)"):
        store.get("b", "k")
    assert len(server.asked) == 1
