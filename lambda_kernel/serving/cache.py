"""The download cache of a warm container: one user's files, hard-linked into working directories.

User code runs under the same user id and can reach the folder and, through a hard link, the bytes
of an entry. Therefore the index lives in this process only, an entry is linked only while it is
*vouched for* (hashed since the last cell ran), and what the index does not know is removed.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import stat
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from lambda_kernel.serving import trees
from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.serving.manifest import FileState
from lambda_kernel.serving.objects import StoredObject
from lambda_kernel.storage.s3_requests import ListedObject

CELL = "cell"
CLOCK_SLACK_S = 2.0
READ_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedFile:
    """One entry.

    Attributes:
        name: of the file in the cache folder.
        inode: of that file.
        etag, version_id: of the object it is.
        last_modified: as listed; None after a PUT of our own, until a listing tells.
        put_date: S3's clock at that PUT.
        state: digest, size, mode and time.
        era: the cell after which the bytes were last hashed.
        cell: the stamp of the cell that stored the object; empty where it was no cell.
    """

    name: str
    inode: int
    etag: str
    version_id: str | None
    last_modified: float | None
    put_date: float
    state: FileState
    era: int
    cell: str = ""

    def is_object(self, listed: ListedObject) -> bool:
        """Whether this is the object that a listing shows."""
        if (self.etag, self.state.size_bytes) != (listed.etag, listed.size_bytes):
            return False
        if self.last_modified is None:
            return abs(listed.last_modified - self.put_date) <= CLOCK_SLACK_S
        return self.last_modified == listed.last_modified


class DownloadCache:
    """Cached files by object key.

    Attributes:
        folder: where they are.
        bounds: keys that cut long listings into pages, by prefix; the next listing asks for all
            pages at once.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self.folder = folder
        self.bounds: dict[str, tuple[str, ...]] = {}
        self._max_bytes = max_bytes
        self._entries: OrderedDict[str, CachedFile] = OrderedDict()
        self._bytes = 0
        self._era = 0
        self._user: str | None = None
        self._descriptor = -1
        self._seen = (0, 0)
        self._lock = threading.RLock()

    @classmethod
    def open(cls, folder: Path, max_bytes: int) -> DownloadCache:
        """Return an empty cache in ``folder``, which is made anew."""
        cache = cls(folder, max_bytes)
        cache._reset()
        return cache

    @property
    def size_bytes(self) -> int:
        """What the entries measure together."""
        return self._bytes

    def claim(self, user: str) -> None:
        """Serve ``user`` from now on; the entries of another user are removed."""
        if self._user != user:
            if self._user is not None:
                self._reset()
            self._user = user

    def cell_ran(self) -> None:
        """Trust nothing any more until it is hashed again, and remove what was planted."""
        self._era += 1
        if not self._folder_is_ours():
            self._reset()
        elif self._stamp() != self._seen:
            self._remove_strangers()

    def find(self, listed: ListedObject) -> CachedFile | None:
        """Return the entry that is exactly this object, its bytes verified, or None."""
        entry = self._entries.get(listed.key)
        if entry is None:
            return None
        if not entry.is_object(listed) or not self._verified(listed.key, entry):
            self._drop(listed.key)
            return None
        if (entry.last_modified, entry.era) != (listed.last_modified, self._era):
            entry = replace(entry, last_modified=listed.last_modified, era=self._era)
            self._entries[listed.key] = entry
        self._entries.move_to_end(listed.key)
        return entry

    def link(self, entry: CachedFile, target: str) -> None:
        """Hard-link the verified file of ``entry`` to the path ``target``."""
        os.link(entry.name, target, src_dir_fd=self._descriptor)

    def fetch(
        self, listed: ListedObject, download: Callable[[Callable[[bytes], object]], StoredObject]
    ) -> CachedFile:
        """Download an object into the cache and return its entry.

        Raises:
            OSError: there is no room.
            StorageUnavailable: from ``download``.
        """
        name = secrets.token_hex(16)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        descriptor = os.open(name, flags, 0o600, dir_fd=self._descriptor)
        digest = hashlib.sha256()
        try:
            with io.FileIO(descriptor, "wb") as file:

                def write(chunk: bytes) -> None:
                    digest.update(chunk)
                    rest = memoryview(chunk)
                    while rest:
                        rest = rest[file.write(rest) :]

                stored = download(write)
                _check(digest.hexdigest(), stored, listed)
                state = _state(digest.hexdigest(), file.tell(), stored, listed)
                os.fchmod(descriptor, state.mode)
                os.utime(descriptor, ns=(state.mtime_ns, state.mtime_ns))
                inode = os.fstat(descriptor).st_ino
        except BaseException:
            os.unlink(name, dir_fd=self._descriptor)
            raise
        entry = CachedFile(
            name=name,
            inode=inode,
            etag=stored.etag or listed.etag,
            version_id=stored.version_id,
            last_modified=listed.last_modified,
            put_date=0.0,
            state=state,
            era=self._era,
            cell=stored.metadata.get(CELL, ""),
        )
        self._add(listed.key, entry)
        return entry

    def adopt(
        self, key: str, path: str, state: FileState, stored: StoredObject, cell: str = ""
    ) -> None:
        """Keep the file at ``path``, just hashed as ``state``, as what was stored under ``key``."""
        name = secrets.token_hex(16)
        self._drop(key)
        if state.size_bytes > self._max_bytes:
            return
        os.link(path, name, dst_dir_fd=self._descriptor, follow_symlinks=False)
        inode = os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_ino
        entry = CachedFile(
            name=name,
            inode=inode,
            etag=stored.etag,
            version_id=stored.version_id,
            last_modified=None,
            put_date=stored.date,
            state=state,
            era=self._era,
            cell=cell,
        )
        self._add(key, entry)

    def vouch(self, key: str, inode: int, state: FileState) -> None:
        """Note that ``inode`` was hashed as ``state`` after the last cell."""
        entry = self._entries.get(key)
        if entry is not None and (entry.inode, entry.state) == (inode, state):
            self._entries[key] = replace(entry, era=self._era)

    def settle(self) -> None:
        """Shrink to size and note how this process left the folder, before a cell runs."""
        self._evict()
        self._seen = self._stamp()

    def make_room(self, keep_bytes: int) -> None:
        """Shrink to at most ``keep_bytes``."""
        while self._bytes > keep_bytes and self._entries:
            self._drop(next(iter(self._entries)))

    def _verified(self, key: str, entry: CachedFile) -> bool:
        if entry.era == self._era:
            return True
        try:
            with trees.reading(entry.name, self._descriptor) as descriptor:
                if os.fstat(descriptor).st_ino != entry.inode:
                    return False
                digest, size = hash_descriptor(descriptor)
                if (digest, size) != (entry.state.digest, entry.state.size_bytes):
                    return False
                os.fchmod(descriptor, entry.state.mode)
                os.utime(descriptor, ns=(entry.state.mtime_ns, entry.state.mtime_ns))
        except OSError:
            return False
        return True

    def _add(self, key: str, entry: CachedFile) -> None:
        with self._lock:
            self._drop(key)
            self._entries[key] = entry
            self._bytes += entry.state.size_bytes

    def _drop(self, key: str) -> None:
        with self._lock:
            entry = self._entries.pop(key, None)
            if entry is None:
                return
            self._bytes -= entry.state.size_bytes
        try:
            os.unlink(entry.name, dir_fd=self._descriptor)
        except FileNotFoundError:
            return
        except IsADirectoryError:
            trees.remove(self.folder / entry.name)

    def _evict(self) -> None:
        self.make_room(self._max_bytes)

    def _reset(self) -> None:
        self._entries.clear()
        self.bounds.clear()
        self._bytes = 0
        if self._descriptor >= 0:
            os.close(self._descriptor)
        trees.make_folder(self.folder)
        self._descriptor = os.open(
            self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        )
        self._seen = self._stamp()

    def _folder_is_ours(self) -> bool:
        try:
            found = os.lstat(self.folder)
        except OSError:
            return False
        own = os.fstat(self._descriptor)
        return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)

    def _stamp(self) -> tuple[int, int]:
        # A ctime cannot be set back by its owner: an unchanged one spares reading the folder.
        status = os.fstat(self._descriptor)
        return status.st_ctime_ns, stat.S_IMODE(status.st_mode)

    def _remove_strangers(self) -> None:
        os.fchmod(self._descriptor, 0o700)
        known = {entry.name for entry in self._entries.values()}
        for path in list(self.folder.iterdir()):
            if path.name not in known:
                trees.remove(path)
        self._seen = self._stamp()


def hash_descriptor(descriptor: int) -> tuple[str, int]:
    """Return SHA-256 (hex) and size of an open file."""
    digest = hashlib.sha256()
    size = 0
    while chunk := os.read(descriptor, READ_BYTES):
        digest.update(chunk)
        size += len(chunk)
    return digest.hexdigest(), size


def state_of(found: trees.Found) -> FileState:
    """Return what a regular file of a tree is, its bytes read and hashed."""
    with trees.reading(found.name, found.folder) as descriptor:
        return hashed(descriptor, found.status)


def hashed(descriptor: int, status: os.stat_result) -> FileState:
    """Return what an open regular file is, its bytes read and hashed."""
    digest, size = hash_descriptor(descriptor)
    return FileState(
        digest=digest,
        size_bytes=size,
        mode=stat.S_IMODE(status.st_mode) & 0o777,
        mtime_ns=status.st_mtime_ns,
    )


def metadata_of(state: FileState, cell: str) -> dict[str, str]:
    """Return the object metadata that ``state`` is stored with by ``cell``."""
    return {
        "sha256": state.digest,
        "mode": f"{state.mode:o}",
        "mtime-ns": str(state.mtime_ns),
        CELL: cell,
    }


def _check(digest: str, stored: StoredObject, listed: ListedObject) -> None:
    named = stored.metadata.get("sha256")
    if named is not None and named != digest:
        raise StorageUnavailable(f"{listed.key} does not have the digest it was stored with")


def _state(digest: str, size: int, stored: StoredObject, listed: ListedObject) -> FileState:
    return FileState(
        digest=digest,
        size_bytes=size,
        mode=_number(stored.metadata.get("mode"), 8, 0o644) & 0o777,
        mtime_ns=_number(
            stored.metadata.get("mtime-ns"), 10, int(listed.last_modified * 1_000_000_000)
        ),
    )


def _number(text: str | None, base: int, default: int) -> int:
    try:
        value = int(text or "", base)
    except ValueError:
        return default
    return value if 0 <= value < 2**63 else default
