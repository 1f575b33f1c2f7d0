"""What a cell changed in its HOME, as a new manifest and new packs."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field

from lambda_kernel.serving import home_packs, home_tree, trees
from lambda_kernel.serving.home_manifest import Extent, HomeEntry
from lambda_kernel.serving.home_packs import PackWriter
from lambda_kernel.serving.home_tree import Facts, Seen

HASHED_BYTES = 8 * 1024 * 1024
LIBRARY_PREFIXES = (".local/", ".cache/")

Places = list[tuple[int, int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspects:
    """What may differ from the saved state.

    Attributes:
        changed: paths to look at more closely, folders first.
        removed: paths that are gone.
    """

    changed: tuple[str, ...]
    removed: tuple[str, ...]

    def __bool__(self) -> bool:
        return bool(self.changed or self.removed)


@dataclass(slots=True)
class Harvest:
    """What was found in the suspects.

    Attributes:
        entries: the HOME now; a file that went into a new pack has no extents yet.
        packed: where the bytes of such files are, by digest.
        facts: refreshed, by path.
    """

    entries: dict[str, HomeEntry]
    packed: dict[str, Places] = field(default_factory=dict)
    facts: dict[str, Facts] = field(default_factory=dict)

    def named(self, names: dict[int, str]) -> dict[str, HomeEntry]:
        """Return the entries, once the packs have names."""
        places = {d: home_packs.named(found, names) for d, found in self.packed.items()}
        return {
            path: _with_extents(entry, places[entry.digest])
            if entry.digest in places and not entry.extents
            else entry
            for path, entry in self.entries.items()
        }


def suspects(
    seen: Seen,
    facts: Mapping[str, Facts],
    entries: Mapping[str, HomeEntry],
    written: set[str] | None,
) -> Suspects:
    """Return what must be looked at.

    Args:
        seen: the HOME now.
        facts: as it was when ``entries`` described it.
        entries: what is saved.
        written: files that were open for writing; None = unknown: then files up to 8 MiB outside
            of installed packages and caches are read, and others are compared by facts alone.
    """
    changed = {path for path, now in seen.facts.items() if facts.get(path) != now}
    changed |= seen.facts.keys() - entries.keys()
    if written is None:
        changed |= {path for path, now in seen.facts.items() if _is_small_and_own(path, now)}
    else:
        changed |= written & seen.facts.keys()
    return Suspects(
        changed=tuple(sorted(changed)), removed=tuple(sorted(entries.keys() - seen.facts.keys()))
    )


def harvest(
    top: str, found: Suspects, seen: Seen, entries: Mapping[str, HomeEntry], writer: PackWriter
) -> Harvest:
    """Read the suspects and pack the bytes that are stored nowhere yet.

    Raises:
        StorageUnavailable: a pack could not be stored.
    """
    result = Harvest(entries={p: e for p, e in entries.items() if p in seen.facts})
    worn = home_packs.worn_packs(result.entries.values())
    again = [path for path, entry in result.entries.items() if _is_in(worn, entry)]
    # Also of files that are gone: they may have been moved.
    known = {e.digest: e.extents for e in entries.values() if e.extents and not _is_in(worn, e)}
    reader = trees.FolderReader(top)
    try:
        for path in sorted({*found.changed, *again}):
            result.entries[path] = _entry(reader, path, known, result, writer)
            result.facts[path] = _facts(reader.status(path))
    finally:
        reader.close()
    return result


def _entry(
    reader: trees.FolderReader,
    path: str,
    known: Mapping[str, tuple[Extent, ...]],
    result: Harvest,
    writer: PackWriter,
) -> HomeEntry:
    status = reader.status(path)
    mode = stat.S_IMODE(status.st_mode) & 0o777
    if stat.S_ISDIR(status.st_mode):
        return HomeEntry(kind="folder", mode=mode, mtime_ns=status.st_mtime_ns)
    if stat.S_ISLNK(status.st_mode):
        target = reader.link_target(path)
        return HomeEntry(kind="symlink", mode=mode, mtime_ns=status.st_mtime_ns, target=target)
    with reader.reading(path) as descriptor:
        digest = home_tree.digest_of(descriptor)
        extents = known.get(digest, ())
        size = os.fstat(descriptor).st_size
        if size and not extents and digest not in result.packed:
            os.lseek(descriptor, 0, os.SEEK_SET)
            result.packed[digest] = writer.add(descriptor, size)
    return HomeEntry(
        kind="file",
        mode=mode,
        mtime_ns=status.st_mtime_ns,
        size_bytes=size,
        digest=digest,
        extents=extents,
    )


def _is_in(packs: set[str], entry: HomeEntry) -> bool:
    return any(extent.pack in packs for extent in entry.extents)


def _facts(status: os.stat_result) -> Facts:
    if stat.S_ISDIR(status.st_mode):
        return (status.st_mode, status.st_ino, 0, 0, 0)
    return home_tree.facts_of(status)


def _is_small_and_own(path: str, facts: Facts) -> bool:
    mode, _, size, _, _ = facts
    return stat.S_ISREG(mode) and size <= HASHED_BYTES and not path.startswith(LIBRARY_PREFIXES)


def _with_extents(entry: HomeEntry, extents: tuple[Extent, ...]) -> HomeEntry:
    return HomeEntry(
        kind=entry.kind,
        mode=entry.mode,
        mtime_ns=entry.mtime_ns,
        size_bytes=entry.size_bytes,
        digest=entry.digest,
        extents=extents,
    )
