"""The gateway's S3 client as a server sees it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from kernel_gateway.config import Deployment
from kernel_gateway.errors import ConfigError, NotFound, PreconditionFailed, StorageError
from kernel_gateway.objects import S3ObjectStore
from kernel_gateway.retention import ObjectLock
from lambda_kernel.contract.keys import Stack
from lambda_kernel.storage import s3_requests

AWS_VARIABLES = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")


class _Server(ThreadingHTTPServer):
    """Answers what a test has put into ``answers``, else 200, and keeps what was asked."""

    daemon_threads = True
    asked: list[tuple[str, str, dict[str, str], bytes]]
    answers: list[tuple[int, bytes]]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {k.lower(): v for k, v in self.headers.items()}
        server.asked.append((self.command, self.path, headers, body))
        status, content = server.answers.pop(0) if server.answers else (200, b"")
        self.send_response(status)
        self.send_header("ETag", '"e"')
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_HEAD = do_PUT = do_DELETE = do_CONNECT = answer  # noqa: N815

    def log_message(self, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Server]:
    monkeypatch.setattr(s3_requests, "_PAUSE_S", 0.0)
    with _Server(("127.0.0.1", 0), _Handler) as server:
        server.asked, server.answers = [], []
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def store_at(endpoint: str | None, *, has_key: bool = True) -> S3ObjectStore:
    return S3ObjectStore.create(
        Deployment(
            stack=Stack(),
            region="eu-west-1",
            handler_digest="d" * 64,
            s3_endpoint=endpoint,
            access_key_id="id" if has_key else None,
            secret_access_key="secret" if has_key else None,
        )
    )


@pytest.fixture
def store(server: _Server) -> Iterator[S3ObjectStore]:
    store = store_at(f"http://127.0.0.1:{server.server_port}")
    yield store
    store.close()


async def test_a_body_is_sent_without_a_round_trip_to_ask_for_leave(
    server: _Server, store: S3ObjectStore
) -> None:
    etag = await store.put("b", "k", b"stored", if_absent=True)

    ((_, path, headers, body),) = server.asked
    assert (etag, path, body, headers["if-none-match"]) == ('"e"', "/b/k", b"stored", "*")
    assert "expect" not in headers
    assert "x-amz-checksum-sha256" in headers


async def test_whether_an_object_is_there_is_asked_without_its_bytes(
    server: _Server, store: S3ObjectStore
) -> None:
    server.answers = [(200, b""), (404, b""), (403, b"")]
    assert await store.exists("b", "k")
    assert not await store.exists("b", "k")
    with pytest.raises(StorageError):
        await store.exists("b", "k")
    assert {(asked[0], asked[1]) for asked in server.asked} == {("HEAD", "/b/k")}


async def test_an_object_comes_with_its_etag_and_is_written_only_over_that(
    server: _Server, store: S3ObjectStore
) -> None:
    server.answers = [(200, b"body")]
    found = await store.get("b", "a b")
    await store.put("b", "a b", b"new", if_match=found.etag)
    assert (found.body, server.asked[0][1], server.asked[1][2]["if-match"]) == (
        b"body",
        "/b/a%20b",
        '"e"',
    )


async def test_a_lock_goes_with_the_object(server: _Server, store: S3ObjectStore) -> None:
    before = datetime.now(UTC)
    await store.put("b", "k", b"x", lock=ObjectLock(mode="GOVERNANCE", age=timedelta(days=2)))
    headers = server.asked[0][2]
    until = datetime.fromisoformat(headers["x-amz-object-lock-retain-until-date"])
    assert headers["x-amz-object-lock-mode"] == "GOVERNANCE"
    assert timedelta(0) <= until - before.replace(microsecond=0) - timedelta(days=2)
    assert until <= datetime.now(UTC) + timedelta(days=2)
    assert "x-amz-object-lock-mode" in headers["authorization"]


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (404, "NoSuchKey", NotFound),
        (412, "PreconditionFailed", PreconditionFailed),
        (403, "AccessDenied", StorageError),
        (404, "NoSuchBucket", StorageError),
    ],
)
async def test_a_refusal_is_an_error_of_ours(
    server: _Server, store: S3ObjectStore, status: int, code: str, error: type[Exception]
) -> None:
    server.answers = [(status, f"<Error><Code>{code}</Code></Error>".encode())]
    with pytest.raises(error, match=r"\bk\b") as refused:
        await store.put("b", "k", b"", if_absent=True)
    assert type(refused.value) is error


async def test_a_listing_goes_on_where_a_page_ends(server: _Server, store: S3ObjectStore) -> None:
    entry = (
        "<Contents><Key>{}</Key><ETag>e</ETag><Size>1</Size>"
        "<LastModified>1970-01-01T00:00:01Z</LastModified></Contents>"
    )
    server.answers = [
        (200, f"<L><IsTruncated>true</IsTruncated>{entry.format('a')}"
              "<NextContinuationToken>t&amp;</NextContinuationToken></L>".encode()),
        (200, f"<L><IsTruncated>false</IsTruncated>{entry.format('b')}</L>".encode()),
    ]  # fmt: skip
    found = [(each.key, each.last_modified) async for each in store.entries("b", "p/")]
    assert found == [("a", 1.0), ("b", 1.0)]
    assert "continuation-token=t%26&" in server.asked[1][1]


async def test_aws_is_asked_through_the_proxy_that_is_set(
    server: _Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{server.server_port}")
    for name in ("NO_PROXY", "no_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    server.answers = [(403, b"")] * 3
    store = store_at(None)
    with pytest.raises(StorageError, match="did not answer"):
        await store.get("lkg-records", "k")
    store.close()
    assert {asked[:2] for asked in server.asked} == {
        ("CONNECT", "lkg-records.s3.eu-west-1.amazonaws.com:443")
    }


async def test_a_server_of_our_own_is_asked_straight(
    server: _Server, store: S3ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    await store.delete("b", "k")
    assert server.asked[0][0] == "DELETE"


def test_without_credentials_it_is_said_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in AWS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    with pytest.raises(ConfigError, match="AWS_PROFILE"):
        store_at(None, has_key=False)
