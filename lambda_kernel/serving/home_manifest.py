"""What a HOME holds, as a value: every path with its digest and where its bytes are stored."""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from lambda_kernel.serving.errors import StorageUnavailable

SCHEMA = 2
MANIFEST_BYTES = 512 * 1024 * 1024
"""What a stored manifest may unpack to."""
RECENT = 64
PREFIX_DIGITS = 16

Kind = Literal["file", "folder", "symlink"]
_KINDS: tuple[Kind, ...] = ("file", "folder", "symlink")


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes in a pack."""

    pack: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeEntry:
    """One file, folder or symlink.

    Attributes:
        kind: which of them.
        mode: permission bits.
        mtime_ns: modification time.
        size_bytes, digest, extents: of a file: its bytes, in order.
        target: of a symlink.
    """

    kind: Kind
    mode: int = 0o777
    mtime_ns: int = 0
    size_bytes: int = 0
    digest: str = ""
    extents: tuple[Extent, ...] = ()
    target: str = ""

    def is_same(self, other: HomeEntry | None) -> bool:
        """Whether both look the same to a user; a folder's time changes with what is in it."""
        if other is None or (self.kind, self.mode) != (other.kind, other.mode):
            return False
        return self.kind == "folder" or (self.mtime_ns == other.mtime_ns and self.holds_same(other))

    def holds_same(self, other: HomeEntry | None) -> bool:
        """Whether both hold the same, whatever their modes and times."""
        mine = (self.kind, self.digest, self.target)
        return other is not None and mine == (other.kind, other.digest, other.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeManifest:
    """One saved state of a HOME; named by the digest of its stored form.

    Attributes:
        entries: by path, relative, with ``/``.
        base: the manifest that it was made from.
        generation: one more than that of the newest manifest it was made from.
        recent: the first digits of the manifests that went into it, newest first.
    """

    entries: Mapping[str, HomeEntry] = field(default_factory=dict)
    base: str | None = None
    generation: int = 0
    recent: tuple[str, ...] = ()

    @property
    def size_bytes(self) -> int:
        """What the files measure together."""
        return sum(entry.size_bytes for entry in self.entries.values())

    def to_bytes(self) -> bytes:
        """Return the stored form: JSON, deflated."""
        packs: dict[str, int] = {}
        rows = [_row(path, self.entries[path], packs) for path in sorted(self.entries)]
        data = {
            "v": SCHEMA,
            "base": self.base,
            "generation": self.generation,
            "recent": self.recent,
            "packs": list(packs),
            "entries": rows,
        }
        return zlib.compress(json.dumps(data, separators=(",", ":")).encode("ascii"), 1)

    @classmethod
    def from_bytes(cls, stored: bytes, digest: str) -> HomeManifest:
        """Return the manifest in ``stored``.

        Raises:
            StorageUnavailable: it does not have that digest, or is none.
        """
        if hashlib.sha256(stored).hexdigest() != digest:
            raise StorageUnavailable("the manifest of the HOME does not have the digest named")
        inflater = zlib.decompressobj()
        try:
            data: Any = json.loads(inflater.decompress(stored, MANIFEST_BYTES))
            if data["v"] != SCHEMA:
                raise StorageUnavailable("the HOME was saved by another version")
            packs = [_text(pack) for pack in data["packs"]]
            return cls(
                entries=dict(_entry(row, packs) for row in data["entries"]),
                base=None if data["base"] is None else _text(data["base"]),
                generation=_number(data["generation"]),
                recent=tuple(_text(name) for name in data["recent"]),
            )
        except (ValueError, KeyError, TypeError, IndexError, zlib.error, RecursionError) as error:
            raise StorageUnavailable("the manifest of the HOME is damaged") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeHead:
    """``home/head``: the newest saved state of a HOME; no manifest = an empty one.

    Attributes:
        manifest: its digest.
        generation, recent: as in the manifest.
        etag: of the head itself; None where there is none yet.
    """

    manifest: str | None = None
    generation: int = 0
    recent: tuple[str, ...] = ()
    etag: str | None = None

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        data = {
            "v": SCHEMA,
            "manifest": self.manifest,
            "generation": self.generation,
            "recent": self.recent,
        }
        return json.dumps(data, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, stored: bytes, etag: str) -> HomeHead:
        """Return the head in ``stored`` (raises StorageUnavailable where it is none)."""
        try:
            data: Any = json.loads(stored)
            if data["v"] != SCHEMA:
                raise StorageUnavailable("the HOME was saved by another version")
            return cls(
                manifest=None if data["manifest"] is None else _text(data["manifest"]),
                generation=_number(data["generation"]),
                recent=tuple(_text(name) for name in data["recent"]),
                etag=etag,
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise StorageUnavailable("the head of the HOME is damaged") from error

    def includes(self, manifest: str | None) -> bool:
        """Whether that state is part of this one, as far as it is remembered."""
        return manifest in (None, self.manifest) or _short(manifest or "") in self.recent


def succeed(
    entries: Mapping[str, HomeEntry], base: str | None, old: HomeManifest
) -> tuple[HomeManifest, str, bytes]:
    """Return the manifest that follows ``old`` (whose digest is ``base``), its digest and bytes."""
    return _finished(
        HomeManifest(
            entries=entries,
            base=base,
            generation=old.generation + 1,
            recent=_remembered(base, old.recent),
        )
    )


def merge(
    base: HomeManifest, ours: tuple[str, HomeManifest], theirs: tuple[str | None, HomeManifest]
) -> tuple[HomeManifest, str, bytes, tuple[str, ...]]:
    """Return a HOME with both sides' changes; where both changed a path, ours is in force.

    Args:
        base: what ``ours`` was made from.
        ours: digest and manifest of the later writer.
        theirs: digest and manifest of what is in force.

    Returns:
        The manifest, its digest, its bytes, and the paths that both had changed.
    """
    mine, current = ours[1].entries, theirs[1].entries
    entries = dict(current)
    changed = [path for path in mine if not mine[path].is_same(base.entries.get(path))]
    gone = [path for path in base.entries if path not in mine]
    both = tuple(
        path
        for path in (*changed, *gone)
        if not _alike(current.get(path), base.entries.get(path))
        and not _alike(current.get(path), mine.get(path))
    )
    for path in gone:
        entries.pop(path, None)
    for path in changed:
        entries[path] = mine[path]
    _make_room(entries, mine, changed)
    manifest = HomeManifest(
        entries=entries,
        base=theirs[0],
        generation=max(ours[1].generation, theirs[1].generation) + 1,
        recent=_remembered(theirs[0], _remembered(ours[0], (*theirs[1].recent, *ours[1].recent))),
    )
    return (*_finished(manifest), both)


def parents_of(path: str) -> Iterator[str]:
    """Yield every folder above ``path``, the innermost first."""
    while path := path.rpartition("/")[0]:
        yield path


def _make_room(
    entries: dict[str, HomeEntry], mine: Mapping[str, HomeEntry], changed: list[str]
) -> None:
    # A path is in a folder: what the later writer has decides, and folders come back where needed.
    for path in changed:
        for parent in parents_of(path):
            found = entries.get(parent)
            if found is None or found.kind != "folder":
                entries[parent] = mine[parent]
    solid = {path for path, entry in entries.items() if entry.kind != "folder"}
    for path in list(entries):
        if any(parent in solid for parent in parents_of(path)):
            del entries[path]
    for path in list(entries):
        for parent in parents_of(path):
            entries.setdefault(parent, HomeEntry(kind="folder", mode=0o755))


def _alike(one: HomeEntry | None, other: HomeEntry | None) -> bool:
    return one is other or (one is not None and one.is_same(other))


def _finished(manifest: HomeManifest) -> tuple[HomeManifest, str, bytes]:
    stored = manifest.to_bytes()
    return manifest, hashlib.sha256(stored).hexdigest(), stored


def _remembered(newest: str | None, recent: tuple[str, ...]) -> tuple[str, ...]:
    first = () if newest is None else (_short(newest),)
    return tuple(dict.fromkeys((*first, *recent)))[:RECENT]


def _short(digest: str) -> str:
    return digest[:PREFIX_DIGITS]


def _row(path: str, entry: HomeEntry, packs: dict[str, int]) -> list[Any]:
    row = [path, _KINDS.index(entry.kind), entry.mode, entry.mtime_ns]
    if entry.kind == "symlink":
        return [*row, entry.target]
    if entry.kind == "folder":
        return row
    places: list[int] = []
    for extent in entry.extents:
        number = packs.setdefault(extent.pack, len(packs))
        places += [number, extent.offset, extent.length]
    return [*row, entry.digest, places]


def _entry(row: list[Any], packs: list[str]) -> tuple[str, HomeEntry]:
    path, (kind, mode) = _text(row[0]), map(_number, row[1:3])
    mtime_ns = _number(row[3], low=None)
    if not {"", ".", ".."}.isdisjoint(path.split("/")):
        raise ValueError("a name outside of the HOME")
    name, mode = _KINDS[kind], mode & 0o777
    if name == "symlink":
        target = _text(row[4])
        return path, HomeEntry(kind="symlink", mode=mode, mtime_ns=mtime_ns, target=target)
    if name == "folder":
        return path, HomeEntry(kind="folder", mode=mode, mtime_ns=mtime_ns)
    places = [_number(place) for place in row[5]]
    extents = tuple(
        Extent(packs[places[i]], places[i + 1], places[i + 2]) for i in range(0, len(places), 3)
    )
    return path, HomeEntry(
        kind="file",
        mode=mode,
        mtime_ns=mtime_ns,
        size_bytes=sum(extent.length for extent in extents),
        digest=_text(row[4]),
        extents=extents,
    )


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is missing")
    return value


def _number(value: object, low: int | None = 0) -> int:
    if not isinstance(value, int) or (low is not None and value < low):
        raise TypeError("a number is missing")
    return value
