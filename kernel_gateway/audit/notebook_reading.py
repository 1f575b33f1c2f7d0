"""A notebook that may be anybody's, read as a trail: bounded, strict, with errors that say why."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernel_gateway.errors import BadRequest

MAX_BYTES = 256 << 20
MAX_TEXT_BYTES = 512 << 20
"""What all of the text may take in memory: one character can make each take two bytes or four."""
MAX_VALUES = 8_000_000
"""Each takes up to 100 bytes in memory."""
MISSING = "missing"
"""What a cell says of its outputs where they were not there when the trail was made."""
_SALT = re.compile(r"[0-9a-f]{64}")
_WIDE, _NOT_LATIN = re.compile(rb"[\xf0-\xff]"), re.compile(rb"[\xc4-\xef]")
"""First bytes of characters from U+10000 on, and from U+0100 on."""


class NotATrail(BadRequest):
    """The file cannot be read as a trail; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailCell:
    """One cell of a notebook.

    Attributes:
        number: its place, from 1.
        kind: ``code``, ``markdown`` or whatever stands there.
        data: the cell.
        envelopes: what it holds as evidence, unchecked; None = it claims none.
        salt: of the digests of its outputs, "" for none.
        is_missing: it says that its outputs were not there when the trail was made.
        absent: digests of other objects of which it says the same.
        claimed_status: how it says that it ended, unchecked; None where it does not say.
    """

    number: int
    kind: str
    data: Mapping[str, Any]
    envelopes: Sequence[Any] | None
    salt: str = ""
    is_missing: bool = False
    absent: frozenset[str] = frozenset()
    claimed_status: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailFile:
    """A notebook that says that it is a trail.

    Attributes:
        cells: in the order of the file.
        claimed_count: how many entries the file says it has, None where it does not say.
        claimed_kernel, claimed_head: whose it says it is, and the digest of the last; unchecked.
    """

    cells: Sequence[TrailCell]
    claimed_count: int | None
    claimed_kernel: object = None
    claimed_head: object = None


def read_trail(data: bytes) -> TrailFile:
    """Return the trail in the bytes of a notebook.

    Raises:
        NotATrail: it is none, or too large to be read.
    """
    _refuse_large(data)
    try:
        found = json.loads(data, object_pairs_hook=_object)
    except RecursionError:
        raise NotATrail("is nested too deeply") from None
    except UnicodeDecodeError:
        raise NotATrail("is not UTF-8") from None
    except json.JSONDecodeError as problem:
        where = f"line {problem.lineno}, column {problem.colno}"
        raise NotATrail(f"is not JSON, or was cut off: {problem.msg} at {where}") from None
    except ValueError:
        raise NotATrail("has a number that is too long") from None
    if not isinstance(found, dict) or not isinstance(found.get("cells"), list):
        raise NotATrail("is not a notebook")
    if found.get("nbformat") != 4:
        raise NotATrail("is not a notebook of nbformat 4")
    trail = _in(found, "metadata", "lambda_kernel", "trail")
    cells = [_cell(number, cell) for number, cell in enumerate(found["cells"], 1)]
    if not isinstance(trail, dict) and not any(cell.envelopes for cell in cells):
        raise NotATrail("is a notebook, but no trail: it has no entries of a journal")
    claimed = trail.get("entries") if isinstance(trail, dict) else None
    return TrailFile(
        cells=cells,
        claimed_count=claimed if type(claimed) is int else None,
        claimed_kernel=_in(trail, "kernel_id"),
        claimed_head=_in(trail, "head"),
    )


def _refuse_large(data: bytes) -> None:
    if len(data) > MAX_BYTES:
        raise NotATrail(f"has {len(data):,} bytes; at most {MAX_BYTES:,} are read")
    if len(data) * _width_bytes(data) > MAX_TEXT_BYTES:
        raise NotATrail(
            f"takes more than {MAX_TEXT_BYTES:,} bytes in memory, as it is not written in ASCII; "
            "export it anew"
        )
    if sum(map(data.count, (b",", b"[", b"{"))) > MAX_VALUES:
        raise NotATrail(f"has more than {MAX_VALUES:,} values: that is no trail")


def _width_bytes(data: bytes) -> int:
    """Return how many bytes a character of UTF-8 text takes at most in memory."""
    if _WIDE.search(data):
        return 4
    return 2 if _NOT_LATIN.search(data) else 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise NotATrail("names a key twice in one object: programs would read it differently")
    return found


def _cell(number: int, cell: object) -> TrailCell:
    if not isinstance(cell, dict) or not isinstance(cell.get("cell_type"), str):
        raise NotATrail(f"cell {number} is no cell")
    audit = _in(cell, "metadata", "lambda_kernel", "audit")
    entries, salt = _in(audit, "entries"), _in(audit, "salt")
    absent = _in(audit, "absent")
    status = _in(cell, "metadata", "lambda_kernel", "status")
    return TrailCell(
        number=number,
        kind=cell["cell_type"],
        data=cell,
        envelopes=entries if isinstance(entries, list) else None,
        salt=salt if isinstance(salt, str) and _SALT.fullmatch(salt) else "",
        is_missing=_in(audit, "content") == MISSING,
        absent=frozenset(
            each for each in (absent if isinstance(absent, list) else ()) if isinstance(each, str)
        ),
        claimed_status=status,
    )


def _in(data: Any, *names: str) -> Any:
    for name in names:
        data = data.get(name) if isinstance(data, dict) else None
    return data
