"""Walking, reading and removing what user code left on disk, without following anything.

Everything here runs after the sweep: no process of the cell is alive that could change a name
between two calls. What it left may still be hostile: symlinks, FIFOs, devices, modes that refuse
their owner, trees too deep for any path.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MAX_PATH_BYTES = 1000
"""A little above what a file key may measure: deeper is not walked, but named."""

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Found:
    """One thing in a tree.

    Attributes:
        path: relative to the top, with ``/``; may hold surrogates (names that are not UTF-8).
        name: its last part.
        folder: descriptor of the folder it is in; valid until the walk goes on.
        status: its lstat.
        walked: False for a folder whose path is too long to be walked into.
    """

    path: str
    name: str
    folder: int
    status: os.stat_result
    walked: bool = True


def walk(top: str) -> Iterator[Found]:
    """Yield everything under ``top``, folders before what is in them, in name order."""
    descriptor = open_folder(top)
    stack = [(descriptor, "", _sorted_names(descriptor))]
    try:
        while stack:
            folder, prefix, names = stack[-1]
            name = next(names, None)
            if name is None:
                os.close(folder)
                stack.pop()
                continue
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            path = prefix + name
            walked = len(os.fsencode(path)) <= MAX_PATH_BYTES
            yield Found(path, name, folder, status, walked)
            if stat.S_ISDIR(status.st_mode) and walked:
                child = open_folder(name, folder, status.st_mode)
                stack.append((child, f"{path}/", _sorted_names(child)))
    finally:
        for folder, _, _ in stack:
            os.close(folder)


@contextmanager
def reading(name: str, folder: int | None = None) -> Iterator[int]:
    """Open a regular file for reading, also where its mode refuses its owner.

    Raises:
        OSError: it is no regular file (ELOOP for a symlink).
    """
    try:
        descriptor = os.open(name, _FILE_FLAGS, dir_fd=folder)
    except PermissionError:
        descriptor = _open_unreadable(name, folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{name!r} is no regular file")
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def reading_beneath(top: str, path: str) -> Iterator[int]:
    """Open the regular file ``path`` under ``top``, component by component, for reading."""
    *folders, name = path.split("/")
    folder = open_folder(top)
    try:
        for part in folders:
            inner = open_folder(part, folder)
            os.close(folder)
            folder = inner
        with reading(name, folder) as descriptor:
            yield descriptor
    finally:
        os.close(folder)


class FolderReader:
    """Reads files of one tree, component by component; the folder of the last one stays open."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._prefix: str | None = None
        self._folder = -1

    @contextmanager
    def reading(self, path: str) -> Iterator[int]:
        """Open the regular file ``path`` under the top for reading (raises OSError)."""
        name = self._enter(path)
        with reading(name, self._folder) as descriptor:
            yield descriptor

    def status(self, path: str) -> os.stat_result:
        """Return the lstat of ``path``."""
        name = self._enter(path)
        return os.stat(name, dir_fd=self._folder, follow_symlinks=False)

    def link_target(self, path: str) -> str:
        """Return where the symlink ``path`` points."""
        name = self._enter(path)
        return os.readlink(name, dir_fd=self._folder)

    def close(self) -> None:
        """Let go of the last folder."""
        if self._folder >= 0:
            os.close(self._folder)
        self._folder = -1
        self._prefix = None

    def _enter(self, path: str) -> str:
        prefix, _, name = path.rpartition("/")
        if prefix != self._prefix:
            self.close()
            folder = open_folder(self._top)
            for part in filter(None, prefix.split("/")):
                try:
                    inner = open_folder(part, folder)
                finally:
                    os.close(folder)
                folder = inner
            self._folder, self._prefix = folder, prefix
        return name


def is_folder(path: str | Path) -> bool:
    """Whether a folder, and no symlink to one, stands at ``path``."""
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def open_folder(name: str, folder: int | None = None, mode: int | None = None) -> int:
    """Open a folder, not a symlink to one; one that refuses its owner is given mode 0700."""
    if mode is not None and mode & 0o500 != 0o500:
        os.chmod(name, 0o700, dir_fd=folder)
    try:
        return os.open(name, _FOLDER_FLAGS, dir_fd=folder)
    except PermissionError:
        os.chmod(name, 0o700, dir_fd=folder)
        return os.open(name, _FOLDER_FLAGS, dir_fd=folder)


def remove(path: str | Path) -> None:
    """Remove whatever stands at ``path``; nothing happens where there is nothing.

    Depth does not matter: every folder is moved up to the top before it is emptied.
    """
    name = os.fspath(path)
    try:
        status = os.lstat(name)
    except FileNotFoundError:
        return
    if not stat.S_ISDIR(status.st_mode):
        os.unlink(name)  # noqa: PTH108
        return
    _empty(name)
    os.rmdir(name)  # noqa: PTH106


def make_folder(path: str | Path) -> None:
    """Create ``path`` exclusively, mode 0700; whatever stands there is removed first."""
    try:
        os.mkdir(path, 0o700)  # noqa: PTH102
    except FileExistsError:
        remove(path)
        os.mkdir(path, 0o700)  # noqa: PTH102


def _empty(path: str) -> None:
    top = open_folder(path)
    try:
        os.fchmod(top, 0o700)
        token = secrets.token_hex(8)
        queue = _clear(top, top, token, 0)
        done = len(queue)
        while queue:
            name = queue.pop()
            folder = open_folder(name, top)
            try:
                found = _clear(folder, top, token, done)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)
            done += len(found)
            queue += found
    finally:
        os.close(top)


def _clear(folder: int, top: int, token: str, first: int) -> list[str]:
    """Unlink what is in ``folder``; move its folders to ``top`` and return their new names."""
    moved: list[str] = []
    with os.scandir(folder) as entries:
        found = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in found:
        if not is_folder:
            os.unlink(name, dir_fd=folder)
            continue
        # Moving a folder changes its "..", and so wants it writable; no symlink: just looked.
        os.chmod(name, 0o700, dir_fd=folder)
        new = f".{token}-{first + len(moved)}"
        os.rename(name, new, src_dir_fd=folder, dst_dir_fd=top)
        moved.append(new)
    return moved


def _open_unreadable(name: str, folder: int | None) -> int:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(f"{name!r} is no regular file")
    mode = stat.S_IMODE(status.st_mode)
    os.chmod(name, mode | 0o400, dir_fd=folder)
    try:
        return os.open(name, _FILE_FLAGS, dir_fd=folder)
    finally:
        os.chmod(name, mode, dir_fd=folder)


def _sorted_names(folder: int) -> Iterator[str]:
    return iter(sorted(os.listdir(folder)))
