"""What is deleted of old sessions, and what never is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from kernel_gateway.errors import StorageError
from kernel_gateway.garbage import GarbageCollector, GarbageReport
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.options import KernelOptions
from kernel_gateway.kernels.position import Origin
from kernel_gateway.kernels.record import KernelRecord
from kernel_gateway.objects import MemoryObjectStore
from kernel_gateway.retention import DAY_S, Retention
from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Blob, Commit, Namespace, StoredObject
from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.outcome import Outcome, Status
from lambda_kernel.contract.scope import Scope
from lambda_kernel.storage.s3_requests import ListedObject

STACK = Stack()
SCOPE = Scope(user="u1")
KERNEL = "12345678-1234-1234-1234-123456789012"
OTHER = KERNEL.replace("1", "2")
RETENTION = Retention(days=30, cells=5, timeout_s=900)


class RacingStore(MemoryObjectStore):
    """Does something when the listing comes to the first key that contains a word."""

    word = ""
    act: Any = None
    deleted: asyncio.Event | None = None

    async def delete(self, bucket: str, key: str) -> None:
        await super().delete(bucket, key)
        if self.deleted is not None:
            self.deleted.set()

    async def entries(
        self, bucket: str, prefix: str, *, after: str = ""
    ) -> AsyncIterator[ListedObject]:
        async for entry in super().entries(bucket, prefix, after=after):
            if self.act is not None and self.word in entry.key:
                act, self.act = self.act, None
                await act()
            yield entry


@dataclass
class Bucket:
    """The state bucket as cells fill it, with a clock of its own."""

    time: float = 20_000.5 * DAY_S
    store: RacingStore = field(default_factory=RacingStore)

    def __post_init__(self) -> None:
        self.store.now = lambda: self.time

    @property
    def day(self) -> int:
        return int(self.time // DAY_S)

    async def chunk(self, digest: str) -> Blob:
        blob = Blob(digest=digest, size_bytes=10, day=self.day)
        await self.store.put(STACK.state, keys.blob_key(SCOPE, digest, blob.day), b"x" * 10)
        return blob

    async def commit(
        self, seq: int, *blobs: Blob, kernel_id: str = KERNEL, void: bool = False
    ) -> None:
        outcome = Outcome(status=Status.OK, started=True, committed=False, nonce="0" * 32)
        body = Commit(
            kernel_id=kernel_id,
            scope_hash=SCOPE.hash,
            seq=seq,
            parent=None,
            void=void,
            request_id="0" * 32,
            execution_count=1,
            namespace=Namespace(
                objects=tuple(
                    StoredObject(id=n, size_bytes=10, chunks=(blob,))
                    for n, blob in enumerate(blobs, start=1)
                )
            ),
            outcome=None if void else outcome,
        ).to_bytes()
        await self.store.put(STACK.state, keys.commit_key(SCOPE, kernel_id, seq), body)

    async def kernel(self, kernel_id: str = KERNEL) -> None:
        await self.store.put(STACK.records, keys.kernel_record_key(kernel_id), b"{}")

    def collector(self) -> GarbageCollector:
        return GarbageCollector(self.store, STACK, RETENTION, lambda: self.time)

    async def collect(self, *, dry_run: bool = False) -> GarbageReport:
        return await self.collector().collect(dry_run=dry_run)

    @property
    def left(self) -> list[str]:
        return [key.rpartition("/")[2] for name, key in sorted(self.store.objects)
                if name == STACK.state]  # fmt: skip


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def seqs(*numbers: int) -> list[str]:
    return [f"{number:010d}" for number in numbers]


async def test_a_chunk_that_no_commit_names_goes_when_its_day_is_over(bucket: Bucket) -> None:
    await bucket.kernel()
    await bucket.chunk("garbage")
    await bucket.commit(1, await bucket.chunk("named"))
    bucket.time = 20_001 * DAY_S + RETENTION.grace_s - 1
    assert (await bucket.collect()).chunks == []
    bucket.time += 1
    report = await bucket.collect()
    assert [key.rpartition("/")[2] for key in report.chunks] == ["garbage"]
    assert report.size_bytes == 10
    assert bucket.left == ["named", *seqs(1)]


async def test_a_dry_run_deletes_nothing(bucket: Bucket) -> None:
    await bucket.chunk("garbage")
    bucket.time += 2 * DAY_S
    assert len((await bucket.collect(dry_run=True)).chunks) == 1
    assert bucket.left == ["garbage"]


async def test_commits_past_the_days_go_but_never_the_newest(bucket: Bucket) -> None:
    await bucket.kernel()
    await bucket.commit(1, await bucket.chunk("old"))
    await bucket.commit(2, await bucket.chunk("newest"))
    bucket.time += 40 * DAY_S
    await bucket.collect()
    assert bucket.left == ["newest", *seqs(2)]
    bucket.time += 400 * DAY_S
    await bucket.collect()
    assert bucket.left == ["newest", *seqs(2)]


async def test_commits_past_the_number_of_cells_go(bucket: Bucket) -> None:
    await bucket.kernel()
    for seq in range(1, 9):
        await bucket.commit(seq)
    assert (await bucket.collect()).commits == []
    bucket.time += RETENTION.grace_s + 1
    await bucket.collect()
    assert bucket.left == seqs(4, 5, 6, 7, 8)


async def test_what_void_commits_stand_on_is_kept(bucket: Bucket) -> None:
    await bucket.kernel()
    await bucket.commit(1, await bucket.chunk("old"))
    await bucket.commit(2, await bucket.chunk("state"))
    await bucket.commit(3, void=True)
    await bucket.commit(4, void=True)
    bucket.time += 40 * DAY_S
    await bucket.collect()
    assert bucket.left == ["state", *seqs(2, 3, 4)]


async def test_a_kernel_that_was_shut_down_leaves_nothing_for_ever(bucket: Bucket) -> None:
    await bucket.commit(1, await bucket.chunk("its"))
    bucket.time += 29 * DAY_S
    await bucket.collect()
    assert bucket.left == ["its", *seqs(1)]
    bucket.time += 2 * DAY_S
    await bucket.collect()
    assert bucket.left == []


async def test_a_chunk_that_another_kernel_names_is_kept(bucket: Bucket) -> None:
    await bucket.kernel(OTHER)
    shared = await bucket.chunk("shared")
    await bucket.commit(1, shared)
    await bucket.commit(1, shared, kernel_id=OTHER)
    bucket.time += 40 * DAY_S
    await bucket.collect()
    assert bucket.left == ["shared", *seqs(1)]


async def test_a_commit_that_lands_between_listing_and_deletion_keeps_its_chunks(
    bucket: Bucket,
) -> None:
    await bucket.kernel()
    kept = await bucket.chunk("kept")
    await bucket.commit(1, kept)
    bucket.time += 3 * DAY_S

    async def land() -> None:
        await bucket.commit(2, kept, await bucket.chunk("fresh"))

    for word in ("blobs", "kernels"):
        bucket.store.word, bucket.store.act = word, land
        await bucket.collect()
        assert bucket.left == ["kept", "fresh", *seqs(1, 2)]


async def test_garbage_that_a_cell_stores_again_meanwhile_stays_as_that_cell_stored_it(
    bucket: Bucket,
) -> None:
    await bucket.kernel()
    await bucket.chunk("same")
    await bucket.commit(1)
    bucket.time += 3 * DAY_S

    async def land() -> None:
        await bucket.commit(2, await bucket.chunk("same"))

    bucket.store.word, bucket.store.act = "kernels", land
    report = await bucket.collect()
    assert len(report.chunks) == 1
    assert bucket.left == ["same", *seqs(1, 2)]
    bucket.time += 3 * DAY_S
    assert (await bucket.collect()).chunks == []


async def test_a_cell_that_began_with_a_commit_that_left_retention_finds_its_chunks(
    bucket: Bucket,
) -> None:
    await bucket.kernel()
    old = await bucket.chunk("old")
    await bucket.commit(1, old)
    bucket.time += 3 * DAY_S
    for seq in range(2, 7):
        await bucket.commit(seq)
    bucket.time += RETENTION.timeout_s
    await bucket.collect()
    await bucket.commit(7, old)
    bucket.time += 100 + RETENTION.grace_s
    await bucket.collect()
    assert bucket.left == ["old", *seqs(3, 4, 5, 6, 7)]


async def test_where_a_commit_cannot_be_read_no_chunk_is_deleted(bucket: Bucket) -> None:
    await bucket.kernel()
    await bucket.chunk("who knows")
    await bucket.store.put(STACK.state, keys.commit_key(SCOPE, KERNEL, 1), b"of another version")
    bucket.time += 40 * DAY_S
    report = await bucket.collect()
    assert report.left == [keys.scope_prefix(SCOPE)]
    assert bucket.left == ["who knows", *seqs(1)]


async def test_other_objects_of_a_scope_are_left_alone(bucket: Bucket) -> None:
    for name in ("home/head", "home/packs/x", "blobs/flat", "blobs/day/x", "a/b/c"):
        await bucket.store.put(STACK.state, keys.scope_prefix(SCOPE) + name, b"x")
    bucket.time += 400 * DAY_S
    await bucket.collect()
    assert len(bucket.left) == 5


async def test_collecting_goes_on_after_storage_failed(bucket: Bucket) -> None:
    async def fail() -> None:
        raise StorageError("not now")

    await bucket.chunk("garbage")
    bucket.time += 3 * DAY_S
    bucket.store.act, bucket.store.deleted = fail, asyncio.Event()
    task = asyncio.create_task(bucket.collector().keep_collecting(0.0, 0.0))
    await bucket.store.deleted.wait()
    task.cancel()
    assert bucket.left == []


async def test_the_commit_that_a_kernel_was_forked_at_stays_with_the_kernel(bucket: Bucket) -> None:
    await bucket.kernel()
    for seq in (1, 2, 3):
        await bucket.commit(seq, await bucket.chunk(f"of-{seq}"))
    record = KernelRecord(
        kernel_id=OTHER,
        spec_name="lambda-python",
        owner=Identity(user="u1"),
        options=KernelOptions(),
        workdir_name="0" * 32,
        created="2026-01-01T00:00:00.000000Z",
        floor_seq=2,
        origin=Origin(kernel_id=KERNEL, head=Head(seq=2, digest="0" * 64), execution_count=2),
    )
    await bucket.store.put(STACK.records, keys.kernel_record_key(OTHER), record.to_bytes())
    bucket.time += 40 * DAY_S
    await bucket.collect()
    assert bucket.left == ["of-2", "of-3", *seqs(2, 3)]

    await bucket.store.delete(STACK.records, keys.kernel_record_key(OTHER))
    await bucket.collect()
    assert bucket.left == ["of-3", *seqs(3)]


async def test_a_kept_output_goes_with_retention_or_soon_after_its_kernel(bucket: Bucket) -> None:
    await bucket.kernel()
    for kernel_id in (KERNEL, OTHER):
        await bucket.store.put(STACK.state, keys.output_key(SCOPE, kernel_id, 7), b"x" * 10)
    assert (await bucket.collect()).outputs == []
    bucket.time += RETENTION.grace_s + 1
    assert (await bucket.collect()).outputs == [keys.output_key(SCOPE, OTHER, 7)]
    assert bucket.left == seqs(7)
    bucket.time += RETENTION.days * DAY_S
    report = await bucket.collect()
    assert (report.outputs, report.size_bytes) == ([keys.output_key(SCOPE, KERNEL, 7)], 10)
    assert bucket.left == []
