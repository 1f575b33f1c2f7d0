"""What each status of an execution says: whether a cell ran, for this request or for its key."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kernel_gateway.errors import StorageError
from kernel_gateway.kernels.idempotency import IdempotencyKeys, RememberedLimits
from kernel_gateway.objects import StoredObject
from tests.functional.conftest import wait_until
from tests.functional.web.server import STACK, Answer, WebGateway
from tests.functional.web.test_hostile_holders import a_listener, held_at
from tests.functional.web.test_web_execute import EVENTS, events, execute, hung_up

KEYED = {"code": "hello", "idempotency_key": "k"}


def told(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["code_started"]


def count(gateway: WebGateway, kernel_id: str) -> int | None:
    return gateway.registry.get(kernel_id).execution_count


async def test_a_request_that_can_never_run_says_that_nothing_did(gateway: WebGateway) -> None:
    kernel_id = await gateway.start_kernel()
    assert told(await execute(gateway, kernel_id, {**KEYED, "silent": 1})) == (400, "no")
    assert told(await execute(gateway, kernel_id, {**KEYED, "code": "\ud800"})) == (400, "no")
    assert told(await execute(gateway, kernel_id, data=b" " * ((64 << 20) + 1))) == (413, "no")
    assert (await execute(gateway, kernel_id, KEYED)).status == 200
    assert told(await execute(gateway, kernel_id, {**KEYED, "code": "other"})) == (422, "no")


async def test_a_kernel_that_is_gone_can_say_it_of_requests_without_a_key_only(
    gateway: WebGateway,
) -> None:
    kernel_id = await gateway.start_kernel()
    assert (await execute(gateway, kernel_id, KEYED)).status == 200
    await gateway.rest("DELETE", f"/api/kernels/{kernel_id}")
    assert told(await execute(gateway, kernel_id, KEYED)) == (404, "unknown")
    assert told(await execute(gateway, kernel_id, {"code": "hello"})) == (404, "no")
    assert told(await execute(gateway, kernel_id, {"code": "x"}, token=None)) == (403, "no")


async def test_what_was_taken_out_of_the_queue_did_not_run_and_its_key_is_free(
    gateway: WebGateway,
) -> None:
    kernel_id = await gateway.start_kernel()
    await hung_up(gateway, kernel_id, code="hold", idempotency_key="running")
    waiting = asyncio.create_task(execute(gateway, kernel_id, KEYED))
    kernel = gateway.registry.get(kernel_id)
    await asyncio.to_thread(wait_until, lambda: kernel.queued)
    assert (await gateway.rest("POST", f"/api/kernels/{kernel_id}/restart")).status == 200
    assert told(await waiting) == (409, "no")
    # The one that ran is not one that did not.
    killed = await execute(gateway, kernel_id, {"code": "hold", "idempotency_key": "running"})
    assert (killed.status, killed.json["lambda_kernel"]["code_started"]) == (200, "unknown")
    assert (await execute(gateway, kernel_id, KEYED)).status == 200


async def test_an_aborted_request_for_events_says_it_in_its_last_event(
    gateway: WebGateway,
) -> None:
    kernel_id = await gateway.start_kernel()
    await hung_up(gateway, kernel_id, code="hold")
    waiting = asyncio.create_task(execute(gateway, kernel_id, KEYED, headers=EVENTS))
    kernel = gateway.registry.get(kernel_id)
    await asyncio.to_thread(wait_until, lambda: kernel.queued)
    await gateway.rest("POST", f"/api/kernels/{kernel_id}/restart")
    answer = await waiting
    last = events(answer)[-1]
    assert (answer.status, last["event"]) == (200, "execute_reply")
    assert last["data"]["content"]["status"] == "aborted"
    assert last["data"]["metadata"]["lambda_kernel"]["code_started"] == "no"


async def test_a_result_that_is_kept_no_more_is_gone_and_not_run_again(
    gateway: WebGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel_gateway.kernels.recall.KEPT_CELLS_COUNT", 2)
    kernel_id = await gateway.start_kernel()
    of_kernels = gateway.server.web_app.settings["idempotency_keys"]
    limits = RememberedLimits(age_s=-1.0)
    of_kernels[gateway.registry.get(kernel_id)] = IdempotencyKeys(limits, now_s=lambda: 0.0)
    for body in (KEYED, {"code": "a"}, {"code": "b"}):
        assert (await execute(gateway, kernel_id, body)).status == 200
    assert told(await execute(gateway, kernel_id, KEYED)) == (410, "yes")
    assert count(gateway, kernel_id) == 3


async def test_a_journal_that_is_not_written_says_that_nothing_ran_and_the_key_is_free(
    gateway: WebGateway,
) -> None:
    kernel_id = await gateway.start_kernel()
    store, put = gateway.function.store, gateway.function.store.put

    async def failing(bucket: str, key: str, body: bytes, **rest: Any) -> str:
        if bucket == STACK.records:
            raise StorageError("S3 does not answer")
        return await put(bucket, key, body, **rest)

    store.put = failing  # type: ignore[method-assign]
    for _ in range(2):
        answer = await execute(gateway, kernel_id, KEYED)
        assert told(answer) == (503, "no")
        assert answer.json["message"].startswith("AuditUnavailable")
    store.put = put  # type: ignore[method-assign]
    assert (await execute(gateway, kernel_id, KEYED)).status == 200


async def test_where_keys_cannot_be_looked_up_it_is_unknown_and_told_later(
    gateway: WebGateway,
) -> None:
    kernel_id = await gateway.start_kernel()
    assert (await execute(gateway, kernel_id, KEYED)).status == 200
    gateway.server.web_app.settings["idempotency_keys"].clear()
    store, get = gateway.function.store, gateway.function.store.get

    async def failing(bucket: str, key: str) -> StoredObject:
        raise StorageError("S3 does not answer")

    store.get = failing  # type: ignore[method-assign]
    assert told(await execute(gateway, kernel_id, KEYED)) == (503, "unknown")
    store.get = get  # type: ignore[method-assign]
    again = await execute(gateway, kernel_id, KEYED)
    assert (again.status, again.headers["Idempotent-Replayed"]) == (200, "true")
    assert count(gateway, kernel_id) == 1


async def test_another_gateways_kernel_is_unknown_where_it_may_have_been_asked(
    gateway: WebGateway,
) -> None:
    async with a_listener(b"") as holder:
        kernel_id = await held_at(gateway, holder.url)
        lost = await execute(gateway, kernel_id, {"code": "hello"})
    assert told(lost) == (502, "unknown")
    # Nobody listens there any more: nothing was sent, and of earlier requests nothing is known.
    refused = await execute(gateway, kernel_id, {"code": "hello"})
    assert told(refused) == (503, "no")
    assert "Retry-After" in refused.headers
    assert told(await execute(gateway, kernel_id, KEYED)) == (503, "unknown")
