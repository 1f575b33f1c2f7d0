"""What can be done to a trail, and what verification says to it."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernel_gateway.audit.key_folder import KeyFolder
from kernel_gateway.audit.notebook_reading import NotATrail, read_trail
from kernel_gateway.audit.verifying import (
    OK,
    TAMPERED,
    UNPROVEN,
    Report,
    compare_with_journal,
    verify,
)
from tests.unit.audit.trails import EVENTS, OTHER_ID, a_trail, ran, stream

Notebook = dict[str, Any]


def code(notebook: Notebook) -> list[Any]:
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def entries(cell: Any) -> list[Any]:
    found: list[Any] = cell["metadata"]["lambda_kernel"]["audit"]["entries"]
    return found


def place(notebook: Notebook, number: int) -> int:
    """Return the place of a code cell, from 0, among all cells."""
    found: int = notebook["cells"].index(code(notebook)[number])
    return found


def payload(entry: Any) -> Any:
    return json.loads(base64.b64decode(entry["payload"]))


def forge(entry: Any, change: Callable[[Any], object]) -> None:
    data = payload(entry)
    change(data)
    entry["payload"] = base64.b64encode(json.dumps(data).encode()).decode()


def swapped(cells: list[Any], one: int, other: int) -> None:
    cells[one], cells[other] = cells[other], cells[one]


def forge_with_view(notebook: Notebook) -> None:
    first(notebook)["source"] = "x"
    forge(entries(first(notebook))[0], lambda data: data["event"]["content"].update(code="x"))


def strip(notebook: Notebook) -> None:
    for cell in notebook["cells"]:
        for entry in entries(cell):
            entry["signatures"] = []


def drop(notebook: Notebook, number: int) -> None:
    del notebook["cells"][place(notebook, number)]


def forget_evidence(notebook: Notebook) -> None:
    del code(notebook)[1]["metadata"]["lambda_kernel"]


def move_end(notebook: Notebook) -> None:
    """Hide a cell's output: its end stands in a Markdown cell after it."""
    at = place(notebook, 0)
    cell = notebook["cells"][at]
    cell["outputs"] = []
    moved = {"cell_type": "markdown", "id": "m", "source": "", "metadata": {
        "lambda_kernel": {"audit": {"entries": [entries(cell).pop()]}}}}  # fmt: skip
    notebook["cells"].insert(at + 1, moved)


def hide_cell(notebook: Notebook) -> None:
    """Hide a cell: its entries stand in the one before it."""
    first, second = code(notebook)[:2]
    entries(first).extend(entries(second))
    notebook["cells"].remove(second)


def set_in(target: Callable[[Notebook], Any], name: str, value: Any) -> Callable[[Notebook], None]:
    return lambda notebook: target(notebook).__setitem__(name, value)


def first(notebook: Notebook) -> Any:
    return code(notebook)[0]


def output(notebook: Notebook) -> Any:
    return first(notebook)["outputs"][0]


def preview(notebook: Notebook) -> Any:
    return code(notebook)[3]["outputs"][0]


def new_cell() -> Any:
    return {"cell_type": "code", "id": "new", "source": "evil()", "outputs": [],
            "execution_count": 9, "metadata": {}}  # fmt: skip


def replace_by_restart(notebook: Notebook) -> None:
    """Show the entry of a restart as a code cell with a source of one's own."""
    (restart,) = [c for c in notebook["cells"] if "restarted" in "".join(c["source"])]
    restart |= {"cell_type": "code", "source": "evil()", "outputs": [], "execution_count": 5}


DETECTED: dict[str, tuple[str, Callable[[Notebook], object]]] = {
    "source edited": ("source-changed", set_in(first, "source", "print('else')")),
    "source emptied": ("source-changed", set_in(first, "source", [])),
    "source is no text": ("source-changed", set_in(first, "source", {"a": 1})),
    "a space added to the source": (
        "source-changed", set_in(first, "source", "print('one')\nprint('two') ")),
    "code cell shown as Markdown": ("source-changed", set_in(first, "cell_type", "markdown")),
    "code cell shown as raw": ("source-changed", set_in(first, "cell_type", "raw")),
    "execution count edited": ("count-changed", set_in(first, "execution_count", 7)),
    "status of a cell edited": ("status-changed", lambda nb: code(nb)[2]["metadata"][
        "lambda_kernel"].update(status="ok")),
    "status is no text": ("status-changed", lambda nb: code(nb)[2]["metadata"][
        "lambda_kernel"].update(status=[])),
    "the file said to be of another kernel": ("foreign", lambda nb: nb["metadata"][
        "lambda_kernel"]["trail"].update(kernel_id=OTHER_ID)),
    "the file's own digest of its end edited": ("replaced", lambda nb: nb["metadata"][
        "lambda_kernel"]["trail"].update(head="0" * 64)),
    "output text edited": ("output-changed", set_in(output, "text", "three\n")),
    "output stream renamed": ("output-changed", set_in(output, "name", "stderr")),
    "output type edited": ("output-changed", set_in(output, "output_type", "display_data")),
    "a key added to an output": ("output-changed", set_in(output, "more", 1)),
    "number in an output edited": ("output-changed", lambda nb: code(nb)[1]["outputs"][0]["data"][
        "application/json"].update(n=1.5)),
    "representation removed": ("output-changed", lambda nb: code(nb)[1]["outputs"][0]["data"].pop(
        "text/plain")),
    "representation added": ("output-changed", lambda nb: code(nb)[1]["outputs"][1]["data"].update(
        {"image/svg+xml": "<svg/>"})),
    "list in an output joined": ("output-changed", lambda nb: code(nb)[1]["outputs"][0]["data"][
        "application/json"].update(l="a")),
    "traceback edited": ("output-changed", lambda nb: code(nb)[2]["outputs"][0].update(
        traceback=["12"])),
    "error removed": ("output-dropped", lambda nb: code(nb)[2]["outputs"].clear()),
    "output added": ("output-inserted", lambda nb: first(nb)["outputs"].append(
        {"output_type": "stream", "name": "stdout", "text": "x"})),
    "outputs swapped": ("output-changed", lambda nb: swapped(code(nb)[1]["outputs"], 0, 1)),
    "outputs are no list": ("output-changed", set_in(first, "outputs", {"a": 1})),
    "preview of a large output edited": ("output-changed", set_in(preview, "text", "y")),
    "reference to a blob edited": ("output-changed", lambda nb: preview(nb).update(
        text=preview(nb)["text"].replace("blobs/sha256/", "blobs/sha256/../../"))),
    "first cell dropped": ("dropped", lambda nb: drop(nb, 0)),
    "middle cell dropped": ("dropped", lambda nb: drop(nb, 2)),
    "comm message dropped": ("dropped", lambda nb: nb["cells"].pop(place(nb, 1) + 1)),
    "last cells dropped, as the file itself says": ("truncated", lambda nb: nb.update(
        cells=nb["cells"][:-2])),
    "end of a cell dropped": ("dropped", lambda nb: entries(first(nb)).pop()),
    "start of a cell dropped": ("dropped", lambda nb: entries(code(nb)[1]).pop(0)),
    "cells swapped": ("reordered", lambda nb: swapped(nb["cells"], place(nb, 0), place(nb, 1))),
    "entries of a cell swapped": ("reordered", lambda nb: swapped(entries(first(nb)), 0, 1)),
    "cell duplicated": ("duplicated", lambda nb: nb["cells"].insert(
        place(nb, 1), copy.deepcopy(code(nb)[1]))),
    "code cell inserted": ("inserted", lambda nb: nb["cells"].insert(2, new_cell())),
    "raw cell inserted": ("inserted", lambda nb: nb["cells"].insert(
        2, {"cell_type": "raw", "id": "r", "source": "x", "metadata": {}})),
    "code cell with the entry of a restart": ("inserted", replace_by_restart),
    "evidence of a cell removed": ("inserted", forget_evidence),
    "end of a cell moved away": ("moved", move_end),
    "cell hidden in another": ("moved", hide_cell),
    "payload edited": ("entry-changed", lambda nb: forge(
        entries(first(nb))[0], lambda data: data.update(time="2020"))),
    "payload and view edited": ("entry-changed", forge_with_view),
    "signature edited": ("entry-changed", lambda nb: entries(first(nb))[0]["signatures"][0].update(
        sig=base64.b64encode(bytes(64)).decode())),
    "signatures exchanged": ("entry-changed", lambda nb: entries(first(nb))[0].update(
        signatures=entries(code(nb)[1])[0]["signatures"])),
    "one signature removed": ("unsigned", lambda nb: entries(code(nb)[1])[0].update(signatures=[])),
    "key id edited": ("unknown-key", lambda nb: entries(first(nb))[0]["signatures"][0].update(
        keyid="0" * 64)),
    "payload is not base64": ("malformed", lambda nb: entries(first(nb))[0].update(payload="é!")),
    "payload type edited": ("malformed", lambda nb: entries(first(nb))[0].update(
        payloadType="text/plain")),
    "field added to an envelope": ("malformed", lambda nb: entries(first(nb))[0].update(more=1)),
    "envelope is no object": ("malformed", lambda nb: entries(first(nb)).append("x")),
}  # fmt: skip

UNDETECTABLE: dict[str, tuple[str, Callable[[Notebook], object]]] = {
    "last cells dropped, and the file's own count with them": (
        "a chain in one file cannot see its tail: compare with the journal",
        lambda nb: nb.update(
            cells=nb["cells"][:-2],
            metadata=nb["metadata"] | {"lambda_kernel": {"trail": {"schema": 1}}})),
    "Markdown inserted": (
        "notes of a reader are allowed; Markdown is no evidence, and the report says so",
        lambda nb: nb["cells"].insert(2, {"cell_type": "markdown", "id": "n", "source": "Fine!",
                                          "metadata": {}})),
    "cover sheet edited": (
        "Markdown is no evidence", lambda nb: nb["cells"][0].update(source="# All is well")),
    "kernelspec edited": (
        "what the notebook says of itself is no evidence; the entries name the environment",
        lambda nb: nb["metadata"].update(kernelspec={"name": "x", "display_name": "x"})),
    "times of a cell edited": (
        "they are copies for front ends; the entries hold the times",
        lambda nb: first(nb)["metadata"].update(execution={})),
    "1.0 became 1": (
        "JupyterLab does that itself",
        lambda nb: code(nb)[1]["outputs"][0]["data"]["application/json"].update(n=1)),
    "digits of a number beyond 2^53 edited": (
        "JupyterLab rounds such numbers itself; the entry holds the exact one",
        lambda nb: code(nb)[1]["outputs"][0]["data"]["application/json"].update(big=2**60 + 1)),
    "code or outputs of a cell folded": (
        "readers fold cells; what is folded is still there and proven",
        lambda nb: first(nb)["metadata"].update(
            jupyter={"source_hidden": True, "outputs_hidden": True}, collapsed=True)),
    "tags and ids of cells edited": (
        "they are the front end's; what the client sent is in the entries",
        lambda nb: first(nb).update(id="x", metadata=first(nb)["metadata"] | {"tags": ["x"]})),
    "whole file replaced by a genuine trail of another kernel": (
        "it is genuine, and the report names its kernel: compare that with the one you asked for",
        lambda nb: nb.update(copy.deepcopy(OTHERS))),
    "text split into lines": (
        "nbformat does that itself", set_in(output, "text", ["one\n", "two\n"])),
}  # fmt: skip


OTHERS: Notebook = {}
"""A trail of another kernel that the same key has signed."""


@pytest.fixture(scope="module")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


def report_of(notebook: Notebook, state_dir: Path) -> Report:
    return verify(read_trail(json.dumps(notebook).encode()), KeyFolder(state_dir).keys())


@pytest.mark.parametrize("name", DETECTED)
async def test_a_change_is_detected_and_named(name: str, state_dir: Path) -> None:
    kind, change = DETECTED[name]
    trail = await a_trail(state_dir)
    before = json.dumps(trail)
    assert report_of(trail, state_dir).exit_code == OK
    change(trail)
    assert json.dumps(trail) != before

    report = report_of(trail, state_dir)

    assert report.exit_code == TAMPERED
    assert kind in {problem.kind for problem in report.problems}


@pytest.mark.parametrize("name", UNDETECTABLE)
async def test_what_cannot_be_detected_is_known(name: str, state_dir: Path) -> None:
    OTHERS.update(await a_trail(state_dir, kernel_id=OTHER_ID))
    _, change = UNDETECTABLE[name]
    trail = await a_trail(state_dir)
    before = json.dumps(trail)
    change(trail)
    assert json.dumps(trail) != before

    assert report_of(trail, state_dir).exit_code == OK


async def test_the_first_bad_cell_is_named(state_dir: Path) -> None:
    trail = await a_trail(state_dir)
    code(trail)[1]["source"] = "other"
    code(trail)[3]["source"] = "other"

    report = report_of(trail, state_dir)

    assert (report.problems[0].kind, report.problems[0].cell) == (
        "source-changed", place(trail, 1) + 1,
    )  # fmt: skip


async def test_signatures_taken_from_all_entries_leave_nothing_proven(state_dir: Path) -> None:
    trail = await a_trail(state_dir)
    strip(trail)

    assert report_of(trail, state_dir).exit_code == UNPROVEN


async def test_a_trail_signed_by_somebody_else_is_refused(state_dir: Path, tmp_path: Path) -> None:
    forged = await a_trail(tmp_path)

    report = report_of(forged, state_dir)

    assert report.exit_code == TAMPERED
    assert {problem.kind for problem in report.problems} >= {"unknown-key"}


async def test_a_cell_of_another_kernel_is_foreign(state_dir: Path) -> None:
    trail, other = await a_trail(state_dir), await a_trail(state_dir, kernel_id=OTHER_ID)
    trail["cells"][place(trail, 1)] = code(other)[1]

    kinds = {problem.kind for problem in report_of(trail, state_dir).problems}

    assert "foreign" in kinds


async def test_a_cell_of_another_history_of_the_same_kernel_is_replaced(state_dir: Path) -> None:
    trail = await a_trail(state_dir)
    other = await a_trail(state_dir, [*ran(1, "else", stream("else")), *EVENTS[2:]])
    trail["cells"][place(trail, 0)] = code(other)[0]

    report = report_of(trail, state_dir)

    assert report.exit_code == TAMPERED
    assert [problem.kind for problem in report.problems] == ["replaced"]


async def test_a_tail_that_was_cut_off_is_seen_against_the_journal(state_dir: Path) -> None:
    whole, part = await a_trail(state_dir), await a_trail(state_dir, EVENTS[:4])
    head = report_of(whole, state_dir)
    for trail, number, digest, expected in (
        (part, head.head_number, head.head_digest, ["truncated"]),
        (whole, head.head_number, head.head_digest, []),
        (whole, head.head_number, "0" * 64, ["replaced"]),
        (whole, 4, "0" * 64, ["truncated-journal"]),
    ):
        report = report_of(trail, state_dir)
        compare_with_journal(report, number, digest)
        assert [problem.kind for problem in report.problems] == expected


HOSTILE = {
    "empty": b"",
    "not UTF-8": b'{"cells": "\xff"}',
    "cut off": b'{"cells": [{"cell_type": "code"',
    "no notebook": b"[1, 2]",
    "no cells": b'{"cells": 5, "nbformat": 4}',
    "an old format": b'{"cells": [], "nbformat": 3}',
    "nobody's": b'{"cells": [], "nbformat": 4, "metadata": {}}',
    "no cell": b'{"cells": [5], "nbformat": 4}',
    "nested": b'{"cells": ' + b"[" * 500_000,
    "a huge number": b'{"cells": [' + b"1" * 100_000 + b"]}",
    "a key twice": b'{"cells": [], "cells": [], "nbformat": 4}',
    "many values": b'{"cells": [' + b"0," * 8_000_001 + b"0]}",
    "many objects": b'{"cells": [' + b"{}," * 5_000_001 + b"0]}",
    "large in memory": "\U0001f600".encode() + b" " * (128 << 20),
    "large": b" " * ((256 << 20) + 1),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_trail_is_refused_with_a_reason(name: str) -> None:
    with pytest.raises(NotATrail) as refused:
        read_trail(HOSTILE[name])

    assert 10 < len(str(refused.value)) < 200
    assert str(refused.value).isprintable()


async def test_deep_json_in_an_output_is_a_changed_output(state_dir: Path) -> None:
    trail = await a_trail(state_dir)
    deep: Any = []
    for _ in range(800):
        deep = [deep]
    output(trail)["text"] = deep

    assert report_of(trail, state_dir).problems[0].kind == "output-changed"
