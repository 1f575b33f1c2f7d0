"""What a child says of the session that it leaves: its ``snapshot`` frame."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lambda_kernel.contract.cell_protocol import ChildKind
from lambda_kernel.contract.outcome import LostName
from lambda_kernel.contract.schema import InvalidField, decode, encode

MAX_OBJECTS = 200_000
"""What a session's variables may be cut into."""

MAX_CHANGED = 1_000
SHOWN_CHANGES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class NewObject:
    """An object that the cell wrote: ``size_bytes`` at ``offset`` of ``snapshot_out``."""

    id: int
    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchedObject:
    """An object like ``base`` (of the session before, same size) but for some chunks.

    Attributes:
        id: of the new object.
        base: of the old one.
        chunks: number of the chunk, and offset of its bytes (all of them) in ``snapshot_out``.
    """

    id: int
    base: int
    chunks: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotReport:
    """What the child says of the session it leaves.

    Offsets are multiples of ``paging.PAGE_BYTES``. New ids are above every id of the session
    before.

    Attributes:
        size_bytes: how many bytes of ``snapshot_out`` are used; it is at least as long.
        index: id of the object that describes the others, a new or a kept one.
        keep: ids of objects that stay as they were.
        new: objects that were written as a whole.
        patched: objects of which chunks were written.
        lost: the variables that are not in it.
        changed: what the cell did to variables (``added``, ``changed``, ...), by name; at most
            MAX_CHANGED of them. It is for people alone.
    """

    size_bytes: int
    index: int
    keep: tuple[int, ...] = ()
    new: tuple[NewObject, ...] = ()
    patched: tuple[PatchedObject, ...] = ()
    lost: tuple[LostName, ...] = ()
    changed: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return the frame's JSON form, its kind included."""
        return {
            "kind": ChildKind.SNAPSHOT.value,
            "size_bytes": self.size_bytes,
            "index": self.index,
            "keep": list(self.keep),
            "new": [[new.id, new.offset, new.size_bytes] for new in self.new],
            "patched": [[p.id, p.base, [list(c) for c in p.chunks]] for p in self.patched],
            "lost": encode(self.lost),
            "changed": self.changed,
        }

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> SnapshotReport:
        """Return the report in a ``snapshot`` frame (raises InvalidField naming the field).

        Types and counts are checked here; what the numbers mean, by whoever has the session.
        """
        plain = {k: v for k, v in data.items() if k not in {"kind", "new", "patched"}}
        report = decode(cls, plain, "snapshot")
        new = [_numbers(item, 3, "snapshot.new") for item in _items(data, "new")]
        patched = [_patched(item) for item in _items(data, "patched")]
        if len(report.keep) + len(new) + len(patched) > MAX_OBJECTS:
            raise InvalidField("snapshot", f"has more than {MAX_OBJECTS} objects")
        return replace(
            report,
            new=tuple(NewObject(id=i, offset=offset, size_bytes=size) for i, offset, size in new),
            patched=tuple(patched),
        )


def summary(changed: Mapping[str, str]) -> str:
    """Return some of the names of ``changed`` with what happened to them, and how many more."""
    shown = [f"{name} ({what})" for name, what in list(changed.items())[:SHOWN_CHANGES]]
    more = f" and {len(changed) - len(shown)} more" if len(changed) > len(shown) else ""
    return (", ".join(shown) or "none") + more


def _items(data: dict[str, Any], name: str) -> list[Any]:
    items = data.get(name, [])
    if not isinstance(items, list):
        raise InvalidField(f"snapshot.{name}", "must be an array")
    return items


def _numbers(item: object, count: int, path: str) -> list[int]:
    if not isinstance(item, list) or len(item) != count or any(type(n) is not int for n in item):
        raise InvalidField(path, f"must hold arrays of {count} integers")
    return item


def _patched(item: object) -> PatchedObject:
    if not isinstance(item, list) or len(item) != 3 or not isinstance(item[2], list):
        raise InvalidField("snapshot.patched", "must hold arrays of id, base and chunks")
    new_id, base = _numbers(item[:2], 2, "snapshot.patched")
    pairs = [_numbers(chunk, 2, "snapshot.patched") for chunk in item[2]]
    chunks = tuple((number, offset) for number, offset in pairs)
    return PatchedObject(id=new_id, base=base, chunks=chunks)
