"""``/api/kernels/{id}/execute``: statuses, forms of the answer, keys, callers that go away."""

from __future__ import annotations

import asyncio
import json
import uuid
from typing import Any

import pytest

from tests.functional.web.server import Answer, WebGateway

EVENTS = {"Accept": "text/event-stream"}


async def execute(gateway: WebGateway, kernel_id: str, body: Any = None, **request: Any) -> Answer:
    path = f"/api/kernels/{kernel_id}/execute"
    return await gateway.rest("POST", path, body=body, **request)


def events(answer: Answer) -> list[dict[str, Any]]:
    blocks = [block for block in answer.body.decode().split("\n\n") if block]
    fields = [dict(line.split(": ", 1) for line in block.split("\n")) for block in blocks]
    return [{**each, "data": json.loads(each["data"])} for each in fields]


async def hung_up(gateway: WebGateway, kernel_id: str, **body: Any) -> None:
    """Ask for the events of an execution, and close the connection when the kernel has it."""
    host, _, port = gateway.url.removeprefix("http://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    data = json.dumps(body).encode()
    lines = [
        f"POST /api/kernels/{kernel_id}/execute HTTP/1.1",
        f"Host: {host}",
        "Authorization: token u1",
        "Accept: text/event-stream",
        f"Content-Length: {len(data)}",
        "",
        "",
    ]
    writer.write("\r\n".join(lines).encode() + data)
    assert b" 200 " in await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 10)
    writer.close()
    await writer.wait_closed()


async def test_a_cell_runs_and_its_outputs_come_as_a_notebook_has_them(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    answer = await execute(gateway, kernel_id, {"code": "hello"})
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.json["outputs"] == [{"output_type": "stream", "name": "stdout", "text": "hello"}]
    assert answer.json["execution_count"] == 1


async def test_events_are_the_messages_of_the_cell_the_reply_last(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    answer = await execute(gateway, kernel_id, {"code": "buffers"}, headers=EVENTS)
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/event-stream")
    found = events(answer)
    assert [e["event"] for e in found] == [
        "status",
        "execute_input",
        "display_data",
        "execute_reply",
    ]
    assert [e["id"] for e in found] == ["0", "1", "2", "3"]
    assert [e["data"]["msg_type"] for e in found] == [e["event"] for e in found]
    assert found[2]["data"]["buffers"] == ["AP8=", ""]
    assert found[3]["data"]["metadata"]["lambda_kernel"]["committed"] is True


async def test_events_go_on_after_the_last_one_that_came(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    body = {"code": "hello", "idempotency_key": "k"}
    await execute(gateway, kernel_id, body, headers=EVENTS)
    again = await execute(gateway, kernel_id, body, headers={**EVENTS, "Last-Event-ID": "1"})
    assert [e["id"] for e in events(again)] == ["2", "3"]
    assert again.headers["Idempotent-Replayed"] == "true"


@pytest.mark.parametrize("headers", [{}, EVENTS])
async def test_bad_input_is_a_400_in_json_and_nothing_runs(
    gateway: WebGateway, headers: dict[str, str]
) -> None:
    kernel_id = await gateway.start_kernel()
    for data in (b"", b"{", b"[]", b"{}", b'{"code": 1}', b'{"code": "1", "code": "2"}', b"\xff"):
        answer = await execute(gateway, kernel_id, data=data, headers=headers)
        assert answer.status == 400
        assert answer.json["message"]
    assert gateway.registry.get(kernel_id).execution_count == 0


async def test_lone_surrogates_are_bad_input(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    for body in ({"code": "\ud800"}, {"code": "1", "user_expressions": {"\ud800": "\udfff"}}):
        answer = await execute(gateway, kernel_id, body)
        assert answer.status == 400
        assert answer.json["message"].startswith("InvalidCode")


async def test_a_body_that_is_too_large_is_a_413(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    answer = await execute(gateway, kernel_id, data=b" " * ((64 << 20) + 1))
    assert answer.status == 413
    assert "64 MiB" in answer.json["message"]


async def test_kernels_that_are_not_the_callers_are_refused(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    body = {"code": "hello"}
    assert (await execute(gateway, str(uuid.uuid4()), body)).status == 404
    for token, status in (("u10", 404), ("u1-a1", 404), ("root", 403), (None, 403)):
        assert (await execute(gateway, kernel_id, body, token=token)).status == status
    assert gateway.registry.get(kernel_id).execution_count == 0


async def test_a_retry_gives_the_same_result_and_runs_nothing(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    body = {"code": "hello"}
    first = await execute(gateway, kernel_id, body, headers={"Idempotency-Key": '"k"'})
    again = await execute(gateway, kernel_id, {**body, "idempotency_key": "k"})
    assert again.json == first.json
    assert "Idempotent-Replayed" not in first.headers
    assert again.headers["Idempotent-Replayed"] == "true"
    assert gateway.registry.get(kernel_id).execution_count == 1


async def test_a_key_with_another_request_is_a_422(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    await execute(gateway, kernel_id, {"code": "hello", "idempotency_key": "k"})
    for other in ({"code": "other"}, {"code": "hello", "silent": True}):
        answer = await execute(gateway, kernel_id, {**other, "idempotency_key": "k"})
        assert answer.status == 422
        assert "another request" in answer.json["message"]
    elsewhere = await gateway.start_kernel()
    answer = await execute(gateway, elsewhere, {"code": "other", "idempotency_key": "k"})
    assert answer.status == 200


async def test_a_retry_attaches_to_the_cell_that_runs(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    body = {"code": "hold", "idempotency_key": "k"}
    await hung_up(gateway, kernel_id, **body)
    retries = [asyncio.create_task(execute(gateway, kernel_id, body)) for _ in range(3)]
    retries += [asyncio.create_task(execute(gateway, kernel_id, body, headers=EVENTS))]
    gateway.function.release.set()
    answers = await asyncio.gather(*retries)
    assert {answer.status for answer in answers} == {200}
    assert len({answer.body for answer in answers[:3]}) == 1
    assert gateway.registry.get(kernel_id).execution_count == 1


async def test_a_queued_cell_of_a_caller_that_went_away_goes_on_or_is_withdrawn(
    gateway: WebGateway,
) -> None:
    kernel_id = await gateway.start_kernel()
    kernel = gateway.registry.get(kernel_id)
    await hung_up(gateway, kernel_id, code="hold", interrupt_on_disconnect=False)
    await hung_up(gateway, kernel_id, code="goes on")
    # The first cell runs, so what says idle is the one that is withdrawn.
    idle = asyncio.Event()
    kernel.attach(lambda m: idle.set() if m.content.get("execution_state") == "idle" else None)
    await hung_up(gateway, kernel_id, code="ends", interrupt_on_disconnect=True)
    await asyncio.wait_for(idle.wait(), 10)
    assert kernel.queued == 1
    gateway.function.release.set()
    answer = await execute(gateway, kernel_id, {"code": "last"})
    assert answer.json["execution_count"] == 3


async def test_a_full_queue_is_a_429_and_the_key_is_free_again(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    await hung_up(gateway, kernel_id, code="hold")
    kernel, drained = gateway.registry.get(kernel_id), asyncio.Event()
    for _ in range(1000):
        kernel.receive_raw(
            {"header": {"msg_id": "m", "msg_type": "execute_request"}, "content": {"code": ""}},
            lambda message: drained.set() if not kernel.queued else None,
        )
    body = {"code": "hello", "idempotency_key": "k"}
    for headers in ({}, EVENTS):
        answer = await execute(gateway, kernel_id, body, headers=headers)
        assert answer.status == 429
        assert answer.json["message"].startswith("QueueFull")
    gateway.function.release.set()
    await asyncio.wait_for(drained.wait(), 30)
    assert (await execute(gateway, kernel_id, body)).status == 200
