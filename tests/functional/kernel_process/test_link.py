"""What a kernel process believes of the gateway that it asks for a kernel."""

from __future__ import annotations

import asyncio
import json
from contextlib import closing
from typing import Any

import pytest

from kernel_gateway.client.endpoint import ApiError, Endpoint
from kernel_gateway.kernel_process.link import GatewayLink


@pytest.mark.parametrize(
    "made",
    [{"id": "../../victim"}, {"id": "/etc/passwd"}, {"id": 7}, {"id": None}, {}, [], None, "id"],
)
async def test_an_id_that_is_none_becomes_no_file(made: Any) -> None:
    body = json.dumps(made).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    endpoint = Endpoint(url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/")

    async def find() -> Endpoint:
        return endpoint

    async with server:
        with pytest.raises(ApiError, match="answers as no gateway does"):
            await GatewayLink.create(find, "lambda-python", {})
