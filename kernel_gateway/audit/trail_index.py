"""Finds cells in all journals of the records bucket without reading them: by an index beside them.

The index is derived: one object per kernel and segment of its journal, made of entries alone. It
may be behind, as nobody writes it on the way of a cell; a search compares it with the newest
entry of each journal and completes it from there. Any number of gateways may do that at once:
what one writes, the others would have written.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count

from kernel_gateway.audit.chain import CellStarted, Entry
from kernel_gateway.audit.events import SessionOpened
from kernel_gateway.audit.facts import Owner
from kernel_gateway.audit.index_rows import Segment, StartRow
from kernel_gateway.audit.journal import Journal, UnreadableJournal
from kernel_gateway.audit.trail_query import FoundCell, TrailQuery
from kernel_gateway.errors import NotFound, PreconditionFailed, StorageError
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract import keys, names
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.storage.s3_requests import ListedObject

logger = logging.getLogger(__name__)

SEGMENT_ENTRIES = 1000
KERNELS_AT_ONCE = 8
ENTRIES_AT_ONCE = 8
ATTEMPTS = 5
CLOCK_MARGIN_S = 3600.0
"""What S3 stored so long before a time holds no entry of that time, whatever clocks say."""

Sees = Callable[[StartRow], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a search found.

    Attributes:
        cells: the newest ones first.
        has_more: there are others behind the last one.
        unreadable: entries that could not be looked at, by kernel.
    """

    cells: tuple[FoundCell, ...]
    has_more: bool
    unreadable: Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilt:
    """What an index was made of: ``kernels`` journals with ``entries`` entries together."""

    kernels: int
    entries: int
    unreadable: int


class TrailIndex:
    """The index of a records bucket.

    Args:
        store: S3.
        bucket: the records bucket, on which no cell has any right.
    """

    def __init__(self, store: ObjectStore, bucket: str) -> None:
        self._store = store
        self._bucket = bucket
        # One search goes through all kernels; many at once would be felt by cells.
        self._searching = asyncio.Lock()

    async def search(self, query: TrailQuery, sees: Sees) -> Answer:
        """Return what answers ``query``, of the journals as they are now.

        Args:
            query: what is looked for.
            sees: whether the caller may know of a cell, by the row of its start.

        Raises:
            StorageError: S3 does not answer.
        """
        async with self._searching:
            listed = await self._listed()
            found: list[FoundCell] = []
            unreadable: dict[str, tuple[int, ...]] = {}

            async def look(kernel_id: str) -> None:
                nonlocal found
                segments = await self._segments(kernel_id, listed[kernel_id], query.since)
                bad = tuple(number for each in segments for number in each.unreadable)
                if bad:
                    unreadable[kernel_id] = bad
                matching = await asyncio.to_thread(_matching, kernel_id, segments, query, sees)
                found = heapq.nlargest(query.limit + 1, [*found, *matching], key=_place)

            await _for_each(await self._kernels(), look)
        return Answer(
            cells=tuple(found[: query.limit]),
            has_more=len(found) > query.limit,
            unreadable=unreadable,
        )

    async def catch_up(self, kernel_id: str) -> None:
        """Bring in what a journal has and the index has not (raises StorageError)."""
        prefix = keys.trail_index_prefix(kernel_id)
        listed = await self._listed(prefix)
        newest, _ = await self._newest(kernel_id, max(listed[kernel_id], default=0))
        known = max(listed[kernel_id], default=0)
        for segment in range(known, _segment_count(newest)):
            await self._segment(kernel_id, segment, newest)

    async def owners(self, kernel_id: str) -> frozenset[Owner | None]:
        """Return whose sessions a journal holds; None for cells of which no entry says it.

        The first is asked of the journal itself: an index that lies gives it to nobody else.

        Raises:
            StorageError: S3 does not answer.
        """
        listed = await self._listed(keys.trail_index_prefix(kernel_id))
        segments = await self._segments(kernel_id, listed[kernel_id], None)
        opened = {Owner(user=user, agent=agent) for each in segments for user, agent in each.opened}
        indexed = frozenset(opened) | {
            None if row.user is None else Owner(user=row.user, agent=row.agent)
            for segment in segments
            for row in segment.starts
        }
        return indexed | await self._first_owner(kernel_id)

    async def _first_owner(self, kernel_id: str) -> frozenset[Owner | None]:
        journal = Journal(self._store, self._bucket, kernel_id, is_new=False)
        for number in count(1):
            entry = await _entry(journal, number)
            if entry is None:
                break
            if isinstance(entry.event, SessionOpened):
                return frozenset([entry.event.session.owner])
            if isinstance(entry.event, CellStarted):
                known = entry.event.gateway
                return frozenset([None if known is None else known.session.owner])
        return frozenset()

    async def rebuild(self) -> Rebuilt:
        """Make the index anew from the journals alone (raises StorageError)."""
        entry_count = unreadable_count = 0
        kernels = await self._kernels()
        kept: set[str] = set()

        async def build(kernel_id: str) -> None:
            nonlocal entry_count, unreadable_count
            newest, _ = await self._newest(kernel_id, 0)
            for segment in range(_segment_count(newest)):
                made = await self._completed(kernel_id, _nothing(segment), _end(segment, newest))
                key = keys.trail_index_key(kernel_id, segment)
                await self._store.put(self._bucket, key, made.to_bytes())
                kept.add(key)
                unreadable_count += len(made.unreadable)
            entry_count += newest

        async with self._searching:
            await _for_each(kernels, build)
            old = [key async for key in self._store.list(self._bucket, keys.TRAIL_INDEX_PREFIX)]
            for key in old:
                if key not in kept:
                    await self._store.delete(self._bucket, key)
        return Rebuilt(kernels=len(kernels), entries=entry_count, unreadable=unreadable_count)

    async def _kernels(self) -> list[str]:
        folders = self._store.folders(self._bucket, keys.AUDIT_PREFIX)
        return [name async for name in folders if names.is_kernel_id(name)]

    async def _listed(
        self, prefix: str = keys.TRAIL_INDEX_PREFIX
    ) -> defaultdict[str, dict[int, ListedObject]]:
        """Return the index's objects by kernel and segment."""
        found: defaultdict[str, dict[int, ListedObject]] = defaultdict(dict)
        async for each in self._store.entries(self._bucket, prefix):
            rest = each.key.removeprefix(keys.TRAIL_INDEX_PREFIX).removesuffix(".json")
            kernel_id, _, segment = rest.partition("/")
            if segment.isascii() and segment.isdigit():
                found[kernel_id][int(segment)] = each
        return found

    async def _newest(self, kernel_id: str, segment: int) -> tuple[int, float]:
        """Return the newest entry of a journal, in or behind a segment, and when it was stored."""
        prefix = keys.journal_prefix(kernel_id)
        behind = keys.journal_key(kernel_id, segment * SEGMENT_ENTRIES)
        number, stored_s = segment * SEGMENT_ENTRIES, 0.0
        async for each in self._store.entries(self._bucket, prefix, after=behind):
            name = each.key.removeprefix(prefix).removesuffix(".json")
            if name.isascii() and name.isdigit():
                number, stored_s = max(number, int(name)), max(stored_s, each.last_modified)
        return number, stored_s

    async def _segments(
        self, kernel_id: str, listed: Mapping[int, ListedObject], since: str | None
    ) -> list[Segment]:
        """Return the rows of a kernel, without segments that are older than ``since``."""
        newest, stored_s = await self._newest(kernel_id, max(listed, default=0))
        since_s = 0.0 if since is None else _unix_s(since) - CLOCK_MARGIN_S
        if stored_s < since_s:
            return []
        found = []
        for segment in range(_segment_count(newest)):
            # That a later one exists says that this one is whole.
            is_whole = segment in listed and segment + 1 in listed
            if not (is_whole and listed[segment].last_modified < since_s):
                found.append(await self._segment(kernel_id, segment, newest))
        return found

    async def _segment(self, kernel_id: str, segment: int, newest: int) -> Segment:
        """Return a segment up to the journal's newest entry, stored so that the next finds it.

        Raises:
            StorageError: S3 does not answer.
        """
        key, end = keys.trail_index_key(kernel_id, segment), _end(segment, newest)
        for _ in range(ATTEMPTS):
            stored, etag = await self._read(key)
            found = stored or _nothing(segment)
            if found.last >= end:
                return found
            found = await self._completed(kernel_id, found, end)
            body = await asyncio.to_thread(found.to_bytes)
            try:
                await self._store.put(
                    self._bucket, key, body, if_absent=etag is None, if_match=etag
                )
            except (PreconditionFailed, NotFound):
                # Another gateway was faster. It may know less: a later segment is stored only when
                # this one is whole.
                continue
            return found
        raise StorageError(f"other gateways write {key} all the time; try again")

    async def _read(self, key: str) -> tuple[Segment | None, str | None]:
        """Return a stored segment with its ETag; None for one that is not there, or is none."""
        try:
            stored = await self._store.get(self._bucket, key)
        except NotFound:
            return None, None
        try:
            return await asyncio.to_thread(Segment.from_bytes, stored.body), stored.etag
        except InvalidField:
            logger.warning("an index of journals cannot be read, it is made anew: %s", key)
            return None, stored.etag

    async def _completed(self, kernel_id: str, found: Segment, end: int) -> Segment:
        """Return a segment with the entries behind it, up to ``end``."""
        journal = Journal(self._store, self._bucket, kernel_id, is_new=False)
        for begin in range(found.last + 1, end + 1, ENTRIES_AT_ONCE):
            numbers = range(begin, min(begin + ENTRIES_AT_ONCE, end + 1))
            read = await asyncio.gather(*(_entry(journal, number) for number in numbers))
            bad = [number for number, each in zip(numbers, read, strict=True) if each is None]
            found = found.with_entries(filter(None, read), bad, numbers[-1])
        return found


async def _entry(journal: Journal, number: int) -> Entry | None:
    """Return an entry, None where it is missing or is none (raises StorageError)."""
    try:
        return (await journal.signed(number)).entry
    except UnreadableJournal as problem:
        logger.warning("an entry is left out of the index: %s", problem)
        return None


def _matching(
    kernel_id: str, segments: Iterable[Segment], query: TrailQuery, sees: Sees
) -> list[FoundCell]:
    found: Iterator[FoundCell] = (
        replace(cell, matched=matched)
        for cell in _cells(kernel_id, list(segments))
        if sees(cell.start) and (matched := query.match(cell)) is not None
    )
    return heapq.nlargest(query.limit + 1, found, key=_place)


def _cells(kernel_id: str, segments: list[Segment]) -> Iterator[FoundCell]:
    ends = {row.request_id: row for segment in segments for row in segment.ends}
    for segment in segments:
        for start in segment.starts:
            yield FoundCell(kernel_id=kernel_id, start=start, end=ends.get(start.request_id))


async def _for_each(kernels: Iterable[str], work: Callable[[str], Awaitable[None]]) -> None:
    """Do ``work`` for some kernels at a time; the first error ends it."""
    waiting = iter(kernels)

    async def worker() -> None:
        for kernel_id in waiting:
            await work(kernel_id)

    workers = [asyncio.create_task(worker()) for _ in range(KERNELS_AT_ONCE)]
    try:
        await asyncio.gather(*workers)
    finally:
        for each in workers:
            each.cancel()


def _place(cell: FoundCell) -> tuple[str, str, int]:
    return cell.place


def _nothing(segment: int) -> Segment:
    return Segment(last=segment * SEGMENT_ENTRIES)


def _end(segment: int, newest: int) -> int:
    return min((segment + 1) * SEGMENT_ENTRIES, newest)


def _segment_count(newest: int) -> int:
    return -(-newest // SEGMENT_ENTRIES)


def _unix_s(time: str) -> float:
    return datetime.fromisoformat(time).astimezone(UTC).timestamp()
