"""A kernel may begin with what another one of its scope has committed, now or at a cell."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from kernel_gateway.errors import BadRequest, NotFound
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.options import KernelOptions

if TYPE_CHECKING:
    from tests.functional.kernels.conftest import Client, World


def options(source: Client | str, cell: int | None = None, **more: str) -> KernelOptions:
    kernel_id = source if isinstance(source, str) else source.kernel.kernel_id
    named = kernel_id if cell is None else f"{kernel_id}@{cell}"
    return KernelOptions.from_env({"LAMBDA_KERNEL_FROM": named, **more})[0]


async def test_a_fork_begins_with_the_newest_commit_of_its_source(world: World) -> None:
    source = await world.client(KernelOptions(workspace="w", projects=("p",)))
    await source.run("print a")
    await source.run("print b")

    fork = await world.client(options(source))
    messages = await fork.run("print c")

    ours, theirs = world.function.invocations[-1], world.function.invocations[1]
    assert ours.parent_head is not None
    assert ours.parent_head.seq == theirs.seq
    assert ours.parent_kernel_id == source.kernel.kernel_id
    assert ours.manifest is not None
    assert (ours.workdir_name, ours.workspace) == (theirs.workdir_name, "w")
    assert ours.projects == ("p",)
    assert messages[1].content["execution_count"] == 3
    assert fork.kernel.record.origin is not None
    assert fork.kernel.record.origin.execution_count == 2


async def test_a_fork_and_its_source_go_on_independently(world: World) -> None:
    source = await world.client()
    await source.run("print a")
    fork = await world.client(options(source, 1))

    for client in (fork, source, fork):
        await client.run("print more")

    last = world.function.invocations[-1]
    assert last.parent_kernel_id is None
    assert last.parent_head is not None
    assert last.parent_head.seq == world.function.invocations[1].seq
    assert (fork.kernel.execution_count, source.kernel.execution_count) == (3, 2)


async def test_cells_from_before_a_restart_can_still_be_forked(world: World) -> None:
    source = await world.client()
    for code in ("print a", "print b", "print c"):
        await source.run(code)
    await source.kernel.restart()
    await source.run("print d")

    later = await world.client(options(source, 2))
    newest = await world.client(options(source, 1))

    assert later.kernel.record.origin is not None
    assert later.kernel.record.origin.head.seq == 2
    assert newest.kernel.record.origin is not None
    assert newest.kernel.record.origin.head.seq == 4
    assert newest.kernel.record.origin.execution_count == 1


async def test_a_fork_survives_a_restart_of_the_gateway_before_and_after_its_first_cell(
    world: World,
) -> None:
    source = await world.client()
    await source.run("print a")
    fork = await world.client(options(source))

    again = await world.reopen()
    kernel = again.get(fork.kernel.kernel_id)
    await world.attached(kernel).run("print b")
    first = world.function.invocations[-1]
    once_more = (await world.reopen()).get(kernel.kernel_id)
    await world.attached(once_more).run("print c")
    second = world.function.invocations[-1]

    assert first.parent_kernel_id == source.kernel.kernel_id
    assert first.execution_count == 2
    assert second.parent_kernel_id is None
    assert second.parent_head is not None
    assert second.parent_head.seq == first.seq


@pytest.mark.parametrize("way", ["dies", "never-starts", "times-out-politely"])
async def test_a_first_cell_that_is_lost_leaves_the_fork_where_it_began(
    world: World, way: str
) -> None:
    source = await world.client()
    await source.run("print a")
    fork = await world.client(options(source))

    messages = await fork.run(way)
    await fork.run("print b")
    again = (await world.reopen()).get(fork.kernel.kernel_id)
    await world.attached(again).run("print c")

    (error,) = [m.content["evalue"] for m in messages if m.msg_type == "error"]
    assert "as after cell [1]" in error
    second, third = world.function.invocations[-2:]
    assert second.parent_kernel_id == source.kernel.kernel_id
    assert third.parent_head is not None
    assert third.parent_head.seq == second.seq


async def test_a_restart_of_a_fork_empties_it(world: World) -> None:
    source = await world.client()
    await source.run("print a")
    fork = await world.client(options(source))

    await fork.kernel.restart()
    await fork.run("print b")

    last = world.function.invocations[-1]
    assert (last.parent_head, last.parent_kernel_id, last.execution_count) == (None, None, 1)
    assert fork.kernel.record.origin is None


async def test_a_fork_can_be_forked_also_at_cells_of_its_own_source(world: World) -> None:
    source = await world.client()
    await source.run("print a")
    await source.run("print b")
    fork = await world.client(options(source))
    unused = await world.client(options(fork))
    await fork.run("print c")

    early = await world.client(options(fork, 1))
    late = await world.client(options(fork, 3))

    origins = [c.kernel.record.origin for c in (unused, early, late)]
    found = [(o.kernel_id, o.execution_count) for o in origins if o is not None]
    first, second = source.kernel.kernel_id, fork.kernel.kernel_id
    assert found == [(first, 2), (first, 1), (second, 3)]


async def test_a_cell_that_is_not_kept_is_refused_with_those_that_are(world: World) -> None:
    source = await world.client()
    await source.run("print a")
    await source.run("dies")
    for _ in range(3):
        await source.run("print b")

    for cell in (2, 9):
        with pytest.raises(BadRequest, match=r"no state of cell \d; cells 1, 3-5 are kept"):
            await world.client(options(source, cell))


async def test_what_has_committed_nothing_cannot_be_forked(world: World) -> None:
    source = await world.client()
    with pytest.raises(BadRequest, match="no committed cell; no cell is kept"):
        await world.client(options(source))

    await source.run("print a")
    await source.kernel.restart()
    with pytest.raises(BadRequest, match="no committed cell; cell 1 is kept"):
        await world.client(options(source))


async def test_another_scopes_kernel_is_as_unknown_as_one_that_is_not_there(world: World) -> None:
    source = await world.client()
    await source.run("print a")
    private = await world.client(KernelOptions(scope="execution"))
    await private.run("print a")
    kernel_ids = [source.kernel.kernel_id, private.kernel.kernel_id, str(uuid.uuid4())]
    callers = [
        Identity(user="u1"),
        Identity(user="u1", agent="a2"),
        Identity(user="u2", agent="a1"),
        Identity(user="u2", admin=True),
    ]

    for caller in callers:
        for kernel_id in kernel_ids:
            with pytest.raises(NotFound, match=f"^Kernel does not exist: {kernel_id}$"):
                await world.client(options(kernel_id), owner=caller)


@pytest.mark.parametrize("text", ["x", "@1", "{id}@", "{id}@-1", "{id}@1.5", "{id}@²", "{id}@1@2"])
def test_a_source_is_a_kernel_id_and_a_number(text: str) -> None:
    with pytest.raises(BadRequest, match="LAMBDA_KERNEL_FROM"):
        options(text.format(id=uuid.uuid4()))


def test_a_session_of_its_own_scope_cannot_be_a_fork() -> None:
    with pytest.raises(BadRequest, match="LAMBDA_KERNEL_SCOPE is execution"):
        options(str(uuid.uuid4()), LAMBDA_KERNEL_SCOPE="execution")
