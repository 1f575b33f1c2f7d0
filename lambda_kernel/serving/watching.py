"""Which files of a tree were open for writing: a write through a mapping may change no time.

On tmpfs, a page that was read before it is written through a shared mapping changes neither mtime
nor ctime. Whoever maps a file for writing has it open for writing, though, and inotify tells of the
close, which a dead process has always done.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Mapping

_CLOSE_WRITE = 0x8
_OVERFLOW = 0x4000
_IGNORED = 0x8000
_FLAGS = 0x01000000 | 0x02000000  # only folders, no symlink
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 * 1024

_libc = ctypes.CDLL(None, use_errno=True)


class WriteWatch:
    """Watches the folders of one tree for files that were open for writing and are closed."""

    def __init__(self) -> None:
        self._descriptor = -1
        self._folders: dict[int, str] = {}
        self._watched: dict[str, int] = {}
        self._open()

    def __del__(self) -> None:
        # A user has some hundred of them on one machine.
        self.close()

    @property
    def works(self) -> bool:
        """Whether all folders are watched; else anything may have been written."""
        return self._descriptor >= 0

    def cover(self, top: str, folders: Mapping[str, int]) -> None:
        """Watch exactly these folders from now on; what happened before is forgotten.

        Args:
            top: the tree.
            folders: inode by path relative to ``top``, which itself is the empty path.
        """
        if self.written() is None:
            self.close()
            self._open()
        for path, inode in folders.items():
            if self._watched.get(path) == inode:
                continue
            name = os.fsencode(f"{top}/{path}" if path else top)
            number = _libc.inotify_add_watch(self._descriptor, name, _CLOSE_WRITE | _FLAGS)
            if number < 0:
                self.close()
                return
            self._folders[number] = path
            self._watched[path] = inode
        for path in self._watched.keys() - folders.keys():
            del self._watched[path]

    def written(self) -> set[str] | None:
        """Return the paths that were closed after writing since the last call; None = unknown."""
        if not self.works:
            return None
        found: set[str] = set()
        overflow = False
        while True:
            try:
                events = os.read(self._descriptor, _READ_BYTES)
            except OSError as error:
                if error.errno != errno.EAGAIN:
                    self.close()
                    return None
                return None if overflow else found
            overflow = self._note(events, found) or overflow

    def close(self) -> None:
        """Watch nothing any more."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1
        self._folders.clear()
        self._watched.clear()

    def _open(self) -> None:
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)

    def _note(self, events: bytes, found: set[str]) -> bool:
        overflow = False
        offset = 0
        while offset < len(events):
            number, mask, _, length = _EVENT.unpack_from(events, offset)
            offset += _EVENT.size
            name = os.fsdecode(events[offset : offset + length].rstrip(b"\0"))
            offset += length
            if mask & _OVERFLOW:
                overflow = True
            elif mask & _IGNORED:
                self._watched.pop(self._folders.pop(number, ""), None)
            elif number in self._folders:
                folder = self._folders[number]
                found.add(f"{folder}/{name}" if folder else name)
        return overflow
