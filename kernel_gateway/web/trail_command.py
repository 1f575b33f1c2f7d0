"""What ``kernel-gateway trail`` and ``kernel-gateway keys`` do: audit trails and their keys."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from securesystemslib.signer import Key

from kernel_gateway.audit.chain import Entry
from kernel_gateway.audit.envelopes import Envelope
from kernel_gateway.audit.facts import DerivedFrom
from kernel_gateway.audit.key_folder import KeyFolder
from kernel_gateway.audit.notebook_reading import (
    MAX_BYTES,
    NotATrail,
    TrailCell,
    TrailFile,
    read_trail,
)
from kernel_gateway.audit.references import blobs_of
from kernel_gateway.audit.signing import exported, imported
from kernel_gateway.audit.verifying import (
    TAMPERED,
    UNPROVEN,
    Report,
    compare_with_journal,
    verify,
)
from kernel_gateway.audit.view import BLOB_FOLDER, blob_reference
from kernel_gateway.client.endpoint import ApiError, Endpoint
from kernel_gateway.errors import BadRequest, ConfigError
from kernel_gateway.terminal import harmless_lines
from kernel_gateway.web.rest_client import RestClient
from kernel_gateway.whole_files import check_replaceable, replacing
from lambda_kernel.contract.schema import InvalidField, encode

LONG_S = 3600.0
SHOWN_PROBLEMS = 20
MAX_KEYS_BYTES = 1 << 20
DIGEST = re.compile("[0-9a-f]{64}")


def prepared_export(options: argparse.Namespace) -> Callable[[Endpoint], str]:
    """Return what ``trail export`` does on a gateway, and then says.

    Raises:
        BadRequest: options do not go together.
        ConfigError: the file cannot be written.
    """
    kernel_id: str = options.kernel
    if options.format == "ipynb":
        if options.sign:
            raise BadRequest("--sign: a notebook holds signed entries; it is for --format intoto")
        output = options.output or Path(f"{kernel_id}.ipynb")
        check_replaceable(output)
        return partial(export, kernel_id=kernel_id, output=output, with_blobs=options.with_blobs)
    if options.with_blobs:
        raise BadRequest("--with-blobs: statements name outputs by digest; it is for notebooks")
    output = options.output or Path(f"{kernel_id}.intoto.jsonl")
    check_replaceable(output)
    return partial(export_statements, kernel_id=kernel_id, output=output, is_signed=options.sign)


def export_statements(endpoint: Endpoint, kernel_id: str, output: Path, *, is_signed: bool) -> str:
    """Write what a kernel's trail states of each cell to a file, and return what to say.

    Raises:
        ApiError: the gateway refused, or they ended early.
        ConfigError: the file cannot be written.
    """
    client = RestClient(endpoint, timeout_s=LONG_S)
    signed = "?signed=true" if is_signed else ""
    _download(client, f"{_trail(kernel_id)}.intoto.jsonl{signed}", output)
    return f"wrote {output}"


def export(endpoint: Endpoint, kernel_id: str, output: Path, *, with_blobs: bool) -> str:
    """Write a kernel's trail to a file, and return what to say.

    Args:
        endpoint: the gateway.
        kernel_id: whose trail.
        output: the file.
        with_blobs: also write what the notebook refers to, beside it.

    Raises:
        ApiError: the gateway refused, or the trail ended early.
        ConfigError: the file cannot be written.
    """
    client = RestClient(endpoint, timeout_s=LONG_S)
    try:
        _download(client, f"{_trail(kernel_id)}.ipynb", output)
        try:
            read = read_trail(bounded(output))
        except NotATrail as problem:
            if with_blobs:
                raise
            return f"wrote {output}, which cannot be verified as a file: it {problem}"
        count = _fetch_blobs(client, kernel_id, read, output.parent) if with_blobs else 0
    except OSError as problem:
        raise ConfigError(f"{output}: {problem.strerror}") from problem
    more = f", and {count} blobs below {BLOB_FOLDER}" if with_blobs else ""
    absent = {digest for cell in read.cells for digest in cell.absent}
    lost = f"\ncontent-missing: {len(absent)} blobs that entries name are not stored"
    return f"wrote {output}{more}{lost if absent else ''}"


def remove_content(
    endpoint: Endpoint, kernel_id: str, *, execution_count: int | None, reason: str
) -> str:
    """Have a gateway delete what cells have said, and return what to say (raises ApiError).

    Args:
        endpoint: the gateway; its token must be an admin's.
        kernel_id: whose trail.
        execution_count: of the one cell; None = of all of them.
        reason: stands in the trail.
    """
    answer = RestClient(endpoint, timeout_s=LONG_S).call(
        "POST",
        f"{_trail(kernel_id)}/content-removals",
        {"reason": reason, "cell": execution_count},
    )
    lines = [f"removed what was said by {_cells(answer['cells'])}: the trail says so"]
    if answer["kept_in_entries"]:
        lines.append(
            f"NOT removed, as it stands in signed entries: {_cells(answer['kept_in_entries'])}"
        )
    return "\n".join(lines)


def is_file(path: Path) -> bool:
    """Return whether a file is meant, not a kernel's id.

    Raises:
        ConfigError: a file is meant, and there is none.
    """
    try:
        if path.is_file():
            return True
    except OSError as problem:
        raise ConfigError(f"{str(path)[:200]}: {problem.strerror}") from problem
    if path.suffix == ".ipynb" or path.exists():
        raise ConfigError(f"{path}: there is no such file")
    return False


def trail_in(path: Path) -> TrailFile:
    """Return the trail in a file, of which nothing is believed yet (raises ConfigError, NotATrail).

    Apart from its verification, so that what is no trail is said before keys are missed.
    """
    try:
        return read_trail(bounded(path))
    except OSError as problem:
        raise ConfigError(f"{path}: {problem.strerror}") from problem
    except NotATrail as problem:
        raise NotATrail(f"{path}: {problem}") from problem


def verified_file(path: Path, trail: TrailFile, keys: Mapping[str, Key]) -> Report:
    """Return what the trail in a file, and blobs beside it, prove (raises ConfigError)."""
    report = verify(trail, keys)
    try:
        _check_blobs(path.parent, report)
    except OSError as problem:
        raise ConfigError(f"{path}: {problem.strerror}") from problem
    return report


def against_journal(endpoint: Endpoint, report: Report, kernel_id: str | None) -> None:
    """Compare the end of a trail with the gateway's journal (raises ApiError)."""
    if kernel_id is None:
        return
    head = RestClient(endpoint).call("GET", f"{_trail(kernel_id)}/head")
    compare_with_journal(report, head["number"], head["digest"])


def trusted_keys(keys_file: Path | None, state_dir: Callable[[], Path]) -> Mapping[str, Key]:
    """Return the keys to verify with: those of a file, else the state directory's own.

    Raises:
        ConfigError: there are none, or they cannot be read.
    """
    return keys_of(state_dir()) if keys_file is None else keys_in(keys_file)


def keys_in(file: Path) -> Mapping[str, Key]:
    """Return the keys that `keys export` has printed into a file.

    Raises:
        ConfigError: there are none, or they cannot be read.
    """
    found = imported(_key_text(file), str(file))
    if not found:
        raise ConfigError(f"--keys {file}: there is no key in it")
    return found


def keys_of(state_dir: Path) -> Mapping[str, Key]:
    """Return the keys of the gateway of a state directory (raises ConfigError as `keys_in`)."""
    found = KeyFolder(state_dir).keys()
    if not found:
        raise ConfigError(f"{state_dir}/keys holds no key; give the gateway's with --keys FILE")
    return found


def _key_text(file: Path) -> str:
    try:
        if not file.is_file():
            # A FIFO that nobody writes to would be waited for without end.
            raise ConfigError(f"--keys {file}: there is no such file")
        with file.open("rb") as opened:
            data = opened.read(MAX_KEYS_BYTES + 1)
        if len(data) > MAX_KEYS_BYTES:
            raise ConfigError(f"--keys {file}: is larger than the {MAX_KEYS_BYTES:,} that are read")
        return data.decode("utf-8")
    except (OSError, ValueError) as problem:
        raise ConfigError(f"--keys {file}: {problem}") from problem


def shown(report: Report) -> str:
    """Return a report for people."""
    lines = []
    if report.problems:
        first = report.problems[0]
        lines.append(f"TAMPERED: {_where(first.cell)}: {first.kind}: {first.text}")
        lines += [
            f"  also {_where(more.cell)}: {more.kind}: {more.text}"
            for more in report.problems[1:SHOWN_PROBLEMS]
        ]
        left = len(report.problems) - SHOWN_PROBLEMS
        lines += [f"  and {left} more"] if left > 0 else []
    else:
        verdict = "not proven" if report.exit_code == UNPROVEN else "verified"
        lines.append(
            f"{verdict}: {report.entry_count} entries of kernel {report.kernel_id}, signed by "
            f"{len(report.key_ids)} of your keys"
        )
    if report.unsigned_count:
        lines.append(f"{report.unsigned_count} entries are not signed: anybody can have made them")
    lines += report.unproven[:SHOWN_PROBLEMS]
    lines += [
        f"incomplete: how the cell [{each.execution_count}] ended is not recorded"
        for each in report.incomplete
    ]
    lines += [f"content-removed: {each}" for each in report.removed[:SHOWN_PROBLEMS]]
    lines += [] if report.derived_from is None else [_origin(report.derived_from)]
    lines.append("Markdown cells are no evidence")
    if not report.is_against_journal and report.exit_code != TAMPERED:
        lines.append(
            f"the file alone cannot show that entries after number {report.head_number} were cut "
            "off; --journal compares it with the gateway's journal"
        )
    return harmless_lines(lines)


def as_json(report: Report) -> str:
    """Return a report for programs."""
    data = {
        "verdict": {0: "verified", UNPROVEN: "unproven", TAMPERED: "tampered"}[report.exit_code],
        "kernel_id": report.kernel_id,
        "entries": report.entry_count,
        "head": {"number": report.head_number, "digest": report.head_digest},
        "keys": sorted(report.key_ids),
        "unsigned": report.unsigned_count,
        "incomplete": [each.request_id for each in report.incomplete],
        "content_removed": report.removed,
        "unproven": report.unproven,
        "problems": [
            {"kind": each.kind, "cell": each.cell, "text": each.text} for each in report.problems
        ],
        "against_journal": report.is_against_journal,
        "derived_from": encode(report.derived_from),
    }
    return json.dumps(data, indent=2)


def keys_text(state_dir: Path, *, rotate: bool) -> str:
    """Return the public keys of a gateway as JSON, or make a new key and return what to say.

    Raises:
        ConfigError: the folder cannot be used, or holds no key.
    """
    folder = KeyFolder(state_dir)
    if not rotate:
        return exported(list(keys_of(state_dir).values()))
    try:
        made = folder.rotate()
    except OSError as problem:
        raise ConfigError(f"{state_dir}: {problem.strerror}") from problem
    return f"entries are signed with {made.keyid} from now on; give auditors `keys export` again"


def _download(client: RestClient, path: str, output: Path) -> str:
    """Write what the gateway answers to a file, all at once, and return its SHA-256."""
    digest = hashlib.sha256()
    with replacing(output) as file:
        client.download(path, lambda block: _take(block, file, output, digest))
    return digest.hexdigest()


def _take(block: bytes, file: BinaryIO, output: Path, digest: hashlib._Hash) -> None:
    try:
        file.write(block)
    except OSError as problem:
        # Not to be taken for a problem of the connection.
        raise ConfigError(f"{output}: cannot be written: {problem.strerror}") from problem
    digest.update(block)


def _fetch_blobs(client: RestClient, kernel_id: str, trail: TrailFile, folder: Path) -> int:
    (folder / BLOB_FOLDER).mkdir(parents=True, exist_ok=True)
    named = _blobs(cell for cell in trail.cells if not cell.is_missing)
    absent = {digest for cell in trail.cells for digest in cell.absent}
    entries = {digest: number for number, digest in named if digest not in absent}
    for digest, number in entries.items():
        path = folder / blob_reference(digest)
        if not path.exists() and (
            _download(client, f"{_trail(kernel_id)}/blobs/{number}?digest={digest}", path) != digest
        ):
            path.unlink()
            raise ApiError(f"entry {number}: what the gateway sent is not what was recorded")
    return len(entries)


def _check_blobs(folder: Path, report: Report) -> None:
    """Note blobs beside a trail that are not what was recorded; they need not be there."""
    for digest, number in report.blobs.items():
        path = folder / blob_reference(digest)
        # A path is made of it.
        if DIGEST.fullmatch(digest) and path.is_file():
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
            if found != digest:
                text = f"{blob_reference(digest)} is not what entry {number} names"
                report.add("blob-changed", None, text)


def _blobs(cells: Iterable[TrailCell]) -> list[tuple[int, str]]:
    found = []
    for cell in cells:
        for data in cell.envelopes or ():
            try:
                entry = Entry.from_bytes(Envelope.from_json(data).payload_bytes)
            except InvalidField:
                continue
            # A path is made of it.
            found += [(entry.number, d) for d in blobs_of(entry.event) if DIGEST.fullmatch(d)]
    return found


def bounded(path: Path) -> bytes:
    """Return what a file holds (raises NotATrail: too much; OSError)."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size > MAX_BYTES:
            raise NotATrail(f"is larger than the {MAX_BYTES:,} bytes that are read")
        return file.read(MAX_BYTES + 1)


def _trail(kernel_id: str) -> str:
    return f"/api/kernels/{quote(kernel_id, safe='')}/trail"


def _origin(derived: DerivedFrom) -> str:
    said = f"a replay of kernel {derived.kernel_id} up to entry {derived.number}"
    if derived.is_proven:
        return f"{said}, which the gateway that replayed it had in its journal"
    return f"{said}: that is the word of who sent it to the gateway, and not proven"


def _cells(counts: Sequence[int]) -> str:
    return ", ".join(f"[{count}]" for count in counts)


def _where(cell: int | None) -> str:
    return "the end" if cell is None else f"cell {cell} of the file"
