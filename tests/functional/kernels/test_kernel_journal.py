"""The journal of a kernel: written around every cell, by one gateway, read by who comes back."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import TYPE_CHECKING, Any

import pytest

from kernel_gateway.audit.chain import (
    CellFinished,
    CellStarted,
    Entry,
    KernelRestarted,
    SessionClosed,
    verified,
)
from kernel_gateway.audit.envelopes import PAYLOAD_TYPE, Envelope
from kernel_gateway.audit.grouping import incomplete
from kernel_gateway.audit.journal import Journal, JournalConflict
from kernel_gateway.errors import StorageError
from kernel_gateway.kernels.missed import Replay
from kernel_gateway.kernels.past import past_cells
from kernel_gateway.messaging.caller import GATEWAY
from kernel_gateway.objects import MemoryObjectStore
from lambda_kernel.contract.keys import audit_blob_key

if TYPE_CHECKING:
    from kernel_gateway.kernels.kernel import LambdaKernel
    from tests.functional.kernels.conftest import Client, World

RECORDS = "lkg-records"


def journal_of(world: World, kernel: LambdaKernel) -> list[Entry]:
    """Return the whole journal, after it was verified."""
    prefix = f"audit/{kernel.kernel_id}/j/"
    stored = [b for (_, key), b in sorted(world.store.objects.items()) if key.startswith(prefix)]
    return verified(kernel.kernel_id, stored)


def kinds(entries: list[Entry]) -> list[str]:
    return [type(entry.event).__name__ for entry in entries]


def told(client: Client, msg_id: str) -> list[str]:
    """Return what a client was told of a cell: texts, errors, states, replies, in order."""
    names = ("text", "execution_state", "ename", "status")
    return [
        next(str(m.content[n]) for n in names if n in m.content)
        for m in client.about(msg_id)
        if m.msg_type != "execute_input"
    ]


async def test_a_cell_is_in_the_journal_before_it_is_sent_and_after_it_has_ended(
    world: World,
) -> None:
    client = await world.client()
    running = client.execute("wait")
    await world.function.began.wait()
    (start,) = journal_of(world, client.kernel)
    assert isinstance(start.event, CellStarted)
    assert start.event.content["code"] == "wait"
    assert start.event.msg_id == running
    assert start.event.request_id == world.function.invocations[0].request_id

    world.function.release.set()
    await client.done(running)
    await world.quiet()

    _, end = journal_of(world, client.kernel)
    assert isinstance(end.event, CellFinished)
    assert end.event.status == "ok"
    assert end.event.head is not None
    assert end.event.head.seq == 1


async def test_before_a_cell_is_sent_its_journal_waits_for_one_request(world: World) -> None:
    client = await world.client()
    await client.run("print a")
    await world.quiet()
    asked = [*world.store.get_keys], [*world.store.put_keys]
    world.store.failing_lists = True

    client.execute("wait")
    await world.function.began.wait()

    journal = f"audit/{client.kernel.kernel_id}/"
    gets = world.store.get_keys[len(asked[0]) :]
    puts = world.store.put_keys[len(asked[1]) :]
    assert [key for key in gets if key.startswith(journal)] == []
    assert [key for key in puts if key.startswith(journal)] == [f"{journal}j/00000003.json"]


async def test_what_a_client_was_told_is_what_the_journal_has(world: World) -> None:
    client = await world.client()
    msg_id = client.execute("raise ValueError")
    await client.done(msg_id)
    await world.quiet()

    end = journal_of(world, client.kernel)[-1].event

    assert isinstance(end, CellFinished)
    seen = [m for m in client.about(msg_id) if m.channel == "iopub"]
    assert [m.header for m in end.outputs.messages] == [m.header for m in seen]
    assert [m.content for m in end.outputs.messages] == [m.content for m in seen]
    (reply,) = [m for m in client.about(msg_id) if m.msg_type == "execute_reply"]
    assert end.reply is not None
    assert (end.reply.header, end.reply.content) == (reply.header, reply.content)
    assert end.status == "error"
    assert end.failure is None


async def test_a_journal_that_cannot_be_written_refuses_the_cell_before_it_starts(
    world: World,
) -> None:
    client = await world.client()
    world.store.failing_puts.add(RECORDS)

    refused = await client.run("print x")

    assert [m.content["ename"] for m in refused if m.msg_type == "execute_reply"] == [
        "AuditUnavailable"
    ]
    assert world.function.ran == []
    world.store.failing_puts.clear()
    await client.run("print y")
    await world.quiet()
    assert world.function.ran == ["print y"]
    assert kinds(journal_of(world, client.kernel)) == ["CellStarted", "CellFinished"]


async def test_an_end_that_could_not_be_written_is_written_before_the_next_start(
    world: World,
) -> None:
    client = await world.client()
    running = client.execute("wait")
    await world.function.began.wait()
    world.store.failing_puts.add(RECORDS)
    world.function.release.set()
    await client.done(running)
    await world.quiet()
    refused = await client.run("print x")
    assert [m.content["ename"] for m in refused if m.msg_type == "error"] == ["AuditUnavailable"]

    world.store.failing_puts.clear()
    await client.run("print y")
    await world.quiet()

    entries = journal_of(world, client.kernel)
    assert kinds(entries) == ["CellStarted", "CellFinished"] * 2
    assert world.function.ran == ["wait", "print y"]
    assert incomplete(entries) == []


async def test_another_gateways_entry_refuses_the_cell(world: World) -> None:
    client = await world.client()
    await client.run("print a")
    await world.quiet()
    other = await world.reopen()
    await world.attached(other.get(client.kernel.kernel_id)).run("print b")
    await world.quiet()

    refused = await client.run("print c")

    (reply,) = [m for m in refused if m.msg_type == "execute_reply"]
    assert reply.content["ename"] == "AuditUnavailable"
    assert "was written by another gateway" in reply.content["evalue"]
    assert world.function.ran == ["print a", "print b"]
    assert kinds(journal_of(world, client.kernel)) == ["CellStarted", "CellFinished"] * 2


async def test_a_write_whose_answer_was_lost_is_no_conflict() -> None:
    class LosesAnswers(MemoryObjectStore):
        async def put(self, bucket: str, key: str, body: bytes, **conditions: Any) -> str:
            # As boto3 does: what was stored is sent again, and found.
            await super().put(bucket, key, body, **conditions)
            return await super().put(bucket, key, body, **conditions)

    journal = Journal(LosesAnswers(), RECORDS, "k", is_new=True)

    await journal.append(KernelRestarted(), epoch=1, time="t")

    assert journal.number == 1


async def test_what_was_stored_before_an_error_is_no_conflict_when_it_is_signed_again() -> None:
    class StoresAndFails(MemoryObjectStore):
        async def put(self, bucket: str, key: str, body: bytes, **conditions: Any) -> str:
            etag = await super().put(bucket, key, body, **conditions)
            if len(self.objects) == 1:
                raise StorageError(etag)
            return etag

    class SignsAnew:
        count = 0

        async def seal(self, payload: bytes, payload_type: str = PAYLOAD_TYPE) -> bytes:
            self.count += 1
            signature = {"keyid": "k", "sig": str(self.count)}
            data = Envelope(
                payload=base64.b64encode(payload).decode(),
                payloadType=PAYLOAD_TYPE,
            ).to_json()
            return json.dumps(data | {"signatures": [signature]}).encode()

    journal = Journal(StoresAndFails(), RECORDS, "k", is_new=True, sealer=SignsAnew())
    journal.add(KernelRestarted(), epoch=1, time="t")
    with pytest.raises(StorageError):
        await journal.flush()

    await journal.flush()

    assert journal.number == 1


async def test_an_older_epoch_is_refused() -> None:
    store = MemoryObjectStore()
    kernel_id = "01234567-89ab-cdef-0123-456789abcdef"
    await Journal(store, RECORDS, kernel_id, is_new=True).append(
        KernelRestarted(), epoch=2, time="t"
    )

    with pytest.raises(JournalConflict, match="epoch 2"):
        await Journal(store, RECORDS, kernel_id, is_new=False).append(
            KernelRestarted(), epoch=1, time="t"
        )


async def test_large_output_is_an_object_of_its_own_and_is_read_again(world: World) -> None:
    client = await world.client()
    msg_id = client.execute("many-lines")
    await client.done(msg_id)
    await world.quiet()

    end = journal_of(world, client.kernel)[-1].event
    assert isinstance(end, CellFinished)
    assert end.outputs.messages == ()
    assert end.outputs.blob is not None
    key = audit_blob_key(client.kernel.kernel_id, end.outputs.blob)
    assert (RECORDS, key) in world.store.objects
    read = (await client.kernel.journal.entry(2)).event

    assert isinstance(read, CellFinished)
    seen = [m.content for m in client.about(msg_id) if m.channel == "iopub"]
    assert [m.content for m in read.outputs.messages] == seen


async def test_restarts_interrupts_and_the_end_are_recorded(world: World) -> None:
    client = await world.client()
    running = client.execute("wait")
    await world.function.began.wait()
    await client.kernel.interrupt()
    await client.done(running)
    world.function.began.clear()
    client.execute("stubborn")
    await world.function.began.wait()
    await client.kernel.restart()
    await world.registry.shutdown(client.kernel.kernel_id)
    await world.quiet()

    entries = journal_of(world, client.kernel)

    assert kinds(entries) == [
        "CellStarted", "CellInterrupted", "CellFinished", "CellStarted", "CellFinished",
        "KernelRestarted", "SessionClosed",
    ]  # fmt: skip
    assert [entry.epoch for entry in entries] == [0] * 5 + [1] * 2
    assert entries[-1].event == SessionClosed(reason="shut down", actor=GATEWAY)


@pytest.mark.parametrize("moment", ["before the start", "before the end", "after the end"])
@pytest.mark.parametrize("code", ["wait", "print x"])
async def test_a_gateway_that_dies_leaves_a_chain_that_the_next_one_completes(
    world: World, moment: str, code: str
) -> None:
    client = await world.client(session="s1")
    await client.run("print first")
    await world.quiet()
    number = {"before the start": 3, "before the end": 4, "after the end": 9}[moment]
    frozen = await dies_at(world, client, code, f"{number:08d}.json")

    again = await world.reopen()
    kernel = again.get(client.kernel.kernel_id)
    back = world.attached(kernel, "s1")
    await world.quiet()
    after = journal_of(world, kernel)

    assert incomplete(after) == []
    ends = [e.event for e in after if isinstance(e.event, CellFinished)]
    if moment == "before the start":
        assert len(ends) == 1
        assert back.about(frozen) == []
        return
    committed = code != "wait"
    assert ends[-1].status == ("ok" if committed else "lost")
    assert (ends[-1].head is not None) == committed
    if moment == "before the end" or not committed:
        assert ends[-1].failure == (None if committed else "CellLost")
        assert not ends[-1].outputs.is_complete
        (reply,) = [m for m in back.about(frozen) if m.msg_type == "execute_reply"]
        assert reply.content["status"] == ("ok" if committed else "error")
        assert told(back, frozen)[-1] == "idle"
        text = "may be missing" if committed else "as after cell [1]"
        assert text in json.dumps([m.content for m in back.about(frozen)])


async def dies_at(world: World, client: Client, code: str, name: str) -> str:
    """Run a cell in a gateway that gets no further than the PUT of an object; return its msg_id."""
    reached = asyncio.Event()
    put = world.store.put

    async def stuck(bucket: str, key: str, body: bytes, **conditions: Any) -> str:
        if key.endswith(name):
            reached.set()
            await asyncio.Event().wait()
        return await put(bucket, key, body, **conditions)

    world.store.put = stuck  # type: ignore[method-assign]
    msg_id = client.execute(code)
    if code == "wait" and not name.startswith("00000003"):
        await world.function.began.wait()
    elif name.startswith("00000009"):
        await client.done(msg_id)
        await world.quiet()
    else:
        await reached.wait()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await world.quiet()
    world.store.put = put  # type: ignore[method-assign]
    return msg_id


async def test_a_session_that_comes_back_gets_what_it_missed_once_and_in_order(
    world: World,
) -> None:
    client = await world.client(session="s1")
    other = world.attached(client.kernel, "s2")
    first = client.execute("wait")
    await world.function.began.wait()
    queued = [client.execute(f"print {n}") for n in "abc"]
    empty = client.execute("")
    client.kernel.detach(client.take)
    world.function.release.set()
    await other.done(empty)
    await world.quiet()

    client.kernel.attach(client.take, "s1")
    await world.quiet()

    for msg_id in (first, *queued, empty):
        seen = [m.header["msg_id"] for m in client.about(msg_id)]
        assert len(seen) == len(set(seen))
        assert told(client, msg_id)[-2:] == ["ok", "idle"]
        shared = [m.header["msg_id"] for m in other.about(msg_id)]
        assert [i for i in seen if i in shared] == shared
    assert [told(client, q)[1] for q in queued] == ["a\n", "b\n", "c\n"]
    live = await client.run("print live")
    assert len([m for m in live if m.msg_type == "stream"]) == 1


async def test_a_session_that_comes_back_in_the_middle_goes_on_live(world: World) -> None:
    client = await world.client(session="s1")
    running = client.execute("wait")
    await world.function.began.wait()
    client.kernel.detach(client.take)
    client.kernel.attach(client.take, "s1")
    await world.turns()
    world.function.release.set()
    await client.done(running)

    assert told(client, running) == ["busy", "ok", "idle"]


async def test_a_request_that_was_turned_away_meanwhile_is_answered(world: World) -> None:
    client = await world.client(session="s1")
    client.execute("wait")
    await world.function.began.wait()
    waiting = client.execute("print x")
    client.kernel.detach(client.take)
    await client.kernel.restart()

    client.kernel.attach(client.take, "s1")
    await world.quiet()

    assert told(client, waiting) == ["busy", "aborted", "idle"]


async def test_a_new_session_gets_the_past_only_where_it_asks(world: World) -> None:
    client = await world.client(session="s1")
    ids = [client.execute(f"print {n}") for n in "abc"]
    await client.done(ids[-1])
    running = client.execute("wait")
    await world.function.began.wait()

    silent = world.attached(client.kernel, "s2")
    last = world.attached(client.kernel, "s3", Replay(last_count=2))
    since = world.attached(client.kernel, "s4", Replay(since=ids[0]))
    everything = world.attached(client.kernel, None, Replay())
    await world.turns()

    def cells(client: Client) -> list[str]:
        inputs = [m for m in client.messages if m.msg_type == "execute_input"]
        return [m.parent_header["msg_id"] for m in inputs]

    assert silent.messages == []
    assert cells(last) == [*ids[1:], running]
    assert cells(since) == [*ids[1:], running]
    assert cells(everything) == [*ids, running]
    assert told(everything, ids[0]) == ["busy", "a\n", "ok", "idle"]
    world.function.release.set()
    await last.done(running)
    # The reply goes to the session that asked.
    assert told(last, running) == ["busy", "idle"]


async def test_the_past_that_cannot_be_read_is_said_to_be_missing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await world.client(session="s1")
    client.kernel.detach(client.take)
    msg_id = client.execute("print a")
    await world.quiet()

    async def unreachable(bucket: str, key: str) -> None:
        raise StorageError("S3 did not answer")

    monkeypatch.setattr(world.store, "get", unreachable)
    client.kernel.attach(client.take, "s1")
    await world.quiet()

    assert "cannot be read now: S3 did not answer" in told(client, msg_id)[-1]


async def test_what_is_kept_of_a_cell_is_bounded(world: World) -> None:
    client = await world.client()
    msg_id = client.execute("too-many-lines")
    await client.done(msg_id)
    await world.quiet()

    (cell,) = await past_cells(client.kernel.journal, last_count=5)

    assert cell.finished is not None
    kept, dropped = cell.finished.outputs.count, cell.finished.outputs.dropped_count
    assert dropped > 0
    published = [m for m in client.about(msg_id) if m.channel == "iopub"]
    assert kept + dropped == len(published)
    late = world.attached(client.kernel, "s9", Replay())
    await world.quiet()
    assert f"{dropped} more messages of this cell were not kept" in told(late, msg_id)[-1]
    size_bytes = sum(
        len(body) for (bucket, _), body in world.store.objects.items() if bucket == RECORDS
    )
    assert size_bytes < 2 * 16 * 1024 * 1024


async def test_a_kernel_id_that_is_used_again_goes_on_with_its_journal(world: World) -> None:
    client = await world.client()
    await client.kernel.restart()
    kernel, options = client.kernel, client.kernel.options
    await client.run("print a")
    await world.registry.shutdown(kernel.kernel_id)
    again = await world.registry.start(
        kernel.owner, spec_name="lambda-python", options=options, kernel_id=kernel.kernel_id
    )
    await world.attached(again).run("print b")
    await world.quiet()

    assert kinds(journal_of(world, again)) == [
        "KernelRestarted", "CellStarted", "CellFinished", "SessionClosed",
        "CellStarted", "CellFinished",
    ]  # fmt: skip


async def test_a_cell_that_waited_says_for_how_long(world: World) -> None:
    client = await world.client()
    running = client.execute("wait")
    waiting = client.execute("print x")
    await world.function.began.wait()
    loop = asyncio.get_running_loop()
    until_s = loop.time() + 0.05
    while loop.time() < until_s:  # noqa: ASYNC110
        await asyncio.sleep(0)
    world.function.release.set()
    await client.done(running)
    await client.done(waiting)
    await world.quiet()

    events = [entry.event for entry in journal_of(world, client.kernel)]

    queued = [e.gateway.queued_ms for e in events if isinstance(e, CellStarted) and e.gateway]
    assert queued[1] is not None
    assert queued[1] >= 50
