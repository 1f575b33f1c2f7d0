"""HOME: one scope's folder, restored where it is missing and saved where a cell changed it.

One archive per state of a HOME, named by its digest; ``home/head`` names the newest. At most one
scope's HOME is on disk: the other's is removed (it was saved) before a cell of another scope runs.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from lambda_kernel.contract import keys
from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving import trees
from lambda_kernel.serving.errors import ObjectNotFound, StorageUnavailable
from lambda_kernel.serving.objects import ObjectStore

logger = logging.getLogger(__name__)

HEAD_SCHEMA = 1
MAX_HEAD_BYTES = 4096
_HASHED_BYTES = 8 * 1024 * 1024
_LIBRARY_PREFIXES = (".local/", ".cache/")


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeHead:
    """The newest saved state of a HOME: an archive, or None for an empty one."""

    pack: str | None = None
    size_bytes: int = 0

    def to_bytes(self) -> bytes:
        """Return the stored form."""
        data = {"v": HEAD_SCHEMA, "pack": self.pack, "size_bytes": self.size_bytes}
        return json.dumps(data, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> HomeHead:
        """Return the head in ``stored`` (raises StorageUnavailable where it is none)."""
        try:
            data: Any = json.loads(stored)
            if data["v"] != HEAD_SCHEMA:
                raise StorageUnavailable("the HOME was saved by another version")
            return cls(pack=data["pack"], size_bytes=int(data["size_bytes"]))
        except (ValueError, KeyError, TypeError) as error:
            raise StorageUnavailable("the head of the HOME is damaged") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedHome:
    """A HOME whose archive is stored, but which ``home/head`` does not name yet."""

    head: HomeHead
    fingerprint: str


class Homes:
    """The HOME of the scope that this container served last.

    Attributes:
        root: replaces ``/tmp`` in tests.
    """

    def __init__(self, store: ObjectStore, bucket: str, root: str = "/tmp") -> None:  # noqa: S108
        self._store = store
        self._bucket = bucket
        self._root = root
        self._scope: Scope | None = None
        self._head: HomeHead | None = None
        self._fingerprint = ""

    @property
    def current(self) -> str | None:
        """The path of the HOME on disk, or None."""
        return None if self._scope is None else self.path(self._scope)

    @property
    def head(self) -> HomeHead:
        """What is saved of the current HOME."""
        return self._head or HomeHead()

    def path(self, scope: Scope) -> str:
        """Return where the HOME of ``scope`` stands."""
        return f"{self._root}/{os.path.basename(scope.home)}"  # noqa: PTH119

    def clear_others(self, scope: Scope) -> None:
        """Remove the HOME of another scope; nothing of it is on disk while a cell runs."""
        if self._scope is not None and self._scope != scope:
            self.discard()

    def fetch_head(self, scope: Scope) -> HomeHead:
        """Return the newest saved head of ``scope``; of an empty HOME where there is none."""
        if not scope.home_is_kept:
            return HomeHead()
        try:
            stored = self._store.get(self._bucket, keys.home_head_key(scope))
        except ObjectNotFound:
            return HomeHead()
        return HomeHead.from_bytes(stored)

    def restore(self, scope: Scope, head: HomeHead) -> str:
        """Make the HOME of ``scope`` stand as ``head`` says and return its path."""
        path = self.path(scope)
        if self._scope == scope and self._head == head and scope.home_is_kept:
            return path
        self.discard()
        trees.make_folder(path)
        self._scope = scope
        if head.pack is not None:
            with _scratch(self._root) as archive:
                self._download(scope, head.pack, archive)
                unpack(archive, path)
        self._head = head
        self._fingerprint = fingerprint(path)
        return path

    def save(self, scope: Scope) -> SavedHome | None:
        """Store the archive of a changed HOME; None where it has not changed.

        Raises:
            StorageUnavailable: it could not be stored.
        """
        if not scope.home_is_kept or self._scope != scope:
            return None
        path = self.path(scope)
        if not os.path.isdir(path) or os.path.islink(path):  # noqa: PTH112, PTH114
            trees.make_folder(path)
        now = fingerprint(path)
        if now == self._fingerprint:
            return None
        if not os.listdir(path):  # noqa: PTH208
            return SavedHome(head=HomeHead(), fingerprint=now)
        with _scratch(self._root) as archive:
            pack(path, archive)
            size = archive.tell()
            digest = _digest(archive)
            self._store.put(
                self._bucket, keys.home_pack_key(scope, digest), archive, size_bytes=size
            )
        return SavedHome(head=HomeHead(pack=digest, size_bytes=size), fingerprint=now)

    def publish(self, scope: Scope, saved: SavedHome) -> None:
        """Make ``home/head`` name what was saved, after the commit."""
        self._store.put(self._bucket, keys.home_head_key(scope), saved.head.to_bytes())
        self._head = saved.head
        self._fingerprint = saved.fingerprint

    def discard(self) -> None:
        """Remove the HOME on disk; the next cell restores what was saved."""
        if self._scope is not None:
            trees.remove(self.path(self._scope))
        self._scope = None
        self._head = None
        self._fingerprint = ""

    def _download(self, scope: Scope, pack_digest: str, archive: BinaryIO) -> None:
        digest = hashlib.sha256()

        def write(chunk: bytes) -> None:
            digest.update(chunk)
            archive.write(chunk)

        key = keys.home_pack_key(scope, pack_digest)
        self._store.download(self._bucket, key, write)
        if digest.hexdigest() != pack_digest:
            raise StorageUnavailable("the saved HOME does not have the digest that its head names")
        archive.seek(0)


def fingerprint(top: str) -> str:
    """Return a value that changes when anything in the tree does.

    Installed packages and caches are compared by identity, size and times, other files up to
    8 MiB by content too: a write through a shared mapping changes no time on tmpfs.
    """
    digest = hashlib.sha256()
    for found in trees.walk(top):
        s = found.status
        facts = (found.path, s.st_mode, s.st_ino, s.st_size, s.st_mtime_ns, s.st_ctime_ns)
        if stat.S_ISDIR(s.st_mode):
            facts = (found.path, s.st_mode, s.st_ino, 0, 0, 0)
        digest.update(repr(facts).encode("utf-8", "surrogateescape"))
        if (
            stat.S_ISREG(s.st_mode)
            and s.st_size <= _HASHED_BYTES
            and not found.path.startswith(_LIBRARY_PREFIXES)
        ):
            with trees.reading(found.name, found.folder) as descriptor:
                digest.update(_hash_of(descriptor))
    return digest.hexdigest()


def pack(top: str, archive: BinaryIO) -> None:
    """Write folders, regular files and symlinks under ``top`` to ``archive`` as tar."""
    skipped = 0
    with tarfile.open(fileobj=archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for found in trees.walk(top):
            info = _member(found)
            if info is None:
                skipped += 1
            elif info.isreg():
                with (
                    trees.reading(found.name, found.folder) as descriptor,
                    open(descriptor, "rb", closefd=False) as file,
                ):
                    tar.addfile(info, file)
            else:
                tar.addfile(info)
    if skipped:
        logger.info("special files of a HOME are not saved", extra={"count": skipped})


def unpack(archive: BinaryIO, top: str) -> None:
    """Write the members of ``archive`` under the new folder ``top``.

    Symlinks come last, so that no member is ever written through one.
    """
    links: list[tarfile.TarInfo] = []
    folders: list[tarfile.TarInfo] = []
    with tarfile.open(fileobj=archive, mode="r:") as tar:
        for info in tar:
            path = _target(top, info.name)
            if info.isdir():
                os.makedirs(path, 0o700, exist_ok=True)  # noqa: PTH103
                folders.append(info)
            elif info.issym():
                links.append(info)
            elif info.isreg():
                _write(path, cast("IO[bytes]", tar.extractfile(info)), info)
    for info in links:
        Path(_target(top, info.name)).symlink_to(info.linkname)
    for info in reversed(folders):
        path = _target(top, info.name)
        os.chmod(path, info.mode & 0o777)  # noqa: PTH101
        os.utime(path, (info.mtime, info.mtime))


def _member(found: trees.Found) -> tarfile.TarInfo | None:
    info = tarfile.TarInfo(found.path)
    info.mode = stat.S_IMODE(found.status.st_mode) & 0o777
    info.mtime = found.status.st_mtime
    if stat.S_ISDIR(found.status.st_mode) and found.walked:
        info.type = tarfile.DIRTYPE
    elif stat.S_ISLNK(found.status.st_mode):
        info.type = tarfile.SYMTYPE
        info.linkname = os.readlink(found.name, dir_fd=found.folder)
    elif stat.S_ISREG(found.status.st_mode):
        info.size = found.status.st_size
    else:
        return None
    return info


def _write(path: str, source: IO[bytes], info: tarfile.TarInfo) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        while chunk := source.read(1024 * 1024):
            file.write(chunk)
        os.fchmod(descriptor, info.mode & 0o777)
        file.flush()
        os.utime(descriptor, (info.mtime, info.mtime))


def _target(top: str, name: str) -> str:
    if name.startswith("/") or ".." in name.split("/"):
        raise StorageUnavailable("the saved HOME holds a name outside of it")
    return f"{top}/{name}"


def _scratch(root: str) -> BinaryIO:
    flags = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
    return os.fdopen(os.open(root, flags, 0o600), "w+b")


def _digest(archive: BinaryIO) -> str:
    archive.seek(0)
    digest = hashlib.sha256()
    while chunk := archive.read(1024 * 1024):
        digest.update(chunk)
    archive.seek(0)
    return digest.hexdigest()


def _hash_of(descriptor: int) -> bytes:
    digest = hashlib.sha256()
    while chunk := os.read(descriptor, 1024 * 1024):
        digest.update(chunk)
    return digest.digest()


def user_site_names(home: str) -> Iterator[str]:
    """Yield the top-level modules and packages that pip put into this HOME."""
    base = Path(home, ".local/lib")
    try:
        folders = [path / "site-packages" for path in base.iterdir()]
        for folder in folders:
            for path in folder.iterdir():
                name = path.name.partition(".")[0]
                if name.isidentifier() and name != "__pycache__":
                    yield name
    except OSError:
        return
