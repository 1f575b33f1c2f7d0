"""A journal as a notebook: valid, complete, readable by others, with one cell in memory."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nbformat

from kernel_gateway.audit.key_folder import KeyFolder
from kernel_gateway.audit.notebook_reading import read_trail
from kernel_gateway.audit.trail import READ_AHEAD_COUNT, groups, trail_chunks
from kernel_gateway.audit.verifying import OK, UNPROVEN, verify
from kernel_gateway.objects import MemoryObjectStore, StoredObject
from tests.unit.audit.trails import (
    EVENTS,
    KERNEL_ID,
    a_journal,
    a_trail,
    message,
    ran,
    stream,
    trail_text,
)


def entries_of(notebook: dict[str, Any]) -> list[Any]:
    return [
        entry
        for cell in notebook["cells"]
        for entry in cell["metadata"]["lambda_kernel"]["audit"]["entries"]
    ]


async def test_a_trail_is_a_valid_notebook_with_every_entry(tmp_path: Path) -> None:
    trail = await a_trail(tmp_path)

    nbformat.validate(nbformat.from_dict(trail))
    assert (trail["nbformat"], trail["nbformat_minor"]) == (4, 5)
    assert trail["metadata"]["kernelspec"]["name"] == "lambda-python"
    assert trail["metadata"]["language_info"]["name"] == "python"
    assert len(entries_of(trail)) == len(EVENTS)
    code = [cell for cell in trail["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == [1, 2, 4, 5, 6]
    assert code[0]["outputs"][0]["text"] == "one\ntwo\n"
    assert set(code[0]["metadata"]["execution"]) == {
        "iopub.status.busy", "iopub.execute_input", "shell.execute_reply", "iopub.status.idle",
    }  # fmt: skip
    assert KERNEL_ID in trail["cells"][0]["source"]
    text = json.dumps([cell["source"] for cell in trail["cells"]])
    assert "comm message" in text
    assert "restarted" in text


async def test_a_large_output_is_shown_by_its_beginning(tmp_path: Path) -> None:
    trail = await a_trail(tmp_path)

    (large,) = [c for c in trail["cells"] if "600_000" in c["source"]]
    (output,) = large["outputs"]
    assert len(output["text"]) < 3000
    assert "blobs/sha256/" in output["text"]


async def test_a_trail_verifies_after_other_programs_wrote_it_anew(tmp_path: Path) -> None:
    trail = await a_trail(tmp_path)
    keys = KeyFolder(tmp_path).keys()
    jupyter = nbformat.writes(nbformat.from_dict(trail))
    # What JupyterLab does to numbers, and nbconvert to nothing else.
    lab = json.loads(jupyter, parse_int=lambda text: int(float(text)))
    for cell in lab["cells"]:
        cell["metadata"]["trusted"] = True
    lab_text = json.dumps(lab, ensure_ascii=False, indent=1).replace('"n": 1.0', '"n": 1')

    for text in (json.dumps(trail), jupyter, lab_text):
        report = verify(read_trail(text.encode()), keys)
        assert (report.problems, report.exit_code) == ([], OK)
        assert report.entry_count == len(EVENTS)


async def test_an_incomplete_cell_is_named_and_verifies(tmp_path: Path) -> None:
    trail = await a_trail(tmp_path, [*ran(1, "1"), ran(2, "hangs()")[0]])

    report = verify(read_trail(json.dumps(trail).encode()), KeyFolder(tmp_path).keys())
    assert report.exit_code == OK
    assert [cell.execution_count for cell in report.incomplete] == [2]
    assert "**Incomplete**" in trail["cells"][-1]["source"]
    assert "`[2]`" in trail["cells"][-1]["source"]


async def test_a_journal_without_signatures_is_exported_and_not_proven(tmp_path: Path) -> None:
    text = await trail_text(await a_journal(EVENTS, None))

    report = verify(read_trail(text.encode()), {})
    assert (report.problems, report.exit_code) == ([], UNPROVEN)
    assert report.unsigned_count == len(EVENTS)


async def test_what_no_notebook_can_hold_is_shown_as_it_can_and_verifies(tmp_path: Path) -> None:
    odd = [
        stream("\ud800 \x00 \x1b]0;x\x07 \u202e"),
        message("stream", name="other", text=["a", "b"]),
        message("display_data", metadata={"\ud800": float("inf")},
                data={"text/plain": 5, "application/json": [float("nan"), "\udc00"]}),
        message("error", ename=1, evalue=None, traceback="no list"),
        message("execute_result", data={"application/json": {"l": ["a", "b"]}}, metadata=None,
                execution_count=-1),
        message("display_data", data=None, metadata={}),
    ]  # fmt: skip
    trail = await a_trail(tmp_path, ran(1, "odd()", *odd))

    nbformat.validate(nbformat.from_dict(trail))
    text = json.dumps(trail, ensure_ascii=False, allow_nan=False)
    report = verify(read_trail(text.encode()), KeyFolder(tmp_path).keys())
    assert (report.problems, report.exit_code) == ([], OK)


async def test_an_empty_journal_is_a_notebook_without_cells(tmp_path: Path) -> None:
    trail = await a_trail(tmp_path, [])

    nbformat.validate(nbformat.from_dict(trail))
    assert trail["cells"] == []


async def test_an_export_holds_one_cell_in_memory(tmp_path: Path) -> None:
    class Sparse(MemoryObjectStore):
        """Stores one large blob for all cells."""

    journal = await a_journal(
        [event for n in range(1, 41) for event in ran(n, "big()", stream("y" * 4_000_000))],
        KeyFolder(tmp_path),
        store=Sparse(),
    )
    size = 0
    tracemalloc.start()
    async for chunk in trail_chunks(journal):
        size += len(chunk)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    # 160 MB of outputs in all.
    assert peak_bytes < 60_000_000
    assert size < 1_000_000


@dataclass
class ReadingStore(MemoryObjectStore):
    """A store whose answers come in an order of their own.

    Attributes:
        under_way: how many reads wait for their answer.
        most: how many did so at once.
    """

    under_way: int = 0
    most: int = 0

    async def get(self, bucket: str, key: str) -> StoredObject:
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        try:
            for _ in range(2 + int(key[-6]) * 7 % 10):
                await asyncio.sleep(0)
            return await super().get(bucket, key)
        finally:
            self.under_way -= 1


async def test_entries_are_read_some_at_once_and_stand_in_order() -> None:
    store = ReadingStore()
    events = [event for number in range(1, 31) for event in ran(number, f"cell {number}")]
    journal = await a_journal(events, None, store=store)

    cells = json.loads(await trail_text(journal))["cells"]

    assert [cell["execution_count"] for cell in cells[1:]] == list(range(1, 31))
    assert store.most == READ_AHEAD_COUNT
    assert store.under_way == 0


async def test_a_trail_that_nobody_reads_on_is_not_read_on() -> None:
    store = ReadingStore()
    journal = await a_journal([e for n in range(1, 31) for e in ran(n, "x")], None, store=store)
    entries = groups(journal, 60)
    await anext(entries)
    assert store.under_way > 0

    await entries.aclose()

    assert store.under_way == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}
