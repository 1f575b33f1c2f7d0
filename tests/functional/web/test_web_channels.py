"""The websocket of a kernel: both protocols, order, and frames that are none."""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any

import pytest
from jupyter_server.services.kernels.connection.base import serialize_binary_message
from traitlets.config import Config
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from kernel_gateway.web.codec import V1_PROTOCOL, decode_frame
from tests.functional.web.server import WebGateway, a_web_gateway, execute_request, request

PARTS = ("header", "parent_header", "metadata", "content")


def v1(message: dict[str, Any]) -> bytes:
    """Return a frame of the v1 protocol, made from its description."""
    parts = [message["channel"].encode(), *(json.dumps(message[p]).encode() for p in PARTS)]
    offsets = [8 * (len(parts) + 2)]
    for part in parts:
        offsets.append(offsets[-1] + len(part))
    numbers = struct.pack(f"<{len(offsets) + 1}Q", len(offsets), *offsets)
    return numbers + b"".join(parts)


async def messages_until_idle(socket: ClientConnection, msg_id: str) -> list[dict[str, Any]]:
    """Return the messages that answer ``msg_id``: until both its reply and idle came."""
    found: list[dict[str, Any]] = []
    seen: set[str] = set()
    while seen < {"reply", "idle"}:
        frame = await asyncio.wait_for(socket.recv(), 20)
        protocol = V1_PROTOCOL if isinstance(frame, bytes) else None
        decoded = decode_frame(frame, protocol)
        message = {"channel": decoded.channel, **decoded.data, "buffers": decoded.buffers}
        if message["parent_header"].get("msg_id") != msg_id:
            continue
        found.append(message)
        if message["header"]["msg_type"].endswith("_reply"):
            seen.add("reply")
        if message["content"].get("execution_state") == "idle":
            seen.add("idle")
    return found


async def send_and_receive(socket: ClientConnection, frame: str) -> None:
    """Send a frame and wait for what comes of it."""
    await socket.send(frame)
    await asyncio.wait_for(socket.recv(), 20)


async def run(
    gateway: WebGateway, message: dict[str, Any], subprotocol: str | None
) -> list[dict[str, Any]]:
    """Send one message to a new kernel and return what came."""
    kernel_id = await gateway.start_kernel()
    async with gateway.channels(kernel_id, subprotocol=subprotocol) as socket:
        assert socket.subprotocol == subprotocol
        await socket.send(v1(message) if subprotocol else json.dumps(message))
        return await messages_until_idle(socket, message["header"]["msg_id"])


@pytest.mark.parametrize("subprotocol", [None, V1_PROTOCOL])
async def test_a_cell_is_answered_in_the_order_clients_rely_on(
    gateway: WebGateway, subprotocol: str | None
) -> None:
    came = await run(gateway, execute_request("hello"), subprotocol)
    kinds = [m["header"]["msg_type"] for m in came]
    assert kinds == ["status", "execute_input", "stream", "execute_reply", "status"]
    assert [m["channel"] for m in came] == ["iopub"] * 3 + ["shell", "iopub"]
    assert came[2]["content"] == {"name": "stdout", "text": "hello"}
    assert came[3]["content"]["execution_count"] == 1


@pytest.mark.parametrize("subprotocol", [None, V1_PROTOCOL])
async def test_kernel_info_is_answered(gateway: WebGateway, subprotocol: str | None) -> None:
    came = await run(gateway, request("kernel_info_request", {}), subprotocol)
    (reply,) = [m for m in came if m["header"]["msg_type"] == "kernel_info_reply"]
    assert reply["content"]["language_info"]["name"] == "python"


async def test_every_client_gets_iopub_and_only_the_asking_one_the_reply(
    gateway: WebGateway,
) -> None:
    kernel_id = await gateway.start_kernel()
    async with gateway.channels(kernel_id) as asking, gateway.channels(kernel_id) as watching:
        message = execute_request("shared")
        await asking.send(json.dumps(message))
        await messages_until_idle(asking, message["header"]["msg_id"])
        kinds: list[str] = []
        while kinds[-1:] != ["stream"]:
            kinds.append(json.loads(await asyncio.wait_for(watching.recv(), 20))["msg_type"])
        assert "execute_reply" not in kinds
        shown = (await gateway.rest("GET", f"/api/kernels/{kernel_id}")).json
        assert shown["connections"] == 2


async def test_binary_parts_go_over_v1_and_are_dropped_with_a_notice_over_legacy(
    gateway: WebGateway,
) -> None:
    for subprotocol, expected in ((V1_PROTOCOL, (b"\x00\xff", b"")), (None, ())):
        came = await run(gateway, execute_request("buffers"), subprotocol)
        (shown,) = [m for m in came if m["header"]["msg_type"] == "display_data"]
        assert shown["buffers"] == expected
        if subprotocol is None:
            assert shown["metadata"]["lambda_kernel"]["buffers_dropped"] == 2
            (told,) = [m["content"]["text"] for m in came if m["msg_type"] == "stream"]
            assert "binary data cannot pass this connection" in told


async def test_a_legacy_client_that_sends_binary_frames_is_sent_binary_frames(
    gateway: WebGateway,
) -> None:
    kernel_id = await gateway.start_kernel()
    message = execute_request("buffers")
    async with gateway.channels(kernel_id) as socket:
        await socket.send(serialize_binary_message({**message, "buffers": [b"1"]}))
        frames = [await asyncio.wait_for(socket.recv(), 20) for _ in range(5)]
    (binary,) = [frame for frame in frames if isinstance(frame, bytes)]
    decoded = decode_frame(binary, None)
    assert decoded.data["msg_type"] == "display_data"
    assert decoded.buffers == (b"\x00\xff", b"")


async def test_a_message_without_channel_and_date_works(gateway: WebGateway) -> None:
    message = execute_request("from an agent")
    del message["channel"], message["header"]["date"]
    came = await run(gateway, message, None)
    assert "from an agent" in json.dumps([m["content"] for m in came])


GOOD = v1(execute_request("x"))
MALFORMED: list[str | bytes] = [
    "",
    "{",
    "null",
    "[]",
    '"text"',
    "7",
    "[" * 100_000,
    '{"header": []}',
    '{"header": {"msg_id": 7, "msg_type": "execute_request"}}',
    '{"header": {"msg_id": "a", "msg_type": "execute_request"}, "content": 3}',
    '{"header": {"msg_id": "a", "msg_type": "no_such_request"}, "channel": "shell"}',
    '{"header": {"msg_id": "a", "msg_type": "execute_request"}, "channel": "nowhere"}',
    b"",
    b"\x00",
    b"\xff" * 64,
    struct.pack("<Q", 2**63),
    struct.pack("<Q", 6) + b"\x00" * 8,
    struct.pack("<7Q", 6, 56, 2**62, 57, 58, 59, 60),
    struct.pack("<7Q", 6, 60, 59, 58, 57, 56, 55) + b"x" * 64,
    GOOD[:40],
    GOOD[:-5],
    GOOD.replace(b'"execute_request"', b'"execute_reque\xff\xfe"'),
]


@pytest.mark.parametrize("subprotocol", [None, V1_PROTOCOL])
async def test_malformed_frames_are_answered_and_the_connection_goes_on(
    gateway: WebGateway, subprotocol: str | None
) -> None:
    kernel_id = await gateway.start_kernel()
    async with gateway.channels(kernel_id, subprotocol=subprotocol) as socket:
        for frame in MALFORMED:
            await socket.send(frame)
        message = execute_request("still there")
        await socket.send(v1(message) if subprotocol else json.dumps(message))
        came = await messages_until_idle(socket, message["header"]["msg_id"])
    assert came[-1]["content"] == {"execution_state": "idle"}


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        (GOOD[:-5], "outside the frame"),
        (b"\xff" * 64, "offsets"),
        (GOOD.replace(b'{"code"', b'{"code '), "content is not JSON"),
        (GOOD.replace(b'"silent"', b'"silen\xff"'), "content is not JSON"),
        ("{", "the message is not JSON"),
        ('{"header": NaN}', "the message is not JSON"),
        ('{"content": ' + "[" * 200 + "]" * 200 + "}", "more than 100 levels deep"),
    ],
)
async def test_a_malformed_frame_is_answered_to_who_sent_it(
    gateway: WebGateway, frame: str | bytes, said: str
) -> None:
    kernel_id = await gateway.start_kernel()
    async with gateway.channels(kernel_id, subprotocol=V1_PROTOCOL) as socket:
        await socket.send(frame)
        answer: dict[str, Any] = {}
        while answer.get("header", {}).get("msg_type") != "error":
            came = await asyncio.wait_for(socket.recv(), 20)
            answer = decode_frame(came, V1_PROTOCOL).data
    assert answer["content"]["ename"] == "BadMessage"
    assert said in answer["content"]["evalue"]


async def test_a_frame_over_the_limit_closes_the_connection_with_a_code(
    gateway: WebGateway,
) -> None:
    kernel_id = await gateway.start_kernel()
    async with gateway.channels(kernel_id) as socket:
        with pytest.raises(ConnectionClosed):
            await send_and_receive(socket, "x" * (65 << 20))
    assert (await gateway.rest("GET", f"/api/kernels/{kernel_id}")).status == 200


async def test_a_client_that_does_not_read_is_disconnected_and_others_go_on(
    tmp_path: Any,
) -> None:
    config = Config({"LambdaWebsocketConnection": {"max_pending_bytes": 1 << 20}})
    async with a_web_gateway(tmp_path, config) as gateway:
        kernel_id = await gateway.start_kernel()
        lazy = gateway.channels(kernel_id, max_queue=1, close_timeout=0.1)
        async with lazy, gateway.channels(kernel_id) as eager:
            for _ in range(20):
                message = execute_request("x" * 1_000_000)
                await eager.send(json.dumps(message))
                await messages_until_idle(eager, message["header"]["msg_id"])
            shown = (await gateway.rest("GET", f"/api/kernels/{kernel_id}")).json
            assert shown["connections"] == 1


async def test_a_session_that_comes_back_is_told_what_it_missed(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    message = execute_request("hold")
    session_id = message["header"]["session"]
    async with gateway.channels(kernel_id, session_id=session_id) as socket:
        await socket.send(json.dumps(message))
        while json.loads(await asyncio.wait_for(socket.recv(), 20))["msg_type"] != "execute_input":
            pass
    gateway.function.release.set()
    async with gateway.channels(kernel_id, session_id=session_id) as socket:
        missed = await messages_until_idle(socket, message["header"]["msg_id"])
    assert [m["msg_type"] for m in missed] == ["stream", "execute_reply", "status"]


async def test_a_new_session_asks_for_the_past(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    messages = [execute_request(text) for text in ("one", "two", "three")]
    async with gateway.channels(kernel_id) as socket:
        for message in messages:
            await socket.send(json.dumps(message))
            await messages_until_idle(socket, message["header"]["msg_id"])
    ids = [message["header"]["msg_id"] for message in messages]
    for query, wanted in (
        ("&replay=all", ids),
        ("&replay=1", ids[2:]),
        (f"&since={ids[0]}", ids[1:]),
        (f"&since={ids[0]}&replay=1", ids[2:]),
    ):
        async with gateway.channels(kernel_id, query=query) as socket:
            for msg_id in wanted:
                shown = await messages_until_idle(socket, msg_id)
                kinds = [m["msg_type"] for m in shown]
                assert kinds == ["status", "execute_input", "stream", "execute_reply", "status"]
            await socket.send(json.dumps(request("kernel_info_request", {})))
            answer = json.loads(await asyncio.wait_for(socket.recv(), 20))
            assert answer["parent_header"]["msg_type"] == "kernel_info_request"


@pytest.mark.parametrize("query", ["&replay=some", "&replay=-1", "&replay=1.5"])
async def test_a_past_that_is_none_is_refused(gateway: WebGateway, query: str) -> None:
    kernel_id = await gateway.start_kernel()
    with pytest.raises(InvalidStatus) as refused:
        async with gateway.channels(kernel_id, query=query):
            pass
    assert refused.value.response.status_code == 400
    assert b"replay: must be a number of cells, or all" in refused.value.response.body


async def test_a_storm_of_reconnects_leaves_nothing_behind(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    async with gateway.channels(kernel_id) as socket:
        for code in ("a", "b", "hold"):
            await socket.send(json.dumps(execute_request(code)))
        while "hold" not in str(await asyncio.wait_for(socket.recv(), 20)):
            pass
    kernel = gateway.registry.get(kernel_id)

    async def comes_and_goes(number: int) -> None:
        query = "&replay=all" if number % 2 else ""
        # Without bounds on what is not read yet, else a client closes after its time limit only.
        async with gateway.channels(
            kernel_id, session_id=f"s{number % 7}", query=query, max_queue=None
        ) as there:
            await there.send(json.dumps(request("kernel_info_request", {})))
            if number % 3:
                await asyncio.wait_for(there.recv(), 20)

    for _ in range(5):
        await asyncio.gather(*map(comes_and_goes, range(40)))

    async with asyncio.timeout(20), gateway.channels(kernel_id, query="&replay=all") as last:
        gateway.function.release.set()
        seen = ""
        while seen.count('"idle"') < 3:
            seen += str(await last.recv())
    assert [seen.count(f'"text":"{code}"') for code in ("a", "b", "hold")] == [1, 1, 1]
    async with asyncio.timeout(20):
        while kernel.connections:  # noqa: ASYNC110
            await asyncio.sleep(0)
    assert kernel.execution_state == "idle"


async def test_thousands_of_cells_that_are_sent_at_once_are_each_answered_once(
    gateway: WebGateway,
) -> None:
    kernel_id = await gateway.start_kernel()
    async with gateway.channels(kernel_id) as socket:
        first = execute_request("hold")
        rest = [execute_request(f"{n}") for n in range(1500)]
        for each in (first, *rest):
            await socket.send(json.dumps(each))
        statuses: dict[str, str] = {}
        async with asyncio.timeout(60):
            while len(statuses) < 1 + len(rest):
                message = json.loads(await socket.recv())
                if message["header"]["msg_type"] == "execute_reply":
                    msg_id = message["parent_header"]["msg_id"]
                    assert msg_id not in statuses
                    content = message["content"]
                    statuses[msg_id] = content.get("ename", content["status"])
                    if len(statuses) == 500:
                        # What waits is bounded; the others have been refused by now.
                        gateway.function.release.set()
    found = list(statuses.values())
    assert found.count("QueueFull") == 500
    assert found.count("ok") == 1001
