"""Journals are deleted whole, long after their kernels have ended, and something says so."""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from kernel_gateway.audit.chain import Entry, digest_of
from kernel_gateway.audit.envelopes import Envelope
from kernel_gateway.audit.expiry import Expired, Expiry
from kernel_gateway.audit.key_folder import KeyFolder
from kernel_gateway.audit.signing import check_signature
from kernel_gateway.audit.trail_index import TrailIndex
from kernel_gateway.audit.trail_query import TrailQuery
from kernel_gateway.errors import StorageError
from kernel_gateway.objects import MemoryObjectStore
from kernel_gateway.retention import DAY_S, ObjectLock
from lambda_kernel.contract import keys
from lambda_kernel.contract.schema import InvalidField
from tests.unit.audit.trails import EVENTS, KERNEL_ID, OTHER_ID, a_journal

LIVE_ID = str(uuid.UUID(int=9))
RECORDS = "records"


@dataclass
class Clock:
    time: float = 1_000_000.0

    def __call__(self) -> float:
        return self.time


@dataclass
class Dying(MemoryObjectStore):
    """A store that fails after some deletions."""

    left: int = 1_000_000
    erased: list[str] = field(default_factory=list)

    async def erase(self, bucket: str, key: str) -> None:
        if self.left == 0:
            raise StorageError("S3 did not answer")
        self.left -= 1
        self.erased.append(key)
        await super().erase(bucket, key)


async def a_store(clock: Clock, folder: KeyFolder, *kernel_ids: str) -> Dying:
    store = Dying(now=clock)
    for kernel_id in kernel_ids:
        await a_journal(EVENTS, folder, kernel_id=kernel_id, store=store)
    return store


async def collect(
    store: MemoryObjectStore,
    clock: Clock,
    folder: KeyFolder,
    *,
    live: Collection[str] = (),
    dry_run: bool = False,
) -> Expired:
    return await Expiry(store, RECORDS, 30, folder, clock).collect(live, dry_run=dry_run)


def of(store: MemoryObjectStore, kernel_id: str) -> list[str]:
    return [key for _, key in store.objects if key.startswith(f"audit/{kernel_id}/")]


def tombstone(store: MemoryObjectStore, folder: KeyFolder) -> dict[str, Any]:
    (stored,) = [body for (_, key), body in store.objects.items() if "/tombstones/" in key]
    envelope = Envelope.around(stored)
    assert check_signature(envelope, folder.keys())
    with pytest.raises(InvalidField):
        Entry.from_bytes(envelope.payload_bytes)
    found: dict[str, Any] = json.loads(envelope.payload_bytes)
    return found


async def test_a_journal_goes_whole_and_a_signed_tombstone_stays(tmp_path: Path) -> None:
    clock, folder = Clock(), KeyFolder(tmp_path)
    store = await a_store(clock, folder, KERNEL_ID, OTHER_ID, LIVE_ID)
    clock.time += 20 * DAY_S
    await a_journal(EVENTS[:2], folder, kernel_id=str(uuid.UUID(int=10)), store=store)
    clock.time += 11 * DAY_S

    dry = await collect(store, clock, folder, live=[LIVE_ID], dry_run=True)
    before = dict(store.objects)
    found = await collect(store, clock, folder, live=[LIVE_ID, OTHER_ID])

    assert dry.kernel_ids == [KERNEL_ID, OTHER_ID]
    assert found.kernel_ids == [KERNEL_ID]
    assert of(store, KERNEL_ID) == []
    assert len(of(store, OTHER_ID)) == len(of(store, LIVE_ID)) == len(EVENTS) + 1
    assert len(of(store, str(uuid.UUID(int=10)))) == 2
    said = tombstone(store, folder)
    assert (said["kernel_id"], said["entries"]) == (KERNEL_ID, len(EVENTS))
    assert said["reason"] == "audit.retention_days = 30"
    last = Envelope.around(before[RECORDS, keys.journal_key(KERNEL_ID, len(EVENTS))])
    assert said["head"] == digest_of(last.payload_bytes)


async def test_what_searches_know_of_a_journal_goes_with_it(tmp_path: Path) -> None:
    clock, folder = Clock(), KeyFolder(tmp_path)
    store = await a_store(clock, folder, KERNEL_ID, LIVE_ID)
    index = TrailIndex(store, RECORDS)
    await index.search(TrailQuery(), lambda start: True)
    clock.time += 31 * DAY_S

    await collect(store, clock, folder, live=[LIVE_ID])

    indexed = [key for _, key in store.objects if key.startswith(keys.TRAIL_INDEX_PREFIX)]
    assert indexed == [keys.trail_index_key(LIVE_ID, 0)]
    left = (await index.search(TrailQuery(), lambda start: True)).cells
    assert {cell.kernel_id for cell in left} == {LIVE_ID}


async def test_a_journal_that_object_lock_holds_stays_whole(tmp_path: Path) -> None:
    clock, folder = Clock(), KeyFolder(tmp_path)
    store = await a_store(clock, folder, KERNEL_ID)
    lock = ObjectLock(mode="COMPLIANCE", age=timedelta(days=100))
    key = keys.journal_key(KERNEL_ID, 3)
    await store.put(RECORDS, key, store.objects[RECORDS, key], lock=lock)
    before = dict(store.objects)
    clock.time += 50 * DAY_S

    found = await collect(store, clock, folder)

    assert (found.kernel_ids, found.locked) == ([], [KERNEL_ID])
    assert store.objects == before
    clock.time += 51 * DAY_S
    assert (await collect(store, clock, folder)).kernel_ids == [KERNEL_ID]


@pytest.mark.parametrize("left", [0, 1, 5, len(EVENTS)])
async def test_a_deletion_that_was_cut_off_is_finished_by_the_next(
    tmp_path: Path, left: int
) -> None:
    clock, folder = Clock(), KeyFolder(tmp_path)
    store = await a_store(clock, folder, KERNEL_ID)
    clock.time += 31 * DAY_S
    store.left = left
    with pytest.raises(StorageError):
        await collect(store, clock, folder)
    assert of(store, KERNEL_ID)

    store.left = 1_000
    found = await collect(store, clock, folder)

    assert found.kernel_ids == [KERNEL_ID]
    assert of(store, KERNEL_ID) == []
    assert tombstone(store, folder)["entries"] == len(EVENTS)
    assert store.erased[-1] == keys.journal_key(KERNEL_ID, len(EVENTS))


async def test_a_journal_whose_end_is_no_entry_is_left_and_named(tmp_path: Path) -> None:
    clock, folder = Clock(), KeyFolder(tmp_path)
    store = await a_store(clock, folder, KERNEL_ID)
    await store.put(RECORDS, keys.journal_key(KERNEL_ID, len(EVENTS)), b"{}")
    before = dict(store.objects)
    clock.time += 31 * DAY_S

    found = await collect(store, clock, folder)

    assert (found.kernel_ids, found.unreadable) == ([], [KERNEL_ID])
    assert store.objects == before
