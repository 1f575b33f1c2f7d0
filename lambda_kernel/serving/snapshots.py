"""The session's variables: bytes of a child, stored with a commit and handed to the next child.

Nothing here knows what the bytes mean; only a child opens them.
"""

from __future__ import annotations

import base64
import binascii
import fcntl
import hashlib
import os
import sys
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Blob, Commit, Namespace, digest_of
from lambda_kernel.contract.invocation import INLINE_PACK_BYTES, Head, Invocation
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving.errors import InvalidRequest, SnapshotTooLarge, StorageUnavailable
from lambda_kernel.serving.objects import ObjectStore
from lambda_kernel.serving.parallel import Pool

CHUNK_BYTES = 4 * 1024 * 1024
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class ChunkCache:
    """Chunks by digest, in memory, the least recently used leave first.

    Keyed with the scope: that another scope holds the same bytes must not show.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._chunks: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """What the chunks measure together."""
        return self._bytes

    def get(self, scope: Scope, digest: str) -> bytes | None:
        """Return a chunk, or None."""
        with self._lock:
            chunk = self._chunks.get((scope.hash, digest))
            if chunk is not None:
                self._chunks.move_to_end((scope.hash, digest))
            return chunk

    def add(self, scope: Scope, digest: str, chunk: bytes) -> None:
        """Keep a chunk whose digest was verified."""
        with self._lock:
            if (scope.hash, digest) in self._chunks or len(chunk) > self._max_bytes:
                return
            self._chunks[scope.hash, digest] = chunk
            self._bytes += len(chunk)
            while self._bytes > self._max_bytes:
                _, old = self._chunks.popitem(last=False)
                self._bytes -= len(old)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pack:
    """The bytes a child left, cut into chunks: digests, and where each begins."""

    descriptor: int
    blobs: tuple[Blob, ...]


class Snapshots:
    """Namespaces in the state bucket."""

    def __init__(self, store: ObjectStore, bucket: str, pool: Pool, cache: ChunkCache) -> None:
        self._store = store
        self._bucket = bucket
        self._pool = pool
        self._cache = cache

    def parent(self, invocation: Invocation) -> Commit | None:
        """Return the commit that the cell starts from, verified; None for an empty session.

        Raises:
            InvalidRequest: it is not the commit that the invocation names.
            StorageUnavailable: it cannot be read.
        """
        head = invocation.parent_head
        stored = invocation.manifest_bytes()
        while head is not None:
            if stored is None:
                key = keys.commit_key(invocation.scope, invocation.kernel_id, head.seq)
                stored = self._store.get(self._bucket, key)
            commit = _checked_commit(invocation, head, stored)
            if not commit.void:
                return commit
            # The state of a void commit is that of its parent.
            head, stored = commit.parent, None
        return None

    def restore(self, scope: Scope, namespace: Namespace) -> int:
        """Return a sealed memfd with the bytes of ``namespace``; the caller closes it."""
        chunks = self._pool.map(lambda blob: self._chunk(scope, blob), namespace.chunks)
        descriptor = os.memfd_create("snapshot-in", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        for chunk in chunks:
            _write(descriptor, chunk)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _SEALS)
        return descriptor

    def cut(self, descriptor: int, max_bytes: int) -> Pack:
        """Return the chunks of what a child wrote into ``descriptor``.

        Raises:
            SnapshotTooLarge: it is over ``max_bytes``.
        """
        size = os.fstat(descriptor).st_size
        if size > max_bytes:
            raise SnapshotTooLarge(
                f"the session's variables measure {size / 1e6:.1f} MB, "
                f"the limit is {max_bytes / 1e6:.1f} MB"
            )
        if size <= INLINE_PACK_BYTES:
            body = os.pread(descriptor, size, 0)
            blob = Blob(
                digest=digest_of(body),
                size_bytes=len(body),
                inline=base64.b64encode(body).decode("ascii"),
            )
            return Pack(descriptor=descriptor, blobs=(blob,) if body else ())
        blobs = []
        for offset in range(0, size, CHUNK_BYTES):
            chunk = os.pread(descriptor, CHUNK_BYTES, offset)
            blobs.append(Blob(digest=hashlib.sha256(chunk).hexdigest(), size_bytes=len(chunk)))
        return Pack(descriptor=descriptor, blobs=tuple(blobs))

    def upload(self, scope: Scope, pack: Pack, known: Namespace) -> None:
        """Store the chunks that ``known`` (the parent's namespace) does not hold already."""
        stored = {blob.digest for blob in known.chunks if blob.inline is None}

        def put(numbered: tuple[int, Blob]) -> None:
            number, blob = numbered
            chunk = os.pread(pack.descriptor, blob.size_bytes, number * CHUNK_BYTES)
            self._store.put(self._bucket, keys.blob_key(scope, blob.digest), chunk)
            self._cache.add(scope, blob.digest, chunk)

        missing: dict[str, tuple[int, Blob]] = {}
        for number, blob in enumerate(pack.blobs):
            if blob.inline is None and blob.digest not in stored:
                missing.setdefault(blob.digest, (number, blob))
        self._pool.map(put, missing.values())

    def _chunk(self, scope: Scope, blob: Blob) -> bytes:
        if blob.inline is not None:
            try:
                chunk = base64.b64decode(blob.inline, validate=True)
            except (binascii.Error, ValueError) as error:
                raise StorageUnavailable("a stored variable is damaged") from error
            return _verified(chunk, blob)
        cached = self._cache.get(scope, blob.digest)
        if cached is not None:
            return cached
        chunk = _verified(self._store.get(self._bucket, keys.blob_key(scope, blob.digest)), blob)
        self._cache.add(scope, blob.digest, chunk)
        return chunk


def namespace_of(pack: Pack, names: Mapping[str, str]) -> Namespace:
    """Return what the commit says about the chunks of ``pack``."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return Namespace(chunks=pack.blobs, names=dict(names), python=version)


def _checked_commit(invocation: Invocation, head: Head, stored: bytes) -> Commit:
    if digest_of(stored) != head.digest:
        raise InvalidRequest("the parent commit does not have the digest that was named")
    try:
        commit = Commit.from_bytes(stored)
    except InvalidField as error:
        raise InvalidRequest(f"the parent commit cannot be read: {error}") from error
    named = (commit.scope_hash, commit.kernel_id, commit.seq)
    if named != (invocation.scope.hash, invocation.kernel_id, head.seq):
        raise InvalidRequest("the parent commit belongs to another session")
    return commit


def _verified(chunk: bytes, blob: Blob) -> bytes:
    if len(chunk) != blob.size_bytes or hashlib.sha256(chunk).hexdigest() != blob.digest:
        raise StorageUnavailable("a stored variable does not have the digest that names it")
    return chunk


def _write(descriptor: int, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
