"""What cells have said is removed, and the rest is proven as before."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kernel_gateway.audit import removal
from kernel_gateway.audit.chain import CellFinished, KernelRestarted, RecordedMessage
from kernel_gateway.audit.envelopes import payload_of
from kernel_gateway.audit.journal import ContentMissing, Journal
from kernel_gateway.audit.keeping import Keeping
from kernel_gateway.audit.key_folder import KeyFolder
from kernel_gateway.audit.later_events import CellsUnrecorded, ContentRemoved, Unrecorded
from kernel_gateway.audit.notebook_reading import read_trail
from kernel_gateway.audit.shelf import TrailShelf
from kernel_gateway.audit.trail import statements
from kernel_gateway.audit.trail_index import TrailIndex
from kernel_gateway.audit.trail_query import TrailQuery
from kernel_gateway.audit.verifying import OK, TAMPERED, UNPROVEN, Report, verify
from kernel_gateway.audit.view import output_digest
from kernel_gateway.errors import BadRequest, Conflict, NotFound
from kernel_gateway.objects import MemoryObjectStore
from kernel_gateway.retention import ObjectLock
from lambda_kernel.contract import keys
from tests.unit.audit.trails import EVENTS, KERNEL_ID, a_journal, ran, stream, trail_text

TIME = "2026-01-02T00:00:00.000000Z"
SAID = "the patient is called Meyer"
REMOVABLE = Keeping(is_removable=True)


async def removable(
    state_dir: Path, events: Any = None, keeping: Keeping = REMOVABLE
) -> tuple[MemoryObjectStore, Journal]:
    store = MemoryObjectStore()
    journal = Journal(
        store, "records", KERNEL_ID, is_new=True, sealer=KeyFolder(state_dir), keeping=keeping
    )
    for event in events or [
        *ran(1, "print(name)", stream(SAID)),
        *ran(2, "print(2)", stream("2\n")),
        *ran(3, "pass"),
    ]:
        await journal.append(event, epoch=0, time=TIME)
    return store, journal


async def remove(journal: Journal, count: int | None = None) -> removal.Removable:
    found = await removal.find(journal, execution_count=count)
    event = ContentRemoved(
        blobs=tuple(sorted(set(found.blobs.values()))),
        entries=tuple(sorted(found.blobs)),
        reason="GDPR, Art. 17",
        user="root",
    )
    await removal.remove(
        journal, found, event if found.is_news else None, epoch=journal.epoch, time=TIME
    )
    return found


async def report_of(journal: Journal, state_dir: Path) -> Report:
    text = await trail_text(journal)
    return verify(read_trail(text.encode()), KeyFolder(state_dir).keys())


async def test_a_session_whose_outputs_stand_apart_verifies(tmp_path: Path) -> None:
    _, journal = await removable(tmp_path, EVENTS)

    report = await report_of(journal, tmp_path)

    assert report.exit_code == OK, report.problems
    end = await journal.end_of_cell(2)
    assert end.reply is not None
    assert [each.content["text"] for each in end.outputs.messages] == ["one\ntwo\n"]


async def test_removed_content_is_gone_and_the_trail_says_so(tmp_path: Path) -> None:
    store, journal = await removable(tmp_path)
    assert any(SAID.encode() in body for body in store.objects.values())

    found = await remove(journal, 1)

    assert (found.execution_counts, found.inline) == ([1], [])
    assert not any(SAID.encode() in body for body in store.objects.values())
    report = await report_of(journal, tmp_path)
    assert report.exit_code == OK, report.problems
    (text,) = report.removed
    assert "[1]" in text
    assert "root removed the outputs" in text
    assert "GDPR, Art. 17" in text
    notebook = await trail_text(journal)
    assert SAID not in notebook
    assert "2\\n" in notebook
    with pytest.raises(ContentMissing):
        await journal.entry(2)
    shown = (await journal.end_of_cell(2)).outputs.messages
    assert "was removed from the journal" in shown[0].content["text"]


async def test_the_rendered_notebook_does_not_keep_what_was_removed(tmp_path: Path) -> None:
    store, journal = await removable(tmp_path)
    shelf = TrailShelf(store, "records")
    await shelf.render(KERNEL_ID)
    key = ("records", keys.rendered_trail_key(KERNEL_ID))
    assert SAID.encode() in store.objects[key]

    async with shelf.without(KERNEL_ID):
        await remove(journal)

    assert key not in store.objects
    await shelf.close()
    assert b"removed the outputs" in store.objects[key]
    assert not any(SAID.encode() in body for body in store.objects.values())


async def test_neither_the_index_nor_statements_keep_what_was_removed(tmp_path: Path) -> None:
    store, journal = await removable(tmp_path)
    index = TrailIndex(store, "records")
    before = await index.search(TrailQuery(), lambda start: True)

    await remove(journal)

    made = b"".join([line async for line in statements(journal, "workspaces")])
    after = await index.search(TrailQuery(), lambda start: True)
    assert before.cells == after.cells != ()
    assert made.count(b"invocationId") == len(after.cells)
    shown = {"output_type": "stream", "name": "stdout", "text": SAID}
    for text in (made, *store.objects.values()):
        assert SAID.encode() not in text
        assert output_digest(shown).encode() not in text


async def test_what_was_said_cannot_be_guessed_from_what_is_left(tmp_path: Path) -> None:
    store, journal = await removable(tmp_path)
    shown = {"output_type": "stream", "name": "stdout", "text": SAID}

    await remove(journal, 1)

    left = b"".join(payloads(store))
    assert output_digest(shown).encode() not in left
    assert b'"is_salted":true' in left


def payloads(store: MemoryObjectStore) -> list[bytes]:
    return [payload_of(body) for (_, key), body in store.objects.items() if "/j/" in key]


async def test_all_of_a_kernel_is_removed_and_removing_again_changes_nothing(
    tmp_path: Path,
) -> None:
    store, journal = await removable(tmp_path)

    found = await remove(journal)
    count = await journal.open()
    again = await remove(journal)

    assert sorted(found.execution_counts) == [1, 2, 3]
    assert [key for _, key in store.objects if "/b/" in key] == []
    assert not again.is_news
    assert await journal.open() == count
    assert (await report_of(journal, tmp_path)).exit_code == OK


async def test_a_blob_that_is_missing_without_such_an_entry_is_named(tmp_path: Path) -> None:
    store, journal = await removable(tmp_path)
    end = (await journal.signed(2)).entry.event
    assert isinstance(end, CellFinished)
    assert end.outputs.blob is not None
    await store.delete("records", keys.audit_blob_key(KERNEL_ID, end.outputs.blob))

    report = await report_of(journal, tmp_path)

    assert report.exit_code == TAMPERED
    assert [(each.kind, each.cell) for each in report.problems] == [("content-missing", 2)]


async def test_a_notebook_that_only_claims_a_removal_is_tampered_with(tmp_path: Path) -> None:
    _, journal = await removable(tmp_path)
    notebook = json.loads(await trail_text(journal))
    cell = notebook["cells"][1]
    cell["outputs"] = []
    cell["metadata"]["lambda_kernel"]["audit"]["content"] = "missing"

    report = verify(read_trail(json.dumps(notebook).encode()), KeyFolder(tmp_path).keys())

    assert [each.kind for each in report.problems] == ["content-missing"]


@pytest.mark.parametrize("salt", ["", "0" * 64, 7, "x"])
async def test_a_salt_that_was_changed_leaves_changed_outputs(tmp_path: Path, salt: Any) -> None:
    _, journal = await removable(tmp_path)
    notebook = json.loads(await trail_text(journal))
    notebook["cells"][1]["metadata"]["lambda_kernel"]["audit"]["salt"] = salt

    report = verify(read_trail(json.dumps(notebook).encode()), KeyFolder(tmp_path).keys())

    assert [(each.kind, each.cell) for each in report.problems] == [("output-changed", 2)]


async def test_what_stands_in_signed_entries_is_refused(tmp_path: Path) -> None:
    journal = await a_journal(ran(1, "1", stream("x")), KeyFolder(tmp_path))

    with pytest.raises(Conflict, match=r"audit\.removable"):
        await remove(journal)


async def test_a_large_output_can_be_removed_in_any_case(tmp_path: Path) -> None:
    journal = await a_journal(EVENTS, KeyFolder(tmp_path))

    found = await remove(journal)

    assert found.execution_counts == [5]
    assert sorted(found.inline) == [1, 2, 3, 4, 6]
    assert (await report_of(journal, tmp_path)).exit_code == OK


async def test_a_cell_that_is_not_there_or_there_twice_is_refused(tmp_path: Path) -> None:
    events = [*ran(1, "1", stream("x")), KernelRestarted(), *ran(1, "2", stream("y"))]
    _, journal = await removable(tmp_path, events)

    with pytest.raises(NotFound, match=r"no cell \[9\]"):
        await remove(journal, 9)
    with pytest.raises(BadRequest, match=r"2 cells were \[1\]"):
        await remove(journal, 1)


async def test_what_object_lock_holds_is_refused_before_anything_is_said(tmp_path: Path) -> None:
    lock = ObjectLock(mode="GOVERNANCE", age=timedelta(days=1))
    store, journal = await removable(tmp_path, keeping=Keeping(is_removable=True, lock=lock))
    before = dict(store.objects)

    with pytest.raises(Conflict, match="Object Lock"):
        await remove(journal)

    assert store.objects == before
    assert set(store.locked) == set(before)


async def test_the_same_output_of_two_kernels_is_two_objects(tmp_path: Path) -> None:
    store = MemoryObjectStore()
    said: RecordedMessage = stream("x" * 600_000)
    one = await a_journal(ran(1, "1", said), None, store=store)
    other_id = KERNEL_ID.replace("7", "9")
    other = await a_journal(ran(1, "1", said), None, store=store, kernel_id=other_id)

    await remove(one)

    assert (await other.end_of_cell(2)).outputs.messages == (said,)


async def test_cells_that_ran_unrecorded_leave_a_trail_that_is_not_proven(tmp_path: Path) -> None:
    cell = Unrecorded(request_id="r", execution_count=2, time=TIME)
    gap = CellsUnrecorded(count=3, cells=(cell,), reason="S3 did not answer")
    _, journal = await removable(tmp_path, [*ran(1, "1"), gap, *ran(5, "5")])

    report = await report_of(journal, tmp_path)

    assert report.exit_code == UNPROVEN
    assert "3 cells ran here that are not recorded: [2] and 2 more" in report.unproven[0]
