"""A HOME on disk: what it looks like now, and how it becomes what a manifest says.

Runs only while no process of a cell is alive.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lambda_kernel.serving import trees
from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.serving.home_manifest import HomeEntry

Facts = tuple[int, int, int, int, int]
"""Mode, inode, size, mtime and ctime; of a folder mode and inode only."""

READ_BYTES = 1024 * 1024
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(slots=True)
class Seen:
    """A HOME as a walk saw it.

    Attributes:
        facts: by path, folders before what is in them.
        size_bytes: what the files measure together, holes included.
        refused: what cannot be saved: sockets, FIFOs, devices, paths that are too long.
    """

    facts: dict[str, Facts] = field(default_factory=dict)
    size_bytes: int = 0
    refused: list[str] = field(default_factory=list)

    def folders(self, top: str) -> dict[str, int]:
        """Return the inode of each folder by path, ``top`` as the empty one."""
        found = {path: facts[1] for path, facts in self.facts.items() if stat.S_ISDIR(facts[0])}
        return {"": Path(top).stat().st_ino} | found


def look(top: str) -> Seen:
    """Return what is under ``top``, without reading a file or following a link.

    A folder that its owner may not read, write or enter is given that permission, for good.
    """
    seen = Seen()
    inodes: set[int] = set()
    descriptor = trees.open_folder(top)
    stack = [(descriptor, "", _look_into(descriptor, "", seen, inodes))]
    try:
        while stack:
            folder, prefix, inner = stack[-1]
            if not inner:
                os.close(folder)
                stack.pop()
                continue
            name = inner.pop()
            child = trees.open_folder(name, folder)
            stack.append((child, f"{prefix}{name}/", []))
            stack[-1][2].extend(_look_into(child, f"{prefix}{name}/", seen, inodes))
    finally:
        for folder, _, _ in stack:
            os.close(folder)
    return seen


def _look_into(folder: int, prefix: str, seen: Seen, inodes: set[int]) -> list[str]:
    inner: list[str] = []
    facts = seen.facts
    with os.scandir(folder) as entries:
        for entry in entries:
            path = prefix + entry.name
            status = entry.stat(follow_symlinks=False)
            mode = status.st_mode
            if stat.S_ISREG(mode):
                facts[path] = facts_of(status)
                # A file with several names is there once.
                if status.st_nlink == 1 or status.st_ino not in inodes:
                    seen.size_bytes += status.st_size
                    inodes.add(status.st_ino)
            elif stat.S_ISDIR(mode) and len(os.fsencode(path)) <= trees.MAX_PATH_BYTES:
                if mode & stat.S_IRWXU != stat.S_IRWXU:
                    mode |= stat.S_IRWXU
                    os.chmod(entry.name, stat.S_IMODE(mode), dir_fd=folder)
                facts[path] = (mode, status.st_ino, 0, 0, 0)
                inner.append(entry.name)
            elif stat.S_ISLNK(mode):
                facts[path] = facts_of(status)
            else:
                seen.refused.append(path)
    return inner


def facts_of(status: os.stat_result) -> Facts:
    """Return what tells that a file or symlink is still what it was."""
    return (
        status.st_mode,
        status.st_ino,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )


def reduce(top: str, paths: Iterable[str], wanted: Mapping[str, HomeEntry]) -> None:
    """Remove these paths, the innermost first; folders that ``wanted`` has too stay."""
    for path in sorted(paths, reverse=True):
        entry = wanted.get(path)
        full = f"{top}/{path}"
        if entry is None or entry.kind != "folder" or not trees.is_folder(full):
            trees.remove(full)


def make_folders(top: str, wanted: Mapping[str, HomeEntry]) -> None:
    """Create the folders of ``wanted`` that are missing; all of them can be written into."""
    for path in sorted(wanted):
        if wanted[path].kind == "folder":
            full = f"{top}/{path}"
            try:
                os.mkdir(full, 0o700)  # noqa: PTH102
            except FileExistsError:
                os.chmod(full, 0o700)  # noqa: PTH101


def settle_folders(top: str, wanted: Mapping[str, HomeEntry]) -> None:
    """Give folders their modes and times, once everything is in them."""
    for path in sorted(wanted, reverse=True):
        entry = wanted[path]
        if entry.kind == "folder":
            full = f"{top}/{path}"
            os.utime(full, ns=(entry.mtime_ns, entry.mtime_ns))
            os.chmod(full, entry.mode)  # noqa: PTH101


def create(top: str, path: str) -> int:
    """Create a file that is not there yet and return its descriptor."""
    return os.open(f"{top}/{path}", _NEW_FILE, 0o600)


def write_all(descriptor: int, body: bytes | memoryview) -> None:
    """Write all of ``body``."""
    rest = memoryview(body)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def write_piece(top: str, path: str, position: int, body: memoryview) -> None:
    """Write a part of a file that ``create`` made."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(f"{top}/{path}", flags)
    try:
        os.lseek(descriptor, position, os.SEEK_SET)
        write_all(descriptor, body)
    finally:
        os.close(descriptor)


def settle_file(descriptor: int, entry: HomeEntry) -> None:
    """Give a written file its mode and time."""
    os.fchmod(descriptor, entry.mode)
    os.utime(descriptor, ns=(entry.mtime_ns, entry.mtime_ns))


def settle_again(top: str, path: str, entry: HomeEntry) -> None:
    """Set mode and time of a file whose bytes are right."""
    full = f"{top}/{path}"
    os.chmod(full, entry.mode)  # noqa: PTH101  (its facts say that it is a regular file)
    os.utime(full, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)


def make_symlink(top: str, path: str, entry: HomeEntry) -> None:
    """Create a symlink."""
    full = f"{top}/{path}"
    Path(full).symlink_to(entry.target)
    os.utime(full, ns=(entry.mtime_ns, entry.mtime_ns), follow_symlinks=False)


def check_file(top: str, path: str, entry: HomeEntry) -> None:
    """Verify a file that was written in pieces (raises StorageUnavailable)."""
    with trees.reading(f"{top}/{path}") as descriptor:
        if digest_of(descriptor) != entry.digest:
            raise wrong_digest()


def wrong_digest() -> StorageUnavailable:
    """Return the error for bytes that are not those that were saved."""
    return StorageUnavailable("a file of the saved HOME does not have its digest")


def digest_of(descriptor: int) -> str:
    """Return the SHA-256 of what an open file holds from its position on."""
    digest = hashlib.sha256()
    while chunk := os.read(descriptor, READ_BYTES):
        digest.update(chunk)
    return digest.hexdigest()
