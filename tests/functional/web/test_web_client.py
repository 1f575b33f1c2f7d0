"""The Python client against a gateway, also over connections that break."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kernel_gateway.client import (
    ApiError,
    AsyncGateway,
    AsyncKernel,
    BadInput,
    Gateway,
    Kernel,
    KernelInfo,
    NoSuchThing,
    NotRunning,
    Result,
    Unauthorized,
    Unreachable,
    operations,
)
from kernel_gateway.client.models import EventReader
from kernel_gateway.run_file import RunFile, StateLock
from tests.functional.web.server import WebGateway


@dataclass
class Cable:
    """A way to a gateway that breaks where it is told to.

    Attributes:
        url: what the client is given.
        cuts: for each coming answer that begins with it, a text after which the way breaks.
    """

    url: str = ""
    cuts: list[bytes] = field(default_factory=list)
    broken_count: int = 0

    async def carry(
        self, port: int, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter
    ) -> None:
        from_gateway, to_gateway = await asyncio.open_connection("127.0.0.1", port)
        up = asyncio.create_task(self._up(from_client, to_gateway))
        seen = b""
        with suppress(ConnectionError):
            while block := await from_gateway.read(1 << 16):
                seen += block
                if self.cuts and self.cuts[0] in seen:
                    self.cuts.pop(0)
                    self.broken_count += 1
                    break
                to_client.write(block)
                await to_client.drain()
        up.cancel()
        for writer in (to_client, to_gateway):
            writer.close()

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while block := await reader.read(1 << 16):
                writer.write(block)
                await writer.drain()
            writer.close()


@asynccontextmanager
async def a_cable(gateway: WebGateway) -> AsyncIterator[Cable]:
    cable, port = Cable(), gateway.server.port

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await cable.carry(port, reader, writer)

    server = await asyncio.start_server(carry, "127.0.0.1", 0)
    cable.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield cable


async def test_six_lines_are_enough_for_an_agent(gateway: WebGateway) -> None:
    def agent() -> tuple[Result, list[str]]:
        with Gateway(gateway.url, "u1") as there, there.kernel(workspace="w") as kernel:
            result = kernel.execute("hello").raise_for_error()
            return result, [event.msg_type for event in kernel.stream("again")]

    result, types = await asyncio.to_thread(agent)
    assert (result.text, result.execution_count, result.committed) == ("hello", 1, True)
    assert types == ["status", "execute_input", "stream", "execute_reply"]
    assert list(gateway.registry.all()) == []


async def test_both_clients_do_everything(gateway: WebGateway) -> None:
    async with AsyncGateway(f"{gateway.url}/", "u1") as there:
        kernel = await there.start_kernel(workspace="w", env={"LAMBDA_KERNEL_SCOPE": "execution"})
        await kernel.upload("a/ü.txt", b"content")
        assert [f.path for f in await kernel.files()] == ["a/ü.txt"]
        assert [f.path for f in await kernel.files("a", recursive=False)] == ["a/ü.txt"]
        assert await kernel.download("a/ü.txt") == b"content"
        assert await kernel.variables() == []
        await kernel.interrupt()
        await kernel.restart()
        assert [each.kernel_id for each in await there.kernels()] == [kernel.kernel_id]

    def blocking() -> None:
        with Gateway(gateway.url, "u1") as there:
            same = there.attach(kernel.kernel_id)
            assert same.workspace == "w"
            assert same.download("a/ü.txt") == b"content"
            same.upload("b", b"")
            assert {f.path for f in same.files()} == {"a/ü.txt", "b"}
            assert same.variables() == []
            same.interrupt()
            same.restart()
            same.shutdown()
            assert there.kernels() == []

    await asyncio.to_thread(blocking)


async def test_errors_have_types(gateway: WebGateway) -> None:
    async with AsyncGateway(gateway.url, "wrong") as there:
        with pytest.raises(Unauthorized, match="token"):
            await there.kernels()
    async with AsyncGateway(gateway.url, "u1") as there, there.kernel() as kernel:
        with pytest.raises(NoSuchThing, match="julia"):
            await there.start_kernel("julia")
        with pytest.raises(NoSuchThing):
            await there.attach("../../me")
        with pytest.raises(NoSuchThing):
            await kernel.download("none")
        with pytest.raises(BadInput, match="InvalidCode"):
            await kernel.execute("\ud800")
        with pytest.raises(BadInput, match="NaN"):
            await kernel.execute("hello", timeout_s=float("nan"))
        await kernel.execute("hello", idempotency_key="k")
        with pytest.raises(BadInput, match="another request"):
            await kernel.execute("other", idempotency_key="k")


async def test_an_answer_that_is_lost_is_fetched_and_the_cell_runs_once(
    gateway: WebGateway,
) -> None:
    async with a_cable(gateway) as cable, AsyncGateway(cable.url, "u1") as there:
        kernel = await there.start_kernel()
        cable.cuts = [b'"outputs"', b'"outputs"']
        result = await kernel.execute("hello")
        assert (result.text, result.execution_count, result.replayed) == ("hello", 1, True)
        assert cable.broken_count == 2


async def test_events_go_on_where_the_connection_broke(gateway: WebGateway) -> None:
    async with a_cable(gateway) as cable:

        def blocking() -> list[str]:
            with Gateway(cable.url, "u1") as there:
                return [event.msg_type for event in there.start_kernel().stream("hello")]

        cable.cuts = [b"event: execute_input", b"event: stream", b"event: execute_reply"]
        types = await asyncio.to_thread(blocking)
        assert types == ["status", "execute_input", "stream", "execute_reply"]
        cable.cuts = [b"event: execute_input", b"event: stream", b"event: execute_reply"]
        async with AsyncGateway(cable.url, "u1") as there:
            kernel = await there.start_kernel()
            assert [event.msg_type async for event in kernel.stream("hello")] == types
        assert cable.broken_count == 6
        assert {kernel.execution_count for kernel in gateway.registry.all()} == {1}


async def test_a_gateway_that_forgot_its_keys_finds_them_in_the_journal(
    gateway: WebGateway,
) -> None:
    async with a_cable(gateway) as cable, AsyncGateway(cable.url, "u1") as there:
        kernel = await there.start_kernel()
        cable.cuts = [b"event: execute_reply"]
        types, forgotten = [], gateway.server.web_app.settings["idempotency_keys"]
        async for event in kernel.stream("hello", idempotency_key="k"):
            types.append(event.msg_type)
            forgotten.clear()
        assert types == ["status", "execute_input", "stream", "execute_reply"]
        assert cable.broken_count == 1
        forgotten.clear()
        result = await kernel.execute("hello", idempotency_key="k")
        assert (result.text, result.execution_count, result.replayed) == ("hello", 1, True)
        forgotten.clear()
        with pytest.raises(BadInput, match="another request"):
            await kernel.execute("other", idempotency_key="k")
        assert [each.execution_count for each in gateway.registry.all()] == [1]


async def test_a_gateway_that_is_not_there_is_said_so() -> None:
    async with AsyncGateway("http://127.0.0.1:9", "u1") as there:
        with pytest.raises(Unreachable, match=r"http://127\.0\.0\.1:9"):
            await there.start_kernel()


async def test_the_gateway_of_a_state_directory_is_found(
    gateway: WebGateway, tmp_path: Path
) -> None:
    place = tmp_path / "state"
    with pytest.raises(NotRunning, match="no gateway runs"):
        Gateway.local(place)
    lock = StateLock.acquire(place)
    RunFile(url=gateway.url, token="u1", pid=1).write(place)
    async with AsyncGateway.local(place) as there:
        assert await there.kernels() == []
    lock.release()
    with pytest.raises(NotRunning):
        Gateway.local(place)


ANSWERS = {
    "no JSON": b"<html>",
    "nested": b"[" * 100_000,
    "array": b"[]",
    "number": b"1",
    "null": b"null",
    "empty": b"",
    "other fields": b'{"started": 1, "id": 2}',
    "wrong fields": b'{"started": "x", "status": "error", "outputs": 1, "entries": [1], "id": []}',
}


@pytest.mark.parametrize("body", ANSWERS.values(), ids=ANSWERS.keys())
async def test_what_is_no_gateway_is_an_error_of_the_client(body: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"content-length: (\d+)", head.lower())
            await reader.readexactly(int(length[1]) if length else 0)
            framing = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
            writer.write(framing % len(body) + body)
            await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    info = KernelInfo(
        kernel_id="k",
        name="n",
        execution_state="idle",
        last_activity="",
        connections=0,
        lambda_kernel={"workspace": "w"},
    )

    def blocking() -> None:
        with Gateway(url, "u1") as there:
            kernel = Kernel(there, info)
            for act in (
                there.start_kernel,
                kernel.files,
                lambda: there.attach("k"),
                lambda: kernel.execute("x"),
                lambda: list(kernel.stream("x")),
            ):
                with pytest.raises(ApiError):
                    act()

    async with server:
        await asyncio.to_thread(blocking)
        async with AsyncGateway(url, "u1") as there:
            with pytest.raises(ApiError):
                await there.start_kernel()
            with pytest.raises(ApiError):
                await AsyncKernel(there, info).execute("x")


@pytest.mark.parametrize(
    "line", ["data: [", "data: []", "data: {}", "data: " + "[" * 100_000, "data: null"]
)
def test_an_event_that_is_none_is_an_error_of_the_client(line: str) -> None:
    reader = EventReader()
    for each in ("id: x", "event: stream", line):
        reader.feed(each)
    with pytest.raises(ApiError, match="no gateway"), operations.understood("http://there/"):
        reader.feed("")
