"""boto3 against a Lambda API that is ours: what is sent once, and what each answer means."""

from __future__ import annotations

import asyncio
import binascii
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager, closing
from dataclasses import dataclass, field

import pytest

from kernel_gateway.config import Deployment
from kernel_gateway.dispatch.lambda_invoker import LambdaInvoker, completed
from kernel_gateway.errors import (
    InvokeBroken,
    InvokeError,
    InvokeNotSent,
    InvokeRefused,
    InvokeThrottled,
    InvokeTimedOut,
)
from lambda_kernel.contract.keys import Stack

Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def event(kind: str, payload: bytes, content_type: str = "application/octet-stream") -> bytes:
    """Return one message of an AWS event stream, as a chunk of HTTP/1.1."""
    headers = b""
    for name, value in (
        (":event-type", kind),
        (":content-type", content_type),
        (":message-type", "event"),
    ):
        headers += struct.pack("!B", len(name)) + name.encode() + b"\x07"
        headers += struct.pack("!H", len(value)) + value.encode()
    prelude = struct.pack("!II", len(headers) + len(payload) + 16, len(headers))
    head = prelude + struct.pack("!I", binascii.crc32(prelude)) + headers + payload
    message = head + struct.pack("!I", binascii.crc32(head))
    return b"%x\r\n%b\r\n" % (len(message), message)


HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: application/vnd.amazon.eventstream\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
COMPLETE = event("InvokeComplete", b"{}", "application/json") + b"0\r\n\r\n"


@dataclass
class FakeLambda:
    """Counts connections and requests, and answers as told."""

    answer: Answer
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while not writer.is_closing():
                head = await reader.readuntil(b"\r\n\r\n")
                for line in head.split(b"\r\n"):
                    if line.lower().startswith(b"content-length:"):
                        head += await reader.readexactly(int(line.split(b":")[1]))
                self.requests.append(head)
                await self.answer(reader, writer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def lambda_api(answer: Answer) -> AsyncIterator[tuple[LambdaInvoker, FakeLambda]]:
    fake = FakeLambda(answer)
    server = await asyncio.start_server(fake.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with closing(invoker_at(port)) as invoker:
        yield invoker, fake
    server.close()


def invoker_at(port: int) -> LambdaInvoker:
    deployment = Deployment(
        stack=Stack(),
        region="us-east-1",
        handler_digest="d" * 64,
        lambda_endpoint=f"http://127.0.0.1:{port}",
        access_key_id="a",
        secret_access_key="s",
    )
    return LambdaInvoker.create(deployment, timeouts_s=[5.0])


async def gathered(invoker: LambdaInvoker) -> list[bytes]:
    async with aclosing(invoker.invoke("lkg-env-default", b"{}", timeout_s=5.0)) as chunks:
        return [chunk async for chunk in chunks]


def saying(*parts: bytes, then_close: bool = True) -> Answer:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"".join(parts))
        if then_close:
            writer.close()

    return answer


def refusing(status: int, code: str) -> Answer:
    body = b'{"Message": "no"}'
    head = (
        f"HTTP/1.1 {status} X\r\nx-amzn-errortype: {code}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return saying(head.encode(), body)


async def test_chunks_come_after_an_empty_one_and_the_stream_ends_well() -> None:
    answer = saying(HEAD, event("PayloadChunk", b"ab"), event("PayloadChunk", b"c"), COMPLETE)
    async with lambda_api(answer) as (invoker, fake):
        assert await gathered(invoker) == [b"", b"ab", b"c"]

    assert (
        b"/2021-11-15/functions/lkg-env-default/response-streaming-invocations" in fake.requests[0]
    )
    assert fake.requests[0].endswith(b"{}")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (refusing(429, "TooManyRequestsException"), InvokeThrottled),
        (refusing(404, "ResourceNotFoundException"), InvokeRefused),
        (refusing(413, "RequestTooLargeException"), InvokeRefused),
        (refusing(403, "AccessDeniedException"), InvokeRefused),
        (refusing(500, "ServiceException"), InvokeBroken),
        (refusing(502, "X"), InvokeBroken),
        (saying(), InvokeBroken),
        (saying(HEAD), InvokeBroken),
        (saying(HEAD, event("PayloadChunk", b"ab")), InvokeBroken),
        (saying(HEAD, event("PayloadChunk", b"ab"), b"0\r\n\r\n"), InvokeBroken),
        (saying(HEAD, b"9\r\ngarbage..\r\n0\r\n\r\n"), InvokeBroken),
    ],
    ids=["429", "404", "413", "403", "500", "502", "hung up", "empty", "cut", "no end", "garbage"],
)
async def test_each_bad_answer_has_its_meaning_and_nothing_is_sent_twice(
    answer: Answer, problem: type[Exception]
) -> None:
    async with lambda_api(answer) as (invoker, fake):
        with pytest.raises(problem) as caught:
            await gathered(invoker)

    assert type(caught.value) is problem
    assert len(fake.requests) == 1


async def test_a_connection_is_used_again() -> None:
    answer = saying(HEAD, event("PayloadChunk", b"a"), COMPLETE, then_close=False)
    async with lambda_api(answer) as (invoker, fake):
        for _ in range(5):
            assert await gathered(invoker) == [b"", b"a"]

        assert (fake.connections, len(fake.requests)) == (1, 5)


async def test_a_lambda_that_cannot_be_reached_was_not_sent_anything() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()

    with closing(invoker_at(port)) as invoker, pytest.raises(InvokeNotSent) as caught:
        await gathered(invoker)

    assert type(caught.value) is InvokeNotSent


async def test_hanging_up_ends_the_connection() -> None:
    gone = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + event("PayloadChunk", b"first"))
        await writer.drain()
        await reader.read()
        gone.set()

    async with lambda_api(answer) as (invoker, _):
        async with aclosing(invoker.invoke("f", b"{}", timeout_s=5.0)) as chunks:
            assert await anext(chunks) == b""
            assert await anext(chunks) == b"first"
        async with asyncio.timeout(5):
            await gone.wait()


def test_the_end_of_an_invocation_is_read() -> None:
    assert completed({}) is None
    assert isinstance(completed({"ErrorCode": "Sandbox.Timedout"}), InvokeTimedOut)
    died = completed({"ErrorCode": "Runtime.ExitError", "ErrorDetails": "signal: killed"})
    assert type(died) is InvokeBroken
    assert "signal: killed" in str(died)


async def test_it_says_which_version_executes_and_asks_for_the_code_of_just_that_one() -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\nX-Amz-Executed-Version: 7\r\n\r\n")
    versions: list[str] = []
    async with lambda_api(saying(head, COMPLETE)) as (invoker, _):
        stream = invoker.invoke("f", b"{}", timeout_s=5.0, on_version=versions.append)
        async with aclosing(stream) as chunks:
            assert [chunk async for chunk in chunks] == [b""]
    assert versions == ["7"]

    body = b'{"FunctionArn": "arn", "CodeSha256": "c2hh", "PackageType": "Image", "Version": "7"}'
    head = f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n\r\n".encode()
    async with lambda_api(saying(head, body)) as (invoker, fake):
        code = await invoker.code_of("f", "7", asked="now")
    assert b"/2015-03-31/functions/f/configuration?Qualifier=7 " in fake.requests[0]
    assert (code.version, code.code_sha256, code.package_type) == ("7", "c2hh", "Image")
    assert (code.arn, code.asked, code.problem) == ("arn", "now", None)


@pytest.mark.parametrize(
    "answer", [refusing(403, "AccessDeniedException"), saying()], ids=["403", "hung up"]
)
async def test_lambda_that_does_not_say_which_code_it_runs_is_an_error_of_ours(
    answer: Answer,
) -> None:
    async with lambda_api(answer) as (invoker, fake):
        with pytest.raises(InvokeError):
            await invoker.code_of("f", "7", asked="now")
    assert len(fake.requests) == 1
