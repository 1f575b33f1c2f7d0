"""Packs: the bytes of many small files as few objects, written and read in parallel."""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from lambda_kernel.contract import keys
from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.serving.home_manifest import Extent, HomeEntry
from lambda_kernel.serving.objects import ObjectStore
from lambda_kernel.serving.parallel import Pool

PACK_BYTES = 16 * 1024 * 1024
AT_ONCE = 4
"""Packs in memory while they go up or come down."""
GAP_BYTES = 256 * 1024
SMALL_PACKS = 32
"""With more packs that hold less than a quarter of what they may, those are written anew."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Where bytes of a pack go: to ``path``, from ``position`` on."""

    path: str
    position: int
    extent: Extent


class PackWriter:
    """Cuts a stream of files into packs and stores each as soon as it is full."""

    def __init__(self, store: ObjectStore, bucket: str, scope: Scope, pool: Pool) -> None:
        self._store = store
        self._bucket = bucket
        self._scope = scope
        self._pool = pool
        self._buffer = bytearray()
        self._waiting: deque[Future[tuple[None, int]]] = deque()
        self._number = 0
        self._names: dict[int, str] = {}

    def add(self, descriptor: int, size_bytes: int) -> list[tuple[int, int, int]]:
        """Take the bytes of an open file.

        Returns:
            Places ``(pack number, offset, length)``; ``close`` tells the packs' names.

        Raises:
            StorageUnavailable: a pack could not be stored.
        """
        places: list[tuple[int, int, int]] = []
        left = size_bytes
        while left:
            room = PACK_BYTES - len(self._buffer)
            chunk = os.read(descriptor, min(left, room))
            if not chunk:
                raise StorageUnavailable("a file in HOME became shorter while it was read")
            _add_place(places, self._number, len(self._buffer), len(chunk))
            self._buffer += chunk
            left -= len(chunk)
            if len(self._buffer) == PACK_BYTES:
                self._store_pack()
        return places

    def close(self) -> dict[int, str]:
        """Begin to store what is left and return the packs' digests by number."""
        if self._buffer:
            self._store_pack()
        return self._names

    def wait(self) -> None:
        """Come back when every pack is stored (raises StorageUnavailable)."""
        futures, self._waiting = list(self._waiting), deque()
        self._pool.wait_all(futures)

    def _store_pack(self) -> None:
        body = bytes(self._buffer)
        self._buffer.clear()
        digest = hashlib.sha256(body).hexdigest()
        self._names[self._number] = digest
        self._number += 1
        while len(self._waiting) >= AT_ONCE:
            self._pool.wait(self._waiting.popleft())
        self._waiting.append(self._pool.start(self._put, digest, body))

    def _put(self, digest: str, body: bytes) -> None:
        key = keys.home_pack_key(self._scope, digest)
        self._store.put(self._bucket, key, body, sha256=digest)


def pieces_by_pack(files: Iterable[tuple[str, HomeEntry]]) -> dict[str, list[Piece]]:
    """Return what must be read from each pack, in the order of the pack."""
    found: dict[str, list[Piece]] = {}
    for path, entry in files:
        position = 0
        for extent in entry.extents:
            found.setdefault(extent.pack, []).append(Piece(path, position, extent))
            position += extent.length
    for pieces in found.values():
        pieces.sort(key=lambda piece: piece.extent.offset)
    return found


def spans(pieces: list[Piece]) -> Iterator[list[Piece]]:
    """Cut the pieces of one pack into runs without a large gap: one request each."""
    run: list[Piece] = []
    end = 0
    for piece in pieces:
        if run and piece.extent.offset - end > GAP_BYTES:
            yield run
            run = []
        run.append(piece)
        end = max(end, piece.extent.offset + piece.extent.length)
    if run:
        yield run


def read_span(
    store: ObjectStore, bucket: str, scope: Scope, run: list[Piece]
) -> Iterator[tuple[Piece, memoryview]]:
    """Yield the bytes of each piece of a run.

    Raises:
        StorageUnavailable: the pack is missing or shorter than it was.
    """
    start = run[0].extent.offset
    length = max(piece.extent.offset + piece.extent.length for piece in run) - start
    body = bytearray()
    key = keys.home_pack_key(scope, run[0].extent.pack)
    store.download(bucket, key, body.extend, (start, length))
    if len(body) != length:
        raise StorageUnavailable("a pack of the HOME is shorter than its manifest says")
    view = memoryview(body)
    for piece in run:
        offset = piece.extent.offset - start
        yield piece, view[offset : offset + piece.extent.length]


def worn_packs(entries: Iterable[HomeEntry]) -> set[str]:
    """Return the packs that hold little, where there are many of them; they are written anew."""
    held: dict[str, int] = {}
    for entry in entries:
        for extent in entry.extents:
            held[extent.pack] = held.get(extent.pack, 0) + extent.length
    small = {pack for pack, size in held.items() if size < PACK_BYTES // 4}
    return small if len(small) > SMALL_PACKS else set()


def named(places: list[tuple[int, int, int]], names: dict[int, str]) -> tuple[Extent, ...]:
    """Return places as extents, once the packs have names."""
    return tuple(Extent(names[number], offset, length) for number, offset, length in places)


def _add_place(places: list[tuple[Any, ...]], number: int, offset: int, length: int) -> None:
    if places and places[-1][0] == number and places[-1][1] + places[-1][2] == offset:
        places[-1] = (number, places[-1][1], places[-1][2] + length)
    else:
        places.append((number, offset, length))
