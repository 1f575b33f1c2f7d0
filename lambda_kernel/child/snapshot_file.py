"""The bytes of a snapshot: pickled variables one after the other, then what describes them."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
from collections.abc import Iterable, Mapping
from typing import Any

from lambda_kernel.contract import paging
from lambda_kernel.contract.cell_protocol import NewObject, SnapshotReport
from lambda_kernel.contract.outcome import LostName

MAGIC = b"LKSNAP01"
MIN_SECRET_CHARACTERS = 8

_FOOTER = struct.Struct("!QQ8s")


class SnapshotTooLarge(Exception):
    """The session's variables take more bytes than a snapshot may have."""


class SnapshotUnreadable(Exception):
    """The bytes are not a snapshot that this version and this Python can read."""


class SecretFound(Exception):
    """A variable holds the value of a connector's secret, which is never stored."""


def open_pack(snapshot_in: int, pager: int) -> tuple[int, int]:
    """Return a memfd of our own with the session's pack (empty: none), and the highest id in use.

    Raises:
        SnapshotUnreadable: it cannot be had.
    """
    try:
        header = paging.SnapshotHeader.read(snapshot_in)
    except ValueError as error:
        raise SnapshotUnreadable(str(error)) from error
    memfd = os.memfd_create("lkg-pack", os.MFD_CLOEXEC)
    packs = [held for held in header.objects if held.id != header.index]
    if not packs:
        return memfd, header.highest_id
    if packs[0].offset >= 0:
        paging.write_at(memfd, os.pread(snapshot_in, packs[0].size_bytes, packs[0].offset), 0)
        return memfd, header.highest_id
    try:
        found = paging.ask(pager, [packs[0].id])
    except paging.PagerError as error:
        raise SnapshotUnreadable(str(error)) from error
    position = 0
    for descriptor, offset, size in found[packs[0].id]:
        paging.write_at(memfd, os.pread(descriptor, size, offset), position)
        position += size
    paging.close_all(found)
    return memfd, header.highest_id


def report_of(
    descriptor: int,
    size_bytes: int,
    highest_id: int,
    names: Mapping[str, str],
    lost: tuple[LostName, ...],
) -> SnapshotReport:
    """Write the index behind the pack and return what is told of both."""
    variables = {name: {"type": type_name} for name, type_name in names.items()}
    text = json.dumps({"v": 2, "vars": variables}).encode("ascii")
    offset = paging.page_aligned(size_bytes)
    paging.write_at(descriptor, text, offset)
    pack = NewObject(id=highest_id + 1, offset=0, size_bytes=size_bytes)
    index = NewObject(id=highest_id + 2, offset=offset, size_bytes=len(text))
    return SnapshotReport(
        size_bytes=offset + len(text), index=index.id, new=(pack, index), lost=lost
    )


class SnapshotReader(io.RawIOBase):
    """Reads a descriptor by position: others may hold the same open file."""

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._size = os.fstat(descriptor).st_size
        self._offset = 0

    @property
    def size_bytes(self) -> int:
        """How long the file is; 0 where there is no snapshot."""
        return self._size

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` from the current position."""
        count = os.preadv(self._descriptor, [buffer], self._offset)
        self._offset += count
        return count

    def read_at(self, offset: int, size: int) -> bytes:
        """Return ``size`` bytes from ``offset``; fewer at the end of the file."""
        parts = []
        while size > 0 and (part := os.pread(self._descriptor, size, offset)):
            parts.append(part)
            offset += len(part)
            size -= len(part)
        return b"".join(parts)

    def settings(self) -> dict[str, Any]:
        """Return what describes the snapshot.

        Raises:
            SnapshotUnreadable: there is no such description.
        """
        footer = self.read_at(max(0, self._size - _FOOTER.size), _FOOTER.size)
        if len(footer) != _FOOTER.size:
            raise SnapshotUnreadable("the snapshot is cut short")
        offset, size, magic = _FOOTER.unpack(footer)
        if magic != MAGIC or offset + size + _FOOTER.size != self._size:
            raise SnapshotUnreadable("the snapshot is cut short or of another version")
        settings: dict[str, Any] = pickle.loads(self.read_at(offset, size))
        return settings

    def buffered(self) -> io.BufferedReader:
        """Return a reader from the beginning."""
        self._offset = 0
        return io.BufferedReader(self, 256 * 1024)


class SnapshotWriter:
    """Writes a snapshot: within its limit, and without any secret.

    Args:
        descriptor: an empty file; None to write nowhere, only to check.
        limit_bytes: what it may hold.
        secrets: variable names of the environment and their values.
    """

    def __init__(
        self, descriptor: int | None, limit_bytes: int, secrets: Mapping[str, bytes]
    ) -> None:
        self._descriptor = descriptor
        self._limit_bytes = limit_bytes
        self._secrets = secrets
        self._overlap = max((len(value) for value in secrets.values()), default=1) - 1
        self._tail = b""
        self.size_bytes = 0

    def write(self, chunk: Any) -> int:
        """Append ``chunk`` (raises SnapshotTooLarge, SecretFound)."""
        view = memoryview(chunk).cast("B")
        self.size_bytes += len(view)
        if self.size_bytes > self._limit_bytes:
            raise SnapshotTooLarge(f"the variables take more than {self._limit_bytes} bytes")
        if self._secrets:
            self._search(bytes(view))
        if self._descriptor is not None:
            rest = view
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        return len(view)

    def finish(self, settings: dict[str, Any]) -> int:
        """Write what describes the snapshot; returns the whole size in bytes."""
        self._secrets = {}
        offset = self.size_bytes
        body = pickle.dumps(settings, protocol=pickle.HIGHEST_PROTOCOL)
        self.write(body)
        self.write(_FOOTER.pack(offset, len(body), MAGIC))
        return self.size_bytes

    def _search(self, chunk: bytes) -> None:
        text = self._tail + chunk
        for name, value in self._secrets.items():
            if value in text:
                raise SecretFound(f"it holds the value of {name}")
        self._tail = text[-self._overlap :] if self._overlap else b""


def secret_values(environment: Mapping[str, str], names: Iterable[str]) -> dict[str, bytes]:
    """Return the values to keep out of snapshots; very short ones would match anything."""
    return {
        name: environment[name].encode("utf-8", "surrogateescape")
        for name in names
        if len(environment[name]) >= MIN_SECRET_CHARACTERS
    }
