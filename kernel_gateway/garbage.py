"""Deletes what no session needs any more: commits past their retention, chunks that none names.

Cells commit meanwhile, here and in other gateways, and nobody holds a lock. It is sound because

- a chunk is named either by a commit that wrote it (its key has that day, and the day is over for
  longer than any cell can take), or by one whose parent names it too;
- the parent of whatever runs is not deleted: it is the newest of its kernel, or it left retention
  a shorter time ago than a cell can take, or a kernel's record says that it was forked there;
- nobody writes to a chunk's key again once its day is over: what is garbage stays garbage.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kernel_gateway.audit.envelopes import Sealer
from kernel_gateway.audit.expiry import Expired, Expiry
from kernel_gateway.errors import NotFound, StorageError
from kernel_gateway.kernels.record import RecordStore
from kernel_gateway.objects import ObjectStore
from kernel_gateway.retention import DAY_S, Retention
from lambda_kernel.contract.commit import Commit
from lambda_kernel.contract.keys import Stack, commit_key
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.storage.s3_requests import ListedObject

logger = logging.getLogger(__name__)

REQUESTS_AT_ONCE = 8
START_DELAY_S = 60.0
"""The first cells after a start have S3 for themselves."""


@dataclass(slots=True, kw_only=True)
class GarbageReport:
    """What was deleted, or would be.

    Attributes:
        commits, chunks, outputs: keys in the state bucket.
        size_bytes: of all of them.
        left: prefixes of scopes whose chunks were left alone: a commit could not be read.
        journals: kernels whose journals expired.
        journals_locked: kernels whose journals would have, but Object Lock holds them.
        journals_unreadable: kernels whose journals would have, but end with no entry.
    """

    commits: list[str] = field(default_factory=list)
    chunks: list[str] = field(default_factory=list)
    outputs: list[str] = field(default_factory=list)
    size_bytes: int = 0
    left: list[str] = field(default_factory=list)
    journals: list[str] = field(default_factory=list)
    journals_locked: list[str] = field(default_factory=list)
    journals_unreadable: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _ScopeListing:
    prefix: str
    chunks: list[ListedObject] = field(default_factory=list)
    chains: dict[str, list[ListedObject]] = field(default_factory=dict)
    outputs: list[ListedObject] = field(default_factory=list)


class _Unreadable(Exception):
    """A commit that must be kept cannot be read: nobody knows what it names."""


class GarbageCollector:
    """Collects garbage in one deployment's state bucket.

    Args:
        store: S3, with the gateway's own rights.
        stack: names of the buckets.
        retention: what is kept.
        now: Unix time.
        sealer: signs what is left of a journal; None = it is not signed.
    """

    def __init__(
        self,
        store: ObjectStore,
        stack: Stack,
        retention: Retention,
        now: Callable[[], float] = time.time,
        sealer: Sealer | None = None,
    ) -> None:
        self._store = store
        self._bucket = stack.state
        self._records = RecordStore(store=store, bucket=stack.records)
        self._retention = retention
        self._now = now
        days = retention.journal_days
        self._expiry = days and Expiry(store, stack.records, days, sealer, now)
        self._at_once = asyncio.Semaphore(REQUESTS_AT_ONCE)
        self._running = asyncio.Lock()

    async def collect(self, *, dry_run: bool = False) -> GarbageReport:
        """Delete all garbage, or only say what it is (raises StorageError)."""
        report = GarbageReport()
        async with self._running:
            # First: a kernel that is made later has commits that are younger than any limit.
            kernels = set(await self._records.etags())
            origins = await self._origins(kernels)
            async for scope in self._scopes():
                await self._collect_scope(scope, kernels, origins, report, dry_run=dry_run)
            if self._expiry:
                _note(report, await self._expiry.collect(kernels, dry_run=dry_run))
        if not dry_run:
            logger.info(
                "garbage was collected",
                extra={"commits": len(report.commits), "chunks": len(report.chunks)}
                | {"size_bytes": report.size_bytes},
            )
        return report

    async def keep_collecting(self, interval_s: float, delay_s: float = START_DELAY_S) -> None:
        """Collect now and then until cancelled; what fails is tried again the next time."""
        await asyncio.sleep(delay_s)
        while True:
            try:
                await self.collect()
            except StorageError:
                logger.warning("garbage could not be collected", exc_info=True)
            await asyncio.sleep(interval_s)

    async def _origins(self, kernel_ids: Iterable[str]) -> set[str]:
        """Return the keys of the commits that kernels were forked at (raises StorageError)."""
        found = await asyncio.gather(*(self._origin(kernel_id) for kernel_id in kernel_ids))
        return {key for key in found if key is not None}

    async def _origin(self, kernel_id: str) -> str | None:
        async with self._at_once:
            try:
                record, _ = await self._records.read(kernel_id)
            except NotFound:
                return None
            except StorageError as problem:
                if isinstance(problem.__cause__, InvalidField):
                    # Not even the gateway can start from it.
                    return None
                raise
        if record.origin is None:
            return None
        scope = record.options.scope_of(record.owner, kernel_id)
        return commit_key(scope, record.origin.kernel_id, record.origin.head.seq)

    async def _scopes(self) -> AsyncIterator[_ScopeListing]:
        # In key order the chunks of a scope come before its commits: what commits later is seen.
        current = _ScopeListing("")
        async for entry in self._store.entries(self._bucket, "users/"):
            parts = entry.key.split("/")
            if len(parts) != 6 or parts[3] not in {"blobs", "kernels", "outputs"}:
                continue
            prefix = "/".join(parts[:3]) + "/"
            if prefix != current.prefix:
                if current.prefix:
                    yield current
                current = _ScopeListing(prefix)
            if parts[3] == "kernels":
                current.chains.setdefault(parts[4], []).append(entry)
            elif parts[3] == "outputs":
                current.outputs.append(entry)
            elif self._is_old(parts[4], entry):
                current.chunks.append(entry)
        if current.prefix:
            yield current

    def _is_old(self, day: str, entry: ListedObject) -> bool:
        """Whether a chunk is so old that every commit that wrote it can be seen."""
        if not (day.isascii() and day.isdecimal()):
            return False
        ended = max((int(day) + 1) * DAY_S, entry.last_modified)
        return ended + self._retention.grace_s <= self._now()

    async def _collect_scope(
        self,
        scope: _ScopeListing,
        kernels: set[str],
        origins: set[str],
        report: GarbageReport,
        *,
        dry_run: bool,
    ) -> None:
        kept: list[ListedObject] = []
        gone: list[ListedObject] = []
        for kernel_id, chain in scope.chains.items():
            expired = expired_commits(
                chain, self._retention, self._now(), is_kept=kernel_id in kernels
            )
            if expired and kernel_id in kernels:
                tail = await self._tail(chain)
                expired = [entry for entry in expired if entry.key not in tail]
            expired = [entry for entry in expired if entry.key not in origins]
            keys = {entry.key for entry in expired}
            gone += expired
            kept += [entry for entry in chain if entry.key not in keys]
        garbage: list[ListedObject] = []
        if scope.chunks:
            try:
                named = await self._named(kept)
            except _Unreadable:
                logger.warning("a commit cannot be read", extra={"scope": scope.prefix})
                report.left.append(scope.prefix)
            else:
                garbage = [e for e in scope.chunks if _chunk_of(e.key) not in named]
        outputs = expired_outputs(scope.outputs, kernels, self._retention, self._now())
        report.commits += [entry.key for entry in gone]
        report.outputs += [entry.key for entry in outputs]
        report.chunks += [entry.key for entry in garbage]
        report.size_bytes += sum(entry.size_bytes for entry in (*gone, *garbage, *outputs))
        if not dry_run:
            # A commit never outlives what it names.
            await self._delete(gone)
            await self._delete([*garbage, *outputs])

    async def _tail(self, chain: Sequence[ListedObject]) -> set[str]:
        """Return the newest commit that is not void, and all void ones after it."""
        tail = set()
        for entry in reversed(chain):
            tail.add(entry.key)
            try:
                commit = await self._read(entry)
            except _Unreadable:
                # It may be void: what is before it is kept too.
                continue
            if not commit.void:
                break
        return tail

    async def _named(self, commits: Iterable[ListedObject]) -> set[tuple[str, str]]:
        """Return day and digest of every chunk that is named (raises _Unreadable)."""
        found: set[tuple[str, str]] = set()
        for commit in await asyncio.gather(*(self._read(entry) for entry in commits)):
            found.update(
                (f"{blob.day}", blob.digest)
                for stored in commit.namespace.objects
                for blob in stored.chunks
                if blob.inline is None
            )
        return found

    async def _read(self, entry: ListedObject) -> Commit:
        async with self._at_once:
            try:
                stored = await self._store.get(self._bucket, entry.key)
                return await asyncio.to_thread(Commit.from_bytes, stored.body)
            except (NotFound, InvalidField) as problem:
                raise _Unreadable(entry.key) from problem

    async def _delete(self, entries: Iterable[ListedObject]) -> None:
        async def delete(key: str) -> None:
            async with self._at_once:
                await self._store.delete(self._bucket, key)

        await asyncio.gather(*(delete(entry.key) for entry in entries))


def _note(report: GarbageReport, expired: Expired) -> None:
    report.journals += expired.kernel_ids
    report.journals_locked += expired.locked
    report.journals_unreadable += expired.unreadable
    report.size_bytes += expired.size_bytes


def expired_commits(
    chain: Sequence[ListedObject], retention: Retention, now: float, *, is_kept: bool
) -> list[ListedObject]:
    """Return the commits of a kernel, oldest first, that left retention long enough ago.

    Args:
        chain: all of them, in order.
        retention: what is kept.
        now: Unix time.
        is_kept: the kernel exists; else the newest commit may go as well.
    """
    expired = []
    for number, entry in enumerate(chain):
        ended = entry.last_modified + retention.days * DAY_S
        if number + retention.cells < len(chain):
            ended = min(ended, chain[number + retention.cells].last_modified)
        if number + 1 < len(chain):
            # A cell may have begun with it until it was no longer the newest.
            ended = max(ended, chain[number + 1].last_modified)
        elif is_kept:
            break
        if ended + retention.grace_s < now:
            expired.append(entry)
    return expired


def expired_outputs(
    outputs: Iterable[ListedObject], kernels: set[str], retention: Retention, now: float
) -> list[ListedObject]:
    """Return the kept outputs that are older than retention, or of kernels that are gone."""
    return [
        entry
        for entry in outputs
        if entry.last_modified + retention.days * DAY_S < now
        or (
            entry.key.split("/")[4] not in kernels and entry.last_modified + retention.grace_s < now
        )
    ]


def _chunk_of(key: str) -> tuple[str, str]:
    day, digest = key.split("/")[4:]
    return f"{int(day)}", digest
