"""Trails replayed over a gateway's core: order, recorded states, journals, and what is left."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

import pytest

from kernel_gateway.audit.answers import Answer
from kernel_gateway.audit.chain import CellInterrupted, CellStarted, SessionClosed
from kernel_gateway.errors import BadRequest, Conflict, HeldElsewhere, NotFound
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.lease import ReplicaSettings
from kernel_gateway.messaging.caller import Actor, Caller
from kernel_gateway.messaging.message import InMessage
from kernel_gateway.replay.cells import CellPair
from kernel_gateway.replay.recorded import JournalSource, read
from kernel_gateway.replay.replaying import run
from kernel_gateway.replay.running import Replay
from kernel_gateway.replay.selecting import ReplayRequest
from kernel_gateway.web.workspace_files import MemoryFileStore
from lambda_kernel.contract import keys
from lambda_kernel.contract.scope import Scope
from lambda_kernel.contract.session_policy import session_policy
from tests.functional.kernels.conftest import OWNER, STACK, Client, World

ADMIN = Identity(user="root", admin=True)


async def prepared(world: World, client: Client, replayer: Identity = OWNER, **how: Any) -> Replay:
    """Return a replay that has not begun."""
    await client.kernel.journal.flush()
    source = JournalSource(client.kernel.journal, await client.kernel.journal.open())
    return Replay(
        registry=world.registry,
        files=MemoryFileStore(),
        trail=await read(source),
        source=source,
        request=ReplayRequest(**how),
        replayer=replayer.as_owner,
        caller=Caller(user=replayer.user, client="rest"),
        readable="users/u1/",
    )


async def a_replay(
    world: World, client: Client, replayer: Identity = OWNER, **how: Any
) -> tuple[Replay, list[CellPair]]:
    """Return a replay that is over, and its cells in order."""
    replay = await prepared(world, client, replayer, **how)
    pairs = await cells_of(run(replay))
    return replay, sorted(pairs, key=lambda pair: pair.number)


async def cells_of(events: AsyncIterator[Any]) -> list[CellPair]:
    async with aclosing(events) as found:  # type: ignore[type-var]
        return [event async for event in found if isinstance(event, CellPair)]


async def test_a_session_is_replayed_cell_by_cell_in_a_kernel_that_is_gone_afterwards(
    world: World,
) -> None:
    client = await world.client()
    for code in ("print one", "raise Trouble", "print two"):
        await client.run(code)
    first_count = len(world.function.invocations)

    replay, pairs = await a_replay(world, client)

    again = world.function.invocations[first_count:]
    assert [each.msg.content["code"] for each in again] == [
        "print one", "raise Trouble", "print two",
    ]  # fmt: skip
    prefix = keys.replay_prefix("u1", replay.replay_id)
    assert {each.write_prefix for each in again} == {prefix}
    assert {each.workdir_name for each in again} == {client.kernel.record.workdir_name}
    assert [each.seeds for each in again] == [client.kernel.record.seeds] * 3
    for pair in pairs:
        assert pair.recorded is not None
        assert pair.replayed is not None
        assert pair.reason == ""
        assert pair.recorded.outputs == pair.replayed.outputs
        assert (pair.recorded.status, pair.recorded.ename) == (
            pair.replayed.status, pair.replayed.ename,
        )  # fmt: skip
    assert [pair.recorded.ename for pair in pairs if pair.recorded] == [None, "Trouble", None]
    assert [kernel.kernel_id for kernel in world.registry.all()] == [client.kernel.kernel_id]


async def test_no_agents_connectors_and_no_home_are_in_its_scope_and_nothing_stays_there(
    world: World,
) -> None:
    client = await world.client()
    await client.run("print one")
    before = {key for key in world.store.objects if key[0] == STACK.state}

    replay, _ = await a_replay(world, client)

    scope = world.function.invocations[-1].scope
    assert scope == Scope(user="u1", execution=replay.replay_id)
    assert not scope.home_is_kept
    assert {key for key in world.store.objects if key[0] == STACK.state} == before
    await a_replay(world, client, has_connectors=True)
    assert world.function.invocations[-1].scope.agent == "a1"


@pytest.mark.parametrize("mode", ["sequential", "pinned"])
async def test_its_session_policy_admits_its_own_folder_and_scope_only(
    world: World, mode: str
) -> None:
    client = await world.client()
    await client.run("print one")

    replay, _ = await a_replay(world, client, mode=mode)

    invocation = world.function.invocations[-1]
    policy = json.loads(session_policy(invocation, STACK))
    prefix = keys.replay_prefix("u1", replay.replay_id) + ("1/" if mode == "pinned" else "")
    files = [
        resource
        for statement in policy["Statement"]
        for resource in statement["Resource"]
        if "-workspaces/" in resource or "-state/" in resource
    ]
    scope = keys.scope_prefix(invocation.scope)
    own = [
        f"arn:aws:s3:::{STACK.workspaces}/{prefix}*",
        f"arn:aws:s3:::{STACK.state}/{scope}*",
    ]
    inputs = keys.replay_inputs_prefix("u1", replay.replay_id, 1)
    recorded = [
        f"arn:aws:s3:::{STACK.workspaces}/{inputs}*",
        f"arn:aws:s3:::{STACK.state}/{keys.blobs_prefix(client.kernel.scope)}*",
    ]
    assert files == own + (recorded if mode == "pinned" else [])
    read_only = [s for s in policy["Statement"] if s["Resource"] == recorded]
    assert all(s["Action"] == ["s3:GetObject", "s3:GetObjectVersion"] for s in read_only)
    assert scope != keys.scope_prefix(client.kernel.scope)
    assert "secretsmanager" not in json.dumps(policy)


async def test_its_own_journal_says_what_it_is_derived_from(world: World) -> None:
    client = await world.client()
    await client.run("print one")

    replay, _ = await a_replay(world, client)

    (kernel_id,) = replay.kernel_ids
    journal = world.registry.services.recorder.opened(kernel_id)
    (event,) = [
        entry.event
        async for entry in journal.newest_first()
        if isinstance(entry.event, CellStarted)
    ]
    assert event.gateway is not None
    derived_from = event.gateway.session.derived_from
    assert derived_from is not None
    assert derived_from.kernel_id == client.kernel.kernel_id
    assert derived_from.digest == replay.trail.digest


async def test_pinned_cells_begin_with_their_own_recorded_state(world: World) -> None:
    client = await world.client()
    for code in ("print one", "print two", "print three"):
        await client.run(code)
    first_count = len(world.function.invocations)

    replay, pairs = await a_replay(world, client, mode="pinned")

    again = {each.msg.content["code"]: each for each in world.function.invocations[first_count:]}
    assert len(pairs) == len(again) == 3
    assert again["print one"].parent_head is None
    for number, code in ((2, "print two"), (3, "print three")):
        invocation = again[code]
        assert invocation.parent_kernel_id == client.kernel.kernel_id
        assert invocation.parent_head is not None
        assert invocation.parent_head.seq == number - 1
        assert invocation.execution_count == number
        assert invocation.write_prefix.endswith(f"/.replays/{replay.replay_id}/{number}/")
    assert len(world.registry.all()) == 1


async def test_only_who_may_read_the_variables_reads_them_where_they_are(world: World) -> None:
    client = await world.client()
    for code in ("print one", "print two"):
        await client.run(code)
    recorded = client.kernel.scope

    own, _ = await a_replay(world, client, mode="pinned")
    of_owner = world.function.invocations[-2:]
    theirs, pairs = await a_replay(world, client, ADMIN, mode="pinned")
    of_admin = world.function.invocations[-2:]

    for replay, invocations, user in ((own, of_owner, "u1"), (theirs, of_admin, "root")):
        inputs = keys.replay_inputs_prefix(user, replay.replay_id, 1)
        assert {each.pinned.inputs for each in invocations if each.pinned} == {inputs}
    assert {each.pinned.scope for each in of_owner if each.pinned} == {recorded}
    assert {each.pinned.scope for each in of_admin if each.pinned} == {None}
    assert all("/u1/" not in session_policy(each, STACK) for each in of_admin)
    assert [pair.reason for pair in pairs] == ["", ""]


@pytest.mark.parametrize("mode", ["sequential", "pinned"])
async def test_of_pinned_cells_no_notebook_is_rendered_before_somebody_asks(
    world: World, mode: str
) -> None:
    client = await world.client()
    for code in ("print one", "print two"):
        await client.run(code)
    replay, _ = await a_replay(world, client, mode=mode)

    await world.registry.close()

    rendered = {key for _, key in world.store.objects if key.endswith("trail.ipynb")}
    kernels = [client.kernel.kernel_id, *(replay.kernel_ids if mode == "sequential" else ())]
    assert rendered == {keys.rendered_trail_key(kernel_id) for kernel_id in kernels}
    for kernel_id in replay.kernel_ids:
        journal = world.registry.services.recorder.opened(kernel_id)
        assert await journal.open() == (4 + 1 if mode == "sequential" else 2 + 1)


async def test_a_state_that_is_not_kept_is_unavailable_for_its_cell_alone(world: World) -> None:
    client = await world.client()
    for code in ("print one", "print two", "print three"):
        await client.run(code)
    place = keys.commit_key(client.kernel.scope, client.kernel.kernel_id, 1)
    # The first cell's files are in its entry: its commit is not needed for them.
    await world.store.delete(STACK.state, place)

    _, pairs = await a_replay(world, client, mode="pinned")

    assert [pair.reason.partition(":")[0] for pair in pairs] == ["", "unavailable", ""]
    assert "not kept any more" in pairs[1].reason


async def test_a_changed_state_is_never_begun_with(world: World) -> None:
    client = await world.client()
    for code in ("print one", "print two", "print three"):
        await client.run(code)
    places = [keys.commit_key(client.kernel.scope, client.kernel.kernel_id, n) for n in (1, 2)]
    swapped = world.store.objects[STACK.state, places[0]]
    await world.store.put(STACK.state, places[1], swapped)

    _, pairs = await a_replay(world, client, only=(3,))

    assert [pair.reason.partition(":")[0] for pair in pairs] == ["unavailable"]
    assert "not the one that was recorded" in pairs[0].reason


async def test_a_session_goes_on_from_the_recorded_state_before_a_cell(world: World) -> None:
    client = await world.client()
    for code in ("print one", "print two", "print three"):
        await client.run(code)
    first_count = len(world.function.invocations)

    _, pairs = await a_replay(world, client, begin=2)

    second, third = world.function.invocations[first_count:]
    assert [pair.number for pair in pairs] == [2, 3]
    assert second.parent_kernel_id == client.kernel.kernel_id
    assert third.parent_kernel_id is None
    assert third.kernel_id == second.kernel_id


async def test_a_restart_is_replayed_as_one(world: World) -> None:
    client = await world.client()
    await client.run("print one")
    await client.kernel.restart()
    await client.run("print two")
    first_count = len(world.function.invocations)

    _, pairs = await a_replay(world, client)

    one, two = world.function.invocations[first_count:]
    assert [pair.reason for pair in pairs] == ["", ""]
    assert two.parent_head is None
    assert two.kernel_id != one.kernel_id
    assert two.seeds == client.kernel.record.seeds
    assert two.execution_count == 1


async def test_what_was_lost_is_not_run_and_counts_stay_as_recorded(world: World) -> None:
    client = await world.client()
    for code in ("print one", "times-out", "print three"):
        await client.run(code)
    first_count = len(world.function.invocations)

    _, pairs = await a_replay(world, client)

    assert [pair.reason.partition(":")[0] for pair in pairs] == ["", "not-replayable", ""]
    again = world.function.invocations[first_count:]
    assert [each.execution_count for each in again] == [1, 3]


async def test_a_cell_that_dies_again_dies_as_recorded(world: World) -> None:
    client = await world.client()
    for code in ("dies-politely", "print two"):
        await client.run(code)

    _, pairs = await a_replay(world, client, mode="pinned")

    assert [pair.reason for pair in pairs] == ["", ""]
    assert [pair.replayed.ename for pair in pairs if pair.replayed] == ["CellProcessDied", None]


async def test_parameters_come_after_the_tagged_cell(world: World) -> None:
    client = await world.client()
    for code, metadata in (("print one", {"tags": ["parameters"]}), ("print two", {})):
        client.kernel.receive(_request(code, metadata), client.take)
        await world.quiet()
    first_count = len(world.function.invocations)

    _, pairs = await a_replay(world, client, parameters={"x": 3})

    sources = [each.msg.content["code"] for each in world.function.invocations[first_count:]]
    assert sources == ["print one", "# Parameters\nx = 3\n", "print two"]
    assert [pair.number for pair in pairs] == [1, 2]
    again = world.function.invocations[first_count:]
    assert [again[0].execution_count, again[2].execution_count] == [1, 2]


async def test_parameters_replace_the_cell_that_was_injected_before(world: World) -> None:
    client = await world.client()
    tags = (("print one", "parameters"), ("print old", "injected-parameters"), ("print two", "t"))
    for code, tag in tags:
        client.kernel.receive(_request(code, {"tags": [tag]}), client.take)
        await world.quiet()
    first_count = len(world.function.invocations)

    _, pairs = await a_replay(world, client, parameters={"x": 3})

    sources = [each.msg.content["code"] for each in world.function.invocations[first_count:]]
    assert sources == ["print one", "# Parameters\nx = 3\n", "print two"]
    assert [pair.reason.partition(":")[0] for pair in pairs] == ["", "skipped", ""]
    _, unchanged = await a_replay(world, client)
    assert [pair.reason for pair in unchanged] == ["", "", ""]


async def test_a_cell_that_there_is_not_cannot_be_asked_for(world: World) -> None:
    client = await world.client()
    await client.run("print one")
    with pytest.raises(BadRequest, match="--only 2"):
        await a_replay(world, client, only=(2,))


async def test_a_changed_journal_is_not_replayed(world: World) -> None:
    client = await world.client()
    for code in ("print one", "print two"):
        await client.run(code)
    await client.kernel.journal.flush()
    for place, stored in list(world.store.objects.items()):
        if place[1].startswith(keys.journal_prefix(client.kernel.kernel_id)):
            world.store.objects[place] = stored.replace(b"print one", b"print won")
    ran = list(world.function.ran)
    with pytest.raises(Conflict, match="tampered"):
        await a_replay(world, client)
    assert world.function.ran == ran


async def test_a_replay_that_nobody_waits_for_leaves_nothing(world: World) -> None:
    client = await world.client()
    for code in ("print one", "print two"):
        await client.run(code)
    before = {key for key in world.store.objects if key[0] == STACK.state}
    source = JournalSource(client.kernel.journal, await client.kernel.journal.open())
    replay = Replay(
        registry=world.registry,
        files=MemoryFileStore(),
        trail=await read(source),
        source=source,
        request=ReplayRequest(mode="pinned"),
        replayer=ADMIN.as_owner,
        caller=Caller(user="root", client="rest"),
        readable="users/u1/",
    )
    async with aclosing(run(replay)) as events:
        await anext(events)

    await world.quiet()
    assert [kernel.kernel_id for kernel in world.registry.all()] == [client.kernel.kernel_id]
    assert {key for key in world.store.objects if key[0] == STACK.state} == before


async def test_what_a_replay_leaves_where_its_gateway_is_killed_ends_with_the_next(
    world: World,
) -> None:
    client = await world.client()
    for code in ("print one", "print two"):
        await client.run(code)
    before = {key for key in world.store.objects if key[0] == STACK.state}
    replay = await prepared(world, client)
    async with aclosing(run(replay)) as events:
        while not isinstance(await anext(events), CellPair):
            continue
        (kernel_id,) = replay.kernel_ids
        # Of the same name: what held the kernels is over.
        following = await world.reopen()
        await following.refresh()
        assert [kernel.kernel_id for kernel in following.all()] == [client.kernel.kernel_id]
        with pytest.raises(NotFound):
            await following.find(kernel_id)
        await world.quiet()
        left = {key for key in world.store.objects if key[0] == STACK.state}
    journal = following.services.recorder.opened(kernel_id)
    await journal.open()
    newest = (await anext(journal.newest_first())).event
    assert isinstance(newest, SessionClosed)
    assert "cut off" in newest.reason
    assert left == before
    await following.close()


async def test_files_that_nobody_wants_to_keep_are_deleted_with_the_replay_or_at_the_next_start(
    world: World,
) -> None:
    client = await world.client()
    await client.run("print one")
    kept = STACK.workspaces, "users/u1/.replays/of-another/x"
    world.store.objects[kept] = b"kept"
    for is_killed in (False, True):
        replay = await prepared(world, client, keeps_files=False)
        file = STACK.workspaces, keys.replay_prefix("u1", replay.replay_id) + "made"
        async with aclosing(run(replay)) as events:
            await anext(events)
            # As a cell would.
            world.store.objects[file] = b"made"
            if is_killed:
                # Before it has a kernel, and while another gateway looks: which leaves it alone.
                assert replay.kernel_ids == []
                other = await world.reopen(replica_settings=ReplicaSettings(replica_id="other"))
                await world.quiet()
                assert file in world.store.objects
                await other.close()
                following = await world.reopen()
                await world.quiet()
                assert file not in world.store.objects
                await following.close()
        assert file not in world.store.objects
        assert kept in world.store.objects
    assert not any(key.startswith("replays/") for _, key in world.store.objects)


async def test_a_replay_of_another_gateway_that_lives_is_left_alone(world: World) -> None:
    client = await world.client()
    await client.run("print one")
    replay = await prepared(world, client)
    async with aclosing(run(replay)) as events:
        while not isinstance(await anext(events), CellPair):
            continue
        other = await world.reopen(replica_settings=ReplicaSettings(replica_id="other"))
        await other.refresh()
        found = await other.find(replay.kernel_ids[0])
        with pytest.raises(HeldElsewhere):
            await other.reach(found, takes=True)
        assert len(other.all()) == len(world.registry.all()) == 2
        await other.close()


def _request(code: str, metadata: dict[str, Any]) -> InMessage:
    header = {"msg_id": code, "msg_type": "execute_request", "session": "s"}
    return InMessage(header=header, metadata=metadata, content={"code": code})


async def answered(client: Client, code: str, *answers: str) -> None:
    """Run a cell that asks."""
    cell = client.execute(code, allow_stdin=True)
    for number, value in enumerate(answers, 1):
        while len([m for m in client.messages if m.msg_type == "input_request"]) < number:  # noqa: ASYNC110
            await asyncio.sleep(0)
        client.send("input_reply", channel="stdin", value=value)
    await client.done(cell)
    client.messages.clear()


@pytest.mark.parametrize("mode", ["sequential", "pinned"])
async def test_a_cell_that_asked_gets_the_recorded_answers(world: World, mode: str) -> None:
    client = await world.client()
    await answered(client, "ask one two", "first", "second")
    await answered(client, "ask three", "third")

    _, pairs = await a_replay(world, client, mode=mode)

    assert [pair.reason for pair in pairs] == ["", ""]
    for pair in pairs:
        assert pair.recorded is not None
        assert pair.replayed is not None
        assert pair.replayed.outputs == pair.recorded.outputs
        assert [each.value for each in pair.replayed.answers] == [
            each.value for each in pair.recorded.answers
        ]


async def test_a_cell_that_asks_more_often_than_recorded_is_interrupted(world: World) -> None:
    client = await world.client()
    await answered(client, "ask one two", "first", "second")
    replay = await prepared(world, client)
    # As if the code asked again for another reason than its source.
    (cell,) = replay.trail.cells
    kernel = await replay.start(cell, None)

    finished, reason = await replay.execute(
        kernel, {"code": "ask one two"}, {}, [Answer(prompt="one", value="first")]
    )

    assert (finished is not None, reason) == (True, "")
    (interrupted,) = [
        entry.event
        async for entry in kernel.journal.newest_first()
        if isinstance(entry.event, CellInterrupted)
    ]
    assert interrupted.actor == Actor(door="replay", caller=replay.caller)
    await replay.end(kernel)
    await replay.clean_up()
