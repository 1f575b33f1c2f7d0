"""Keys of a gateway that is gone, or of results that were let go: the journal has them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from kernel_gateway.audit.keeping import Keeping
from kernel_gateway.audit.redaction import Redactor
from kernel_gateway.kernels.execution import Execution
from kernel_gateway.kernels.idempotency import IdempotencyKeys, KeyReused, RememberedLimits
from kernel_gateway.kernels.recall import KeysUnavailable, ResultForgotten
from kernel_gateway.messaging.idempotency import Idempotency
from tests.functional.kernels.test_kernel_executions import ended
from tests.functional.kernels.test_kernel_journal import dies_at

if TYPE_CHECKING:
    from kernel_gateway.kernels.kernel import LambdaKernel
    from tests.functional.kernels.conftest import World


def asked(code: str, key: str = "k") -> Idempotency:
    return Idempotency.of(key, {"code": code})


async def ran(kernel: LambdaKernel, code: str, key: str = "k") -> Execution:
    return await ended(
        Execution.begin(kernel, {"code": code}, idempotency=asked(code, key)),
    )


async def test_the_next_gateway_gives_the_same_answer_and_runs_nothing(world: World) -> None:
    client = await world.client()
    first = await ran(client.kernel, "print x")
    await world.quiet()

    kernel = (await world.reopen()).get(client.kernel.kernel_id)
    keys = IdempotencyKeys()
    again = await keys.look_up(asked("print x"), kernel)

    assert again is not None
    assert again.result == first.result | {"lambda_kernel": again.result["lambda_kernel"]}
    assert (
        again.result["lambda_kernel"]["request_id"] == first.result["lambda_kernel"]["request_id"]
    )
    assert [(n, m.header["msg_id"]) for n, m in again.read()] == [
        (n, m.header["msg_id"]) for n, m in first.read()
    ]
    assert await keys.look_up(asked("print x"), kernel) is again
    with pytest.raises(KeyReused):
        await IdempotencyKeys().look_up(asked("print y"), kernel)
    assert await keys.look_up(asked("print x", "another"), kernel) is None
    assert world.function.ran == ["print x"]


async def test_a_request_that_is_redacted_in_the_journal_is_known_by_its_key(world: World) -> None:
    made = await world.client()
    keeping = Keeping(redactor=Redactor.of({"pin": "pin=[0-9]+"}, b"k"))
    first = (await world.reopen(keeping=keeping)).get(made.kernel.kernel_id)
    await ran(first, "print pin=1234")
    await ran(first, "print x", "another")
    await world.quiet()

    kernel = (await world.reopen(keeping=keeping)).get(made.kernel.kernel_id)
    again = await IdempotencyKeys().look_up(asked("print pin=1234"), kernel)

    assert again is not None
    assert again.result["status"] == "ok"
    assert world.function.ran == ["print pin=1234", "print x"]
    with pytest.raises(KeyReused):
        await IdempotencyKeys().look_up(asked("print pin=1234", "another"), kernel)


@pytest.mark.parametrize(("code", "status"), [("print x", "ok"), ("wait", "error")])
async def test_a_cell_in_flight_at_the_end_of_its_gateway_is_adopted_or_told_to_be_lost(
    world: World, code: str, status: str
) -> None:
    client = await world.client()
    await client.run("print first")
    await world.quiet()
    begun: list[Execution] = []

    def begin(code: str) -> str:
        request = asked(code)
        begun.append(Execution.begin(client.kernel, {"code": code}, idempotency=request))
        return begun[0].msg_id

    client.execute = begin  # type: ignore[method-assign,assignment]
    await dies_at(world, client, code, "00000004.json")

    kernel = (await world.reopen()).get(client.kernel.kernel_id)
    again = await IdempotencyKeys().look_up(asked(code), kernel)

    assert again is not None
    assert again.result["status"] == status
    assert again.result.get("ename") == (None if status == "ok" else "CellLost")
    assert not again.is_complete
    assert world.function.ran == ["print first", code]


async def test_a_request_that_was_never_sent_is_a_new_one(world: World) -> None:
    client = await world.client()
    await client.run("print first")
    Execution.begin(client.kernel, {"code": "wait"})
    await world.function.began.wait()
    Execution.begin(client.kernel, {"code": "print x"}, idempotency=asked("print x"))
    await client.kernel.suspend()
    await world.quiet()

    kernel = (await world.reopen()).get(client.kernel.kernel_id)
    assert await IdempotencyKeys().look_up(asked("print x"), kernel) is None


async def test_results_that_were_let_go_are_read_from_the_journal(world: World) -> None:
    kernel = (await world.client()).kernel
    keys = IdempotencyKeys(RememberedLimits(count=2))
    assert await keys.look_up(asked("print 0", "0"), kernel) is None
    for number in range(4):
        key, code = str(number), f"print {number}"
        keys.remember(asked(code, key), await ran(kernel, code, key))
    assert keys.find(asked("print 1", "1")) is None

    again = await keys.look_up(asked("print 1", "1"), kernel)

    assert again is not None
    assert again.result["outputs"][0]["text"] == "1\n"
    with pytest.raises(KeyReused):
        await keys.look_up(asked("print other", "2"), kernel)
    # As many keys as stated, and no more.
    assert await keys.look_up(asked("print 0", "0"), kernel) is None
    assert len(world.function.ran) == 4


async def test_a_key_costs_no_request_to_storage_once_the_past_is_known(world: World) -> None:
    kernel = (await world.client()).kernel
    keys = IdempotencyKeys()
    await keys.look_up(asked("print x"), kernel)
    keys.remember(asked("print x"), await ran(kernel, "print x"))
    await world.quiet()
    before = len(world.store.get_keys)
    assert await keys.look_up(asked("print x"), kernel) is not None
    assert await keys.look_up(asked("print y", "new"), kernel) is None
    assert len(world.store.get_keys) == before


async def test_where_the_journal_cannot_be_read_nothing_runs(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await world.client()
    await ran(client.kernel, "print x")
    await world.quiet()
    kernel = (await world.reopen()).get(client.kernel.kernel_id)
    keys = IdempotencyKeys()
    world.store.failing_lists = True
    with pytest.raises(KeysUnavailable, match="same key"):
        await keys.look_up(asked("print x"), kernel)
    world.store.failing_lists = False
    assert await keys.look_up(asked("print x"), kernel) is not None


async def test_a_result_that_is_too_far_back_is_refused_and_not_run_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel_gateway.kernels.recall.KEPT_CELLS_COUNT", 2)
    kernel = (await world.client()).kernel
    keys = IdempotencyKeys(RememberedLimits(age_s=-1.0), now_s=lambda: 0.0)
    await keys.look_up(asked("print x"), kernel)
    keys.remember(asked("print x"), await ran(kernel, "print x"))
    for code in ("print a", "print b"):
        await ended(Execution.begin(kernel, {"code": code}))
    with pytest.raises(ResultForgotten, match="not run again"):
        await keys.look_up(asked("print x"), kernel)


async def test_a_kernel_of_the_same_id_knows_nothing_of_the_one_before(world: World) -> None:
    client = await world.client()
    kernel_id: Any = client.kernel.kernel_id
    await ran(client.kernel, "print x")
    await world.registry.shutdown(kernel_id)
    await world.quiet()
    record = client.kernel.record
    again = await world.registry.start(
        record.owner, spec_name=record.spec_name, options=record.options, kernel_id=kernel_id
    )
    assert await IdempotencyKeys().look_up(asked("print x"), again) is None
    await ran(again, "print y", "other")
    await world.quiet()
    again = (await world.reopen()).get(kernel_id)
    assert await IdempotencyKeys().look_up(asked("print x"), again) is None
    assert await IdempotencyKeys().look_up(asked("print y", "other"), again) is not None
