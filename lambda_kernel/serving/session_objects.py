"""The objects of the session that a cell starts from, fetched when they are asked for."""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import os
import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from lambda_kernel.contract import keys, paging
from lambda_kernel.contract.commit import Blob, Namespace, StoredObject
from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving.errors import StorageUnavailable
from lambda_kernel.serving.objects import ObjectStore
from lambda_kernel.serving.parallel import Pool
from lambda_kernel.serving.segments import SEALS, Holder, Place, Segment, SegmentCache


class UnknownObject(Exception):
    """The session has no such object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shelf:
    """Where the chunks of sessions are: in S3, and in memory.

    Attributes:
        store, bucket: S3.
        pool: threads for requests.
        cache: what is in memory.
    """

    store: ObjectStore
    bucket: str
    pool: Pool
    cache: SegmentCache


class SessionObjects:
    """The objects of one session, for one cell.

    Args:
        shelf: where chunks are.
        scope: whose memory they are kept in.
        namespace: what objects there are.
        source: whose stored chunks they are; None = the scope's own.

    Attributes:
        fetched_bytes: read from S3 so far.
        is_cancelled: questions that are being answered end soon, without an answer.
        snapshot_in: descriptor of what the child gets.
    """

    def __init__(
        self, shelf: Shelf, scope: Scope, namespace: Namespace, source: Scope | None = None
    ) -> None:
        self._shelf = shelf
        self._scope = scope
        self._source = source or scope
        self._objects = {stored.id: stored for stored in namespace.objects}
        self._holder = Holder()
        self._ready: dict[int, list[Place]] = {}
        self._chunks: dict[str, Place] = {}
        self._lock = threading.Lock()
        self.is_cancelled = False
        self.fetched_bytes = 0
        try:
            self.snapshot_in = self._snapshot_in(namespace)
        except BaseException:
            self._holder.close()
            raise

    def places(self, ids: Iterable[int]) -> list[tuple[int, list[Place]]]:
        """Return where objects are, chunk by chunk; they stay there until the cell ends.

        Raises:
            UnknownObject: the session has no such object.
            StorageUnavailable: one cannot be read.
        """
        wanted = list(dict.fromkeys(ids))
        for object_id in wanted:
            if object_id not in self._objects:
                raise UnknownObject(f"there is no object {object_id}")
        # One question at a time fetches: the same chunk never twice.
        with self._lock:
            unread = [self._objects[i] for i in wanted if i not in self._ready]
            self._bring(unread)
            for stored in unread:
                self._ready[stored.id] = [self._chunks[blob.digest] for blob in stored.chunks]
            return [(object_id, self._ready[object_id]) for object_id in wanted]

    def close(self) -> None:
        """Let go of everything, ``snapshot_in`` included."""
        self._holder.close()

    def _snapshot_in(self, namespace: Namespace) -> int:
        memfd = os.memfd_create("snapshot-in", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        segment = Segment(memfd)
        self._holder.hold(segment)
        segment.release()
        if namespace.objects:
            sizes = {stored.id: stored.size_bytes for stored in namespace.objects}
            bodies = {
                stored.id: _inline(stored.chunks[0])
                for stored in namespace.objects
                if len(stored.chunks) == 1 and stored.chunks[0].inline is not None
            }
            index = self._objects.get(namespace.index)
            if index is not None and index.id not in bodies:
                places = dict(self.places([index.id]))[index.id]
                bodies[index.id] = b"".join(place.read() for place in places)
            header = paging.write_snapshot_in(memfd, namespace.index, sizes, bodies)
            for held in header.objects:
                if held.offset >= 0:
                    whole = Place(segment, held.offset, held.size_bytes)
                    self._ready.setdefault(held.id, [whole])
        fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, SEALS)
        return memfd

    def _bring(self, wanted: Sequence[StoredObject]) -> None:
        blobs = {blob.digest: blob for stored in wanted for blob in stored.chunks}
        unknown = [digest for digest in blobs if digest not in self._chunks]
        if not unknown:
            return
        found = self._shelf.cache.find(self._scope, unknown, self._holder)
        self._chunks.update(found)
        missing = [blobs[digest] for digest in unknown if digest not in found]
        if missing:
            self._fetch(missing)

    def _fetch(self, blobs: Sequence[Blob]) -> None:
        """Bring chunks from S3 into one new segment."""
        offsets, size = [], 0
        for blob in blobs:
            offsets.append(size)
            size = paging.page_aligned(size + blob.size_bytes)
        memfd = os.memfd_create("snapshot-segment", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(memfd, size)

            def bring(numbered: tuple[int, Blob]) -> None:
                offset, blob = numbered
                paging.write_at(memfd, self._get(blob), offset)

            self._shelf.pool.map(bring, zip(offsets, blobs, strict=True))
            fcntl.fcntl(memfd, fcntl.F_ADD_SEALS, SEALS)
        except BaseException:
            os.close(memfd)
            raise
        segment = Segment(memfd)
        places = {
            blob.digest: Place(segment, offset, blob.size_bytes)
            for offset, blob in zip(offsets, blobs, strict=True)
        }
        self._holder.hold(segment)
        self._shelf.cache.add(self._scope, segment, places)
        segment.release()
        self._chunks.update(places)
        self.fetched_bytes += sum(blob.size_bytes for blob in blobs)

    def _get(self, blob: Blob) -> bytes:
        if self.is_cancelled:
            raise StorageUnavailable("the cell has ended")
        if blob.inline is not None:
            return _inline(blob)
        key = keys.blob_key(self._source, blob.digest, blob.day)
        return _verified(self._shelf.store.get(self._shelf.bucket, key), blob)


def _inline(blob: Blob) -> bytes:
    try:
        chunk = base64.b64decode(blob.inline or "", validate=True)
    except (binascii.Error, ValueError) as error:
        raise StorageUnavailable("a stored variable is damaged") from error
    return _verified(chunk, blob)


def _verified(chunk: bytes, blob: Blob) -> bytes:
    if len(chunk) != blob.size_bytes or hashlib.sha256(chunk).hexdigest() != blob.digest:
        raise StorageUnavailable("a stored variable does not have the digest that names it")
    return chunk
