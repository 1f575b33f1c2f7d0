"""Journals of kernels that ended long ago: deleted whole, a signed tombstone is left of each."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kernel_gateway.audit.envelopes import NoSealer, Sealer
from kernel_gateway.audit.journal import Journal
from kernel_gateway.errors import PreconditionFailed, StorageError
from kernel_gateway.objects import ObjectStore
from kernel_gateway.retention import DAY_S
from lambda_kernel.contract import keys
from lambda_kernel.contract.names import check_kernel_id
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.storage.s3_requests import ListedObject

TOMBSTONE_SCHEMA = 1
"""Signed as an entry is; it has other fields, so that neither is taken for the other."""


@dataclass(slots=True, kw_only=True)
class Expired:
    """What was deleted, or would be.

    Attributes:
        kernel_ids: whose journals.
        locked: kernels whose journals would have gone, but Object Lock holds some of them.
        unreadable: kernels whose newest entry cannot be read: somebody should look at them.
        size_bytes: of all objects that went.
    """

    kernel_ids: list[str] = field(default_factory=list)
    locked: list[str] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    size_bytes: int = 0


class Expiry:
    """Deletes journals past their retention.

    Args:
        store: S3.
        bucket: the records bucket.
        days: a journal goes so long after its newest entry, once its kernel has ended.
        sealer: signs tombstones; None = they are not signed.
        now: Unix time.
    """

    def __init__(
        self,
        store: ObjectStore,
        bucket: str,
        days: int,
        sealer: Sealer | None,
        now: Callable[[], float],
    ) -> None:
        self._store = store
        self._bucket = bucket
        self._days = days
        self._sealer = sealer or NoSealer()
        self._now = now

    async def collect(self, kernel_ids: Collection[str], *, dry_run: bool) -> Expired:
        """Delete what has expired, or only say what that is.

        Args:
            kernel_ids: of the kernels that exist; found before anything is listed.
            dry_run: delete nothing.

        Raises:
            StorageError: S3 does not answer.
        """
        found = Expired()
        async for kernel_id, objects in self._journals():
            newest = max(each.last_modified for each in objects)
            if kernel_id in kernel_ids or newest + self._days * DAY_S >= self._now():
                continue
            if await self._is_locked(objects):
                found.locked.append(kernel_id)
                continue
            if not dry_run:
                try:
                    await self._bury(kernel_id)
                except _Unreadable:
                    found.unreadable.append(kernel_id)
                    continue
                for each in _entries_last(objects):
                    await self._store.erase(self._bucket, each.key)
                await self._forget(kernel_id)
            found.kernel_ids.append(kernel_id)
            found.size_bytes += sum(each.size_bytes for each in objects)
        return found

    async def _journals(self) -> AsyncIterator[tuple[str, list[ListedObject]]]:
        """Yield every kernel's objects, in the order of the ids."""
        current, objects = "", list[ListedObject]()
        async for entry in self._store.entries(self._bucket, keys.AUDIT_PREFIX):
            kernel_id = entry.key.split("/")[1]
            try:
                check_kernel_id(kernel_id)
            except InvalidField:
                continue  # tombstones, and whatever is not ours
            if kernel_id != current:
                if objects:
                    yield current, objects
                current, objects = kernel_id, []
            objects.append(entry)
        if objects:
            yield current, objects

    async def _is_locked(self, objects: list[ListedObject]) -> bool:
        for each in objects:
            if await self._store.locked_until(self._bucket, each.key) is not None:
                return True
        return False

    async def _forget(self, kernel_id: str) -> None:
        """Delete what searches know of a journal."""
        prefix = keys.trail_index_prefix(kernel_id)
        known = [key async for key in self._store.list(self._bucket, prefix)]
        for key in known:
            await self._store.erase(self._bucket, key)

    async def _bury(self, kernel_id: str) -> None:
        """Leave a tombstone; a second one, after a crash, is the first."""
        journal = Journal(self._store, self._bucket, kernel_id, is_new=False)
        try:
            number = await journal.open()
            head = await journal.signed(number)
        except StorageError as problem:
            if isinstance(problem.__cause__, InvalidField):
                raise _Unreadable from problem
            raise
        said = {
            "schema": TOMBSTONE_SCHEMA,
            "kernel_id": kernel_id,
            "entries": number,
            "head": head.digest,
            "last_entry": head.entry.time,
            "deleted": datetime.fromtimestamp(self._now(), UTC).isoformat(),
            "reason": f"audit.retention_days = {self._days}",
        }
        stored = await self._sealer.seal(json.dumps(said).encode("ascii"))
        key = keys.tombstone_key(kernel_id, head.digest)
        try:
            await self._store.put(self._bucket, key, stored, if_absent=True)
        except PreconditionFailed:
            return


class _Unreadable(Exception):
    """The newest entry is not one."""


def _entries_last(objects: list[ListedObject]) -> list[ListedObject]:
    """Return objects in an order in which what is left after a crash is found again.

    The newest entry, by which the tombstone is named, goes last.
    """
    blobs = [each for each in objects if each.key.split("/")[2] != "j"]
    entries = [each for each in objects if each.key.split("/")[2] == "j"]
    return [*blobs, *sorted(entries, key=lambda each: each.key)]
