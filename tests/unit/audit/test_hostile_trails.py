"""Trails made to harm whoever verifies, prints or opens them."""

from __future__ import annotations

import base64
import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

from kernel_gateway.audit.chain import CellInterrupted
from kernel_gateway.audit.journal import Journal, UnreadableJournal
from kernel_gateway.audit.keeping import Keeping
from kernel_gateway.audit.key_folder import KeyFolder
from kernel_gateway.audit.notebook_reading import read_trail
from kernel_gateway.audit.verifying import OK, TAMPERED, Report, verify
from kernel_gateway.errors import ConfigError
from kernel_gateway.objects import MemoryObjectStore
from kernel_gateway.replay.rules import Rules
from kernel_gateway.web.trail_command import (
    is_file,
    shown,
    trail_in,
    trusted_keys,
    verified_file,
)
from tests.unit.audit.trails import EVENTS, KERNEL_ID, a_trail, message, ran, stream, trail_text

LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE svg [<!ENTITY a "ha">'
    + "".join(
        f'<!ENTITY {name} "{f"&{before};" * 10}">'
        for before, name in zip("abcdefghi", "bcdefghij", strict=True)
    )
    + ']><svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script><text>&j;</text></svg>'
)


def png_bomb() -> str:
    """Return an image of 60,000 by 60,000 pixels, base64."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = zlib.crc32(kind + data)
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)

    head = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 0, 0, 0, 0)
    body = zlib.compress(bytes(1_000_000))
    made = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")
    return base64.b64encode(made).decode()


HOSTILE_OUTPUTS = [
    stream("\x1b]0;pwned\x07\x1b]8;;http://evil\x07click\x1b]8;;\x07 \u202egnp.exe \x9b2J\x00"),
    message(
        "display_data",
        data={
            "text/html": "<script>alert(1)</script><img src=x onerror=alert(2)>",
            "application/javascript": "alert(3)",
            "image/svg+xml": LAUGHS,
            "image/png": png_bomb(),
            "text/markdown": "[x](javascript:alert(4))",
        },
        metadata={"trusted": True, "isolated": False},
    ),
]


@pytest.fixture
def keys(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path)


def report_of(notebook: Any, keys: KeyFolder) -> Report:
    return verify(read_trail(json.dumps(notebook).encode()), keys.keys())


async def test_hostile_outputs_are_carried_as_data_and_verify(
    tmp_path: Path, keys: KeyFolder
) -> None:
    trail = await a_trail(tmp_path, ran(1, "attack()", *HOSTILE_OUTPUTS))

    report = report_of(trail, keys)

    assert report.exit_code == OK, report.problems
    nbformat.validate(nbformat.from_dict(trail))
    # JupyterLab runs what a cell's metadata says is trusted, and signs nothing by itself.
    assert all("trusted" not in cell["metadata"] for cell in trail["cells"])
    assert "signature" not in trail["metadata"]
    assert trail["cells"][1]["outputs"][1]["data"]["image/svg+xml"] == LAUGHS
    assert len(json.dumps(trail)) < 100_000
    assert shown(report).isascii()


def payload_of(entry: Any) -> Any:
    return json.loads(base64.b64decode(entry["payload"]))


async def signed_anew(notebook: Any, keys: KeyFolder, change: Callable[[Any], object]) -> None:
    """Change the first cell's end and sign it with the gateway's own key: the worst case."""
    entries = notebook["cells"][1]["metadata"]["lambda_kernel"]["audit"]["entries"]
    data = payload_of(entries[1])
    change(data)
    entries[1] = json.loads(await keys.seal(json.dumps(data).encode()))


WRONG: dict[str, Callable[[Any], object]] = {
    "of a later schema": lambda data: data.update(schema=99),
    "of no schema": lambda data: data.pop("schema"),
    "of another type": lambda data: data.update(type="cell_exploded"),
    "with a field of its own": lambda data: data["event"].update(derived_from=KERNEL_ID),
    "with the id of no kernel": lambda data: data.update(kernel_id="../../etc/passwd"),
    "with a number below 1": lambda data: data.update(number=0),
    "with a number that is none": lambda data: data.update(number=True),
    "with deep content": lambda data: data["event"].update(status=[[[]]]),
}


@pytest.mark.parametrize("name", WRONG)
async def test_an_entry_that_is_none_is_named_although_it_is_signed(
    name: str, tmp_path: Path, keys: KeyFolder
) -> None:
    trail = await a_trail(tmp_path)
    await signed_anew(trail, keys, WRONG[name])

    report = report_of(trail, keys)

    assert report.exit_code == TAMPERED
    assert (report.problems[0].kind, report.problems[0].cell) == ("malformed", 2)


@pytest.mark.parametrize("path", ["../../secret", "/etc/hostname", "a" * 64 + "/../secret", ""])
async def test_a_path_in_an_entry_is_never_followed(
    path: str, tmp_path: Path, keys: KeyFolder
) -> None:
    trail = await a_trail(tmp_path)
    await signed_anew(trail, keys, lambda data: data["event"]["outputs"].update(blob=path))
    folder = tmp_path / "a" / "b" / "blobs" / "sha256"
    folder.mkdir(parents=True)
    (tmp_path / "a" / "b" / "secret").write_text("x")
    file = tmp_path / "a" / "b" / "trail.ipynb"
    file.write_text(json.dumps(trail))

    kinds = {problem.kind for problem in verified_file(file, trail_in(file), keys.keys()).problems}

    assert "blob-changed" not in kinds
    assert kinds == {"replaced"}


async def test_a_trail_that_says_it_is_derived_from_itself_is_what_its_entries_say(
    tmp_path: Path, keys: KeyFolder
) -> None:
    trail = await a_trail(tmp_path)
    own = trail["metadata"]["lambda_kernel"]["trail"]
    own["derived_from"] = own

    with pytest.raises(ValueError, match="Circular"):
        json.dumps(trail)
    own["derived_from"] = {"kernel_id": KERNEL_ID, "head": own["head"]}
    assert report_of(trail, keys).exit_code == OK


@pytest.mark.parametrize(
    "kind", ["code\nverified: 99 entries", "\x1b]0;x\x07\x1b[2Jcode", "\u202eedoc", "x" * 100_000]
)
async def test_what_a_file_says_of_itself_does_not_look_like_a_verdict(
    kind: str, tmp_path: Path, keys: KeyFolder
) -> None:
    trail = await a_trail(tmp_path)
    trail["cells"].insert(1, {"cell_type": kind, "metadata": {}, "source": ""})
    entries = trail["cells"][2]["metadata"]["lambda_kernel"]["audit"]["entries"]
    entries[0]["signatures"][0]["keyid"] = kind

    text = shown(report_of(trail, keys))

    lines = text.splitlines()
    assert lines[0].startswith("TAMPERED")
    assert not any(line.startswith("verified") for line in lines)
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert len(text) < 3_000


async def test_a_stored_output_that_was_exchanged_is_not_exported(
    tmp_path: Path, keys: KeyFolder
) -> None:
    store = MemoryObjectStore()
    keeping = Keeping(is_removable=True)
    journal = Journal(store, "r", KERNEL_ID, is_new=True, sealer=keys, keeping=keeping)
    for event in EVENTS:
        await journal.append(event, epoch=0, time="2026-01-01T00:00:00.000000Z")
    one, other, *_ = [name for name in store.objects if "/b/" in name[1]]
    store.objects[one], store.objects[other] = store.objects[other], store.objects[one]

    with pytest.raises(UnreadableJournal, match="is not what was recorded"):
        await trail_text(journal)


async def test_a_cell_with_any_number_of_interrupts_is_one_cell(
    tmp_path: Path, keys: KeyFolder
) -> None:
    start, end = EVENTS[0], EVENTS[1]
    interrupts = [CellInterrupted(request_id="r1")] * 500
    trail = await a_trail(tmp_path, [start, *interrupts, end])

    assert report_of(trail, keys).exit_code == OK
    assert len([cell for cell in trail["cells"] if cell["cell_type"] == "code"]) == 1
    entries = trail["cells"][1]["metadata"]["lambda_kernel"]["audit"]["entries"]
    entries[250], entries[251] = entries[251], entries[250]
    assert {each.kind for each in report_of(trail, keys).problems} >= {"reordered"}


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir, a_device])
def test_what_is_no_file_is_neither_waited_for_nor_read(
    make: Callable[[Path], object], tmp_path: Path
) -> None:
    path = tmp_path / "x.ipynb"
    make(path)
    with pytest.raises(ConfigError, match="there is no such file"):
        is_file(path)
    with pytest.raises(ConfigError, match="there is no such file"):
        trusted_keys(path, lambda: tmp_path)
    with pytest.raises(ConfigError, match="is no file"):
        Rules.load([path])


def test_a_path_that_is_too_long_is_said_in_short() -> None:
    with pytest.raises(ConfigError, match="too long") as refused:
        is_file(Path("a" * 5000))
    assert len(str(refused.value)) < 300


def test_a_file_of_keys_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="is larger than"):
        trusted_keys(path, lambda: tmp_path)
