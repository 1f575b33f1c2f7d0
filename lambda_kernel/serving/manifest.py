"""What a cell changed: the difference of two states of a working directory, as values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """One regular file.

    Attributes:
        digest: SHA-256 hex of its bytes.
        size_bytes: their number.
        mode: permission bits.
        mtime_ns: modification time.
    """

    digest: str
    size_bytes: int
    mode: int
    mtime_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A working directory: paths are relative, with ``/``.

    Attributes:
        files: regular files.
        folders: before a cell, folders that are stored as such; after it, all folders.
    """

    files: Mapping[str, FileState] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """A file to store."""

    path: str
    change: Literal["created", "modified"]
    state: FileState


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """What must be stored and deleted.

    Attributes:
        uploads: created and modified files, by path.
        deletions: files that are gone.
        new_folders: empty folders that are not stored yet.
        removed_folders: stored folders that are gone.
    """

    uploads: tuple[Upload, ...] = ()
    deletions: tuple[str, ...] = ()
    new_folders: tuple[str, ...] = ()
    removed_folders: tuple[str, ...] = ()

    @property
    def count(self) -> int:
        """How many objects change."""
        return sum(map(len, (self.uploads, self.deletions, self.new_folders, self.removed_folders)))


def difference(before: Tree, after: Tree) -> Changes:
    """Return what leads from ``before`` (what was mirrored) to ``after`` (what a cell left).

    Only paths of ``before`` are ever deleted: what was not mirrored is not in it.
    """
    uploads = tuple(
        Upload(path=path, change="modified" if path in before.files else "created", state=state)
        for path, state in sorted(after.files.items())
        if before.files.get(path) != state
    )
    return Changes(
        uploads=uploads,
        deletions=tuple(sorted(before.files.keys() - after.files.keys())),
        new_folders=tuple(sorted(empty_folders(after) - before.folders)),
        removed_folders=tuple(sorted(before.folders - after.folders)),
    )


def empty_folders(tree: Tree) -> frozenset[str]:
    """Return the folders of ``tree`` that hold neither file nor folder."""
    parents = {parent(path) for path in tree.files} | {parent(path) for path in tree.folders}
    return frozenset(tree.folders - parents)


def parent(path: str) -> str:
    """Return the folder that ``path`` is in; empty for the top."""
    return path.rpartition("/")[0]


def parents(path: str) -> Iterable[str]:
    """Yield every folder above ``path``, the innermost first."""
    while path := parent(path):
        yield path


def largest_folders(
    sizes: Mapping[str, int], count: int = 5, depth: int = 1
) -> list[tuple[str, int]]:
    """Return the largest folders, ``depth`` levels down, of a listing (and files above them)."""
    totals: dict[str, int] = {}
    for path, size in sizes.items():
        parts = path.split("/")
        top = "/".join(parts[:depth]) + ("/" if len(parts) > depth else "")
        totals[top] = totals.get(top, 0) + size
    return sorted(totals.items(), key=lambda item: (-item[1], item[0]))[:count]
