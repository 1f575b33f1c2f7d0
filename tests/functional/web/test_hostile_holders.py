"""Requests for kernels of another gateway, where none answers; and forged marks."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field

import pytest
from websockets.exceptions import ConnectionClosed

from kernel_gateway.kernels.lease import Lease
from kernel_gateway.web.forwarding import FORWARDED_HEADER
from lambda_kernel.contract import keys
from tests.functional.web.server import STACK, WebGateway


@dataclass
class Listener:
    """Answers whatever comes with the same bytes, and keeps what came."""

    answer: bytes
    url: str = ""
    came: list[str] = field(default_factory=list)

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(ConnectionError, asyncio.IncompleteReadError):
            self.came.append((await reader.readuntil(b"\r\n\r\n")).decode())
            writer.write(self.answer)
            await writer.drain()


@asynccontextmanager
async def a_listener(answer: bytes) -> AsyncIterator[Listener]:
    listener = Listener(answer)
    server = await asyncio.start_server(listener.take, "127.0.0.1", 0)
    listener.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield listener


async def held_at(gateway: WebGateway, url: str) -> str:
    """Return a kernel of u1 that a gateway at ``url`` serves, as the records say."""
    store = gateway.function.store
    template = await gateway.start_kernel()
    record = json.loads(store.objects[STACK.records, keys.kernel_record_key(template)])
    kernel_id, lease_id = str(uuid.uuid4()), uuid.uuid4().hex
    record |= {"kernel_id": kernel_id, "holder": lease_id}
    lease = Lease(lease_id=lease_id, replica_id="other", url=url, duration_s=60.0)
    await store.put(STACK.records, keys.replica_lease_key(lease_id), lease.to_bytes())
    await store.put(STACK.records, keys.kernel_record_key(kernel_id), json.dumps(record).encode())
    await gateway.registry.find(kernel_id)
    return kernel_id


async def test_a_token_does_not_follow_a_redirect(gateway: WebGateway) -> None:
    async with AsyncExitStack() as stack:
        thief = await stack.enter_async_context(a_listener(b"HTTP/1.1 404 Not Found\r\n\r\n"))
        moved = f"HTTP/1.1 307 Temporary Redirect\r\nLocation: {thief.url}/\r\n\r\n".encode()
        holder = await stack.enter_async_context(a_listener(moved))
        kernel_id = await held_at(gateway, holder.url)
        session = {"path": "x", "type": "notebook", "kernel": {"id": kernel_id}}

        listed = await gateway.rest("GET", "/api/kernels")
        asked = await gateway.rest("POST", f"/api/kernels/{kernel_id}/interrupt")
        made = await gateway.rest("POST", "/api/sessions", body=session)
        ended = await gateway.rest("DELETE", f"/api/sessions/{made.json['id']}")
        with pytest.raises(ConnectionClosed):
            async with gateway.channels(kernel_id) as socket:
                await socket.recv()

    states = {model["id"]: model["execution_state"] for model in listed.json}
    assert states[kernel_id] == "unknown"
    assert asked.status == 307
    assert ended.status == 503
    assert len(holder.came) >= 4
    assert all("Authorization: token u1" in request for request in holder.came)
    assert thief.came == []


async def test_a_forged_mark_makes_no_loop_and_reaches_nobody(gateway: WebGateway) -> None:
    marked = {FORWARDED_HEADER: "1"}
    async with a_listener(b"HTTP/1.1 200 OK\r\n\r\n") as holder:
        kernel_id = await held_at(gateway, holder.url)

        asked = await gateway.rest("POST", f"/api/kernels/{kernel_id}/interrupt", headers=marked)
        foreign = await gateway.rest(
            "POST", f"/api/kernels/{kernel_id}/interrupt", headers=marked, token="u10"
        )
        stranger = await gateway.rest(
            "POST", f"/api/kernels/{kernel_id}/interrupt", headers=marked, token="nobody"
        )
        with pytest.raises(ConnectionClosed) as closed:
            async with gateway.channels(kernel_id, headers=marked) as socket:
                await socket.recv()

    assert asked.status == 503
    assert "Retry-After" in asked.headers
    assert (foreign.status, stranger.status) == (404, 403)
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1013
    assert holder.came == []


async def test_only_who_may_use_a_kernel_has_its_token_sent_to_the_holder(
    gateway: WebGateway,
) -> None:
    async with a_listener(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]") as holder:
        kernel_id = await held_at(gateway, holder.url)
        await gateway.rest("GET", "/api/kernels", token="u10")
        for path in ("", "/cells", "/variables", "/outputs/1"):
            answer = await gateway.rest("GET", f"/api/kernels/{kernel_id}{path}", token="u10")
            assert answer.status == 404

    assert holder.came == []


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00" * 1000,
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n[]x",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX: a\x00b\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n[]",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + b"[" * 100_000,
        b"",
    ],
    ids=["zeros", "negative", "twice", "nul", "short", "chunks", "nested", "nothing"],
)
async def test_an_answer_that_is_none_is_an_error_and_the_gateway_goes_on(
    gateway: WebGateway, answer: bytes
) -> None:
    async with a_listener(answer) as holder:
        kernel_id = await held_at(gateway, holder.url)
        listed = await gateway.rest("GET", "/api/kernels")
        with suppress(ConnectionError, OSError):
            await gateway.rest("GET", f"/api/kernels/{kernel_id}")

    states = {model["id"]: model["execution_state"] for model in listed.json}
    assert states[kernel_id] == "unknown"
    assert (await gateway.rest("GET", "/api/status")).status == 200
