"""A session in memory storage, without any child."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lambda_kernel.contract import paging
from lambda_kernel.contract.commit import CHUNK_BYTES, Namespace
from lambda_kernel.contract.scope import Scope
from lambda_kernel.contract.snapshot_report import NewObject, PatchedObject, SnapshotReport
from lambda_kernel.serving.memory import MemoryObjectStore
from lambda_kernel.serving.parallel import CallCount, Pool
from lambda_kernel.serving.reports import drafts_of
from lambda_kernel.serving.segments import Segment, SegmentCache, seal
from lambda_kernel.serving.session_objects import Shelf
from lambda_kernel.serving.snapshots import Snapshots

SCOPE = Scope(user="u1")
DAY = 20_000
INDEX = b'{"v":2,"vars":{}}'


@dataclass
class Session:
    """Writes and reads sessions as the line does."""

    store: MemoryObjectStore = field(default_factory=MemoryObjectStore)
    cache: SegmentCache = field(default_factory=lambda: SegmentCache(1024**3))
    pool: Pool = field(default_factory=lambda: Pool(CallCount()))
    stored_bytes: int = 0

    @property
    def shelf(self) -> Shelf:
        return Shelf(store=self.store, bucket="state", pool=self.pool, cache=self.cache)

    @property
    def snapshots(self) -> Snapshots:
        return Snapshots(self.shelf, lambda: DAY * 86_400.0)

    def write(
        self,
        new: dict[int, bytes],
        *,
        index: int,
        parent: Namespace | None = None,
        keep: tuple[int, ...] = (),
        patched: dict[tuple[int, int], dict[int, bytes]] | None = None,
        scope: Scope = SCOPE,
        recorded: Mapping[str, int] = MappingProxyType({}),
    ) -> Namespace:
        """Store a session; ``patched``: (id, base) to chunks by number."""
        memfd = os.memfd_create("out", os.MFD_ALLOW_SEALING)
        end = 0

        def put(body: bytes) -> int:
            nonlocal end
            begin = paging.page_aligned(end)
            paging.write_at(memfd, body, begin)
            end = begin + len(body) if body else end
            return begin

        objects = [NewObject(id=i, offset=put(b), size_bytes=len(b)) for i, b in new.items()]
        patches = [
            PatchedObject(id=i, base=base, chunks=tuple((n, put(b)) for n, b in chunks.items()))
            for (i, base), chunks in (patched or {}).items()
        ]
        report = SnapshotReport(
            size_bytes=end, index=index, keep=keep, new=tuple(objects), patched=tuple(patches)
        )
        before = parent or Namespace()
        drafts = drafts_of(report, before, 2**33)
        seal(memfd, end)
        written = Segment(memfd)
        saved = self.snapshots.save(scope, written, drafts, index, before, recorded)
        written.release()
        self.stored_bytes = saved.stored_bytes
        return saved.namespace

    def read(
        self, namespace: Namespace, scope: Scope = SCOPE, source: Scope | None = None
    ) -> dict[int, bytes]:
        objects = self.snapshots.open(scope, namespace, source)
        try:
            found = objects.places(stored.id for stored in namespace.objects)
            return {i: b"".join(place.read() for place in places) for i, places in found}
        finally:
            objects.close()

    def forget(self) -> None:
        """Go on in a fresh container."""
        self.cache.clear()
        self.store.calls.clear()

    def close(self) -> None:
        self.pool.close()
        self.cache.clear()


def chunks(text: str, last: bytes = b"") -> bytes:
    """Return one chunk for each letter, and a shorter last one."""
    return b"".join(letter.encode() * CHUNK_BYTES for letter in text) + last
