"""Kernels are durable: a gateway that starts again finds them, and what they had committed."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING

import pytest

from kernel_gateway.errors import BadRequest, NotFound, PreconditionFailed, StartError, StorageError
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.options import KernelOptions
from kernel_gateway.kernels.registry import KernelRegistry
from kernel_gateway.objects import MemoryObjectStore
from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Commit
from lambda_kernel.contract.keys import Stack

if TYPE_CHECKING:
    from tests.functional.kernels.conftest import World

STATE, RECORDS = "lkg-state", "lkg-records"


async def test_a_new_kernel_is_durable_before_it_is_returned(world: World) -> None:
    client = await world.client(KernelOptions(workspace="w", projects=("p",), run="r1"))

    stored = json.loads(world.store.objects[RECORDS, f"kernels/{client.kernel.kernel_id}.json"])

    assert stored["owner"] == {"user": "u1", "agent": "a1", "admin": False}
    assert stored["options"]["workspace"] == "w"
    assert client.kernel.execution_state == "idle"


async def test_a_cell_does_not_rewrite_the_record(world: World) -> None:
    client = await world.client()
    before = list(world.store.put_keys)

    await client.run("print a")

    assert [k for k in world.store.put_keys[len(before) :] if k.startswith("kernels/")] == []


async def test_a_restarted_gateway_goes_on_where_the_session_was(world: World) -> None:
    client = await world.client(KernelOptions(workspace="w"))
    await client.run("print a")
    await client.run("dies")
    await world.registry.close()

    again = await world.reopen()
    kernel = again.get(client.kernel.kernel_id)
    assert again.get(kernel.kernel_id).execution_count is None
    later = world.attached(kernel)
    messages = await later.run("print b")

    assert kernel.execution_count == 3
    assert kernel.owner == client.kernel.owner
    assert kernel.options.workspace == "w"
    assert messages[1].content["execution_count"] == 3
    last = world.function.invocations[-1]
    assert last.parent_head is not None
    assert last.parent_head.seq == 1
    assert last.manifest is not None
    assert last.workdir_name == world.function.invocations[0].workdir_name


async def test_a_cell_of_the_gateway_before_cannot_commit_behind_our_back(world: World) -> None:
    client = await world.client()
    await client.run("print a")
    client.execute("wait")
    await world.function.began.wait()

    again = await world.reopen()
    later = world.attached(again.get(client.kernel.kernel_id))
    await later.run("print b")
    world.function.release.set()
    await world.quiet()

    stored = [b for (bucket, _), b in sorted(world.store.objects.items()) if bucket == STATE]
    commits = [Commit.from_bytes(body) for body in stored]
    assert [c.void for c in commits] == [False, True, True, False]
    assert commits[3].parent is not None
    assert commits[3].parent.seq == 1


async def test_a_restarted_kernel_stays_empty_for_the_next_gateway(world: World) -> None:
    client = await world.client()
    await client.run("print a")
    await client.kernel.restart()

    again = await world.reopen()
    kernel = again.get(client.kernel.kernel_id)
    await world.attached(kernel).run("print b")

    assert world.function.invocations[-1].parent_head is None
    assert world.function.invocations[-1].execution_count == 1
    assert kernel.epoch == 2


async def test_a_restart_of_a_kernel_that_was_not_used_yet_works(world: World) -> None:
    client = await world.client()
    await client.run("print a")
    again = await world.reopen()
    kernel = again.get(client.kernel.kernel_id)

    await kernel.restart()
    await world.attached(kernel).run("print b")

    assert world.function.invocations[-1].parent_head is None
    assert world.function.invocations[-1].seq == 3


async def test_a_commit_that_cannot_be_read_is_an_error_and_a_restart_helps(world: World) -> None:
    client = await world.client()
    await client.run("print a")
    (place,) = [p for p in world.store.objects if p[0] == STATE]
    world.store.objects[place] = b"garbage"
    again = await world.reopen()
    kernel = again.get(client.kernel.kernel_id)
    later = world.attached(kernel)

    messages = await later.run("print b")

    assert [m.content["ename"] for m in messages if m.msg_type == "error"] == ["StorageUnavailable"]
    await kernel.restart()
    messages = await later.run("print c")
    assert [m.content["status"] for m in messages if m.msg_type == "execute_reply"] == ["ok"]


async def test_records_that_cannot_be_read_are_left_out(world: World) -> None:
    client = await world.client()
    world.store.objects[RECORDS, f"kernels/{uuid.uuid4()}.json"] = b"{"

    again = await world.reopen()

    assert [k.kernel_id for k in again.all()] == [client.kernel.kernel_id]


async def test_kernels_are_listed_oldest_first_also_after_a_restart(world: World) -> None:
    ids = [(await world.client()).kernel.kernel_id for _ in range(5)]

    again = await world.reopen()

    assert [k.kernel_id for k in world.registry.all()] == ids
    assert [k.kernel_id for k in again.all()] == ids


async def test_ids_and_kernelspecs_are_checked(world: World) -> None:
    kernel_id = str(uuid.uuid4())

    async def start(spec_name: str = "lambda-python", kernel_id: str | None = None) -> None:
        await world.registry.start(
            Identity(user="u1"),
            spec_name=spec_name,
            options=KernelOptions(),
            kernel_id=kernel_id,
        )

    with pytest.raises(NotFound):
        await start("python9")
    with pytest.raises(BadRequest):
        await start(kernel_id="../x")
    await start(kernel_id=kernel_id)
    with pytest.raises(PreconditionFailed):
        await start(kernel_id=kernel_id)
    with pytest.raises(NotFound):
        await world.registry.shutdown(str(uuid.uuid4()))


async def test_an_id_that_is_used_again_does_not_bring_old_variables_back(world: World) -> None:
    client = await world.client()
    await client.run("print a")
    kernel_id = client.kernel.kernel_id
    await world.registry.shutdown(kernel_id)

    kernel = await world.registry.start(
        client.kernel.owner,
        spec_name="lambda-python",
        options=KernelOptions(),
        kernel_id=kernel_id,
    )
    await world.attached(kernel).run("print b")

    assert world.function.invocations[-1].parent_head is None
    assert world.function.invocations[-1].seq == 2


@pytest.mark.parametrize(("user", "agent"), [("u9", None), ("u1", None), ("u1", "a2")])
async def test_an_id_of_anothers_kernel_is_refused(
    world: World, user: str, agent: str | None
) -> None:
    client = await world.client()
    await client.run("print a")
    kernel_id = client.kernel.kernel_id
    await world.registry.shutdown(kernel_id)
    await world.quiet()

    with pytest.raises(PreconditionFailed, match="another's"):
        await world.registry.start(
            Identity(user=user, agent=agent),
            spec_name="lambda-python",
            options=KernelOptions(),
            kernel_id=kernel_id,
        )

    assert kernel_id not in [kernel.kernel_id for kernel in world.registry.all()]
    assert keys.kernel_record_key(kernel_id) not in [key for _, key in world.store.objects]


async def test_a_record_that_cannot_be_written_is_no_kernel(world: World) -> None:
    world.store.failing_puts.add(RECORDS)

    with pytest.raises(StorageError):
        await world.client()

    assert world.registry.all() == []


async def test_a_deployment_without_a_staged_handler_does_not_open(world: World) -> None:
    with pytest.raises(StartError, match="frame-key"):
        await KernelRegistry.open(
            stack=Stack(),
            handler_digest="e" * 64,
            store=MemoryObjectStore(),
            invoker=world.invoker,
            environments={},
        )


async def test_cells_run_under_the_owners_scope_and_options(world: World) -> None:
    client = await world.client(
        KernelOptions(workspace="w", projects=("a", "b/c"), run="r", scope="execution"),
        Identity(user="u2", agent="a2", admin=True),
    )

    await client.run("print a")

    invocation = world.function.invocations[0]
    assert (invocation.scope.user, invocation.scope.agent) == ("u2", "a2")
    assert invocation.scope.execution == client.kernel.kernel_id
    assert invocation.projects == ("a", "b/c")
    assert invocation.write_prefix == "users/u2/w/runs/r/"
    assert invocation.limits.timeout_s == 30
    assert not client.kernel.owner.admin
