"""This gateway among others on the same buckets: its own lease, and what it sees of theirs."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from kernel_gateway.errors import (
    GatewayError,
    HeldElsewhere,
    NotFound,
    PreconditionFailed,
    StorageError,
)
from kernel_gateway.kernels.lease import (
    RENEWALS_PER_DURATION,
    Lease,
    OwnLease,
    ReplicaSettings,
    Sighting,
    clock_s,
)
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract import keys
from lambda_kernel.contract.schema import InvalidField

logger = logging.getLogger(__name__)

ATTEMPTS = 3


class Replica:
    """Holds the lease of this gateway, and judges those of others.

    The lease is begun by the first kernel that is used, and renewed while one is in use: a gateway
    that idles writes nothing, and begins again, or finds that it has lost everything, when it is
    used again.
    """

    def __init__(
        self,
        settings: ReplicaSettings,
        store: ObjectStore,
        bucket: str,
        *,
        in_use: Callable[[], bool],
        on_lost: Callable[[str], None],
        clock: Callable[[], float] = clock_s,
    ) -> None:
        """Take what is needed; nothing is read or written.

        Args:
            settings: who this is.
            store: S3.
            bucket: of the records.
            in_use: whether a cell runs or a client is connected.
            on_lost: called with the lease that another gateway has ended.
            clock: seconds; see `lease.clock_s`.
        """
        self._settings = settings
        self._store, self._bucket = store, bucket
        self._in_use, self._on_lost, self._clock = in_use, on_lost, clock
        self._own: OwnLease | None = None
        self._lock = asyncio.Lock()
        self._sightings: dict[str, Sighting] = {}
        self._gone: set[str] = set()
        self._watchers: dict[str, set[asyncio.Future[None]]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def lease_id(self) -> str | None:
        """The lease that is held, as far as is known here; None before the first use."""
        return None if self._own is None else self._own.lease.lease_id

    async def open(self) -> None:
        """End what an earlier process of this gateway left, and renew from now on.

        Raises:
            StorageError: S3 does not answer.
        """
        prefix, suffix = keys.replica_lease_key("").split(".")
        async for key in self._store.list(self._bucket, prefix):
            sighting = await self._look(key.removeprefix(prefix).removesuffix(f".{suffix}"))
            if sighting is not None and sighting.lease.replica_id == self._settings.replica_id:
                await self._end(sighting)
        self._schedule()

    async def close(self) -> None:
        """Give up the lease, so that others take over at once."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        async with self._lock:
            if self._own is not None:
                key = keys.replica_lease_key(self._own.lease.lease_id)
                self._own = None
                await self._store.delete(self._bucket, key)

    async def ready(self) -> str:
        """Return the lease that is held for long enough to begin something now.

        Raises:
            StorageError: S3 does not answer.
        """
        if self._own is None or self._clock() >= self._own.good_until_s:
            async with self._lock:
                if self._own is not None and self._clock() >= self._own.good_until_s:
                    await self._renew()
                if self._own is None:
                    await self._begin()
        assert self._own is not None  # noqa: S101  (begun above)
        return self._own.lease.lease_id

    async def check(self) -> None:
        """Find out whether the lease was ended, if one is held (raises StorageError)."""
        if self._own is not None:
            await self.ready()

    def permit(self) -> Callable[[], Awaitable[bool]]:
        """Return what says later whether the lease of now is still held."""
        lease_id = self.lease_id

        async def is_held() -> bool:
            try:
                return lease_id is not None and await self.ready() == lease_id
            except StorageError:
                return False

        return is_held

    async def sight(self, lease_id: str) -> Sighting | None:
        """Return another gateway's lease, None where it is over (raises StorageError)."""
        if lease_id in self._gone:
            return None
        sighting = await self._look(lease_id)
        return sighting if sighting is not None and self._left_s(sighting) else None

    async def vacate(self, lease_id: str) -> None:
        """Make sure that a lease is over, so that what it held is free.

        Raises:
            HeldElsewhere: it is not.
            StorageError: S3 does not answer.
        """
        if lease_id in self._gone:
            return
        sighting = await self._look(lease_id)
        if sighting is None:
            return
        left_s = self._left_s(sighting)
        if not left_s:
            try:
                await self._end(sighting)
            except PreconditionFailed:
                left_s = sighting.lease.duration_s
            else:
                logger.warning(
                    "another gateway's lease has expired: its kernels are taken over on demand",
                    extra={"replica_id": sighting.lease.replica_id},
                )
                return
        raise HeldElsewhere(
            lease_id,
            replica_id=sighting.lease.replica_id,
            url=sighting.lease.url,
            retry_after_s=left_s,
        )

    async def keep_up(self) -> None:
        """Renew the lease if it is in use, and look at those that are watched. Never raises."""
        try:
            async with self._lock:
                if self._own is not None and self._in_use():
                    await self._renew()
            for lease_id in tuple(self._watchers):
                sighting = await self._look(lease_id)
                if sighting is None or not self._left_s(sighting):
                    self._say_over(lease_id)
        except GatewayError:
            logger.warning("the leases of gateways cannot be reached", exc_info=True)

    @contextmanager
    def watching(self, lease_id: str) -> Iterator[asyncio.Future[None]]:
        """Yield what is done when the lease of another gateway is found to be over."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.setdefault(lease_id, set()).add(over)
        try:
            yield over
        finally:
            self._watchers[lease_id].discard(over)
            if not self._watchers[lease_id]:
                del self._watchers[lease_id]

    async def _begin(self) -> None:
        lease = Lease(
            lease_id=uuid.uuid4().hex,
            replica_id=self._settings.replica_id,
            url=self._settings.url,
            duration_s=self._settings.lease_s,
        )
        asked_s, key = self._clock(), keys.replica_lease_key(lease.lease_id)
        etag = await self._store.put(self._bucket, key, lease.to_bytes(), if_absent=True)
        self._own = OwnLease.written(lease, etag, asked_s=asked_s)

    async def _renew(self) -> None:
        for _ in range(ATTEMPTS):
            own = self._own
            assert own is not None  # noqa: S101  (its callers have looked)
            lease = replace(own.lease, renewal=own.lease.renewal + 1)
            asked_s, key = self._clock(), keys.replica_lease_key(lease.lease_id)
            try:
                etag = await self._store.put(self._bucket, key, lease.to_bytes(), if_match=own.etag)
            except (PreconditionFailed, NotFound):
                # Another has ended it; or this is our own write, whose answer was lost.
                found = await self._read(lease.lease_id)
                if found is None or found[0].ended:
                    self._lose(lease.lease_id)
                    return
                self._own = replace(own, lease=found[0], etag=found[1])
            else:
                self._own = OwnLease.written(lease, etag, asked_s=asked_s)
                return
        raise StorageError("the lease of this gateway cannot be renewed")

    def _lose(self, lease_id: str) -> None:
        logger.warning(
            "another gateway has ended the lease of this one, which gave no sign in time: "
            "it takes over the kernels"
        )
        self._own = None
        self._gone.add(lease_id)
        self._on_lost(lease_id)

    async def _end(self, sighting: Sighting) -> None:
        key, lease = keys.replica_lease_key(sighting.lease.lease_id), sighting.lease
        # Written over first: its holder can renew it or find it ended, and nothing between.
        ended = replace(lease, ended=True).to_bytes()
        if not lease.ended:
            try:
                await self._store.put(self._bucket, key, ended, if_match=sighting.etag)
            except NotFound:
                logger.info("a lease was given up meanwhile")
        await self._store.delete(self._bucket, key)
        self._note_gone(lease.lease_id)

    async def _look(self, lease_id: str) -> Sighting | None:
        found = await self._read(lease_id)
        if found is None:
            self._note_gone(lease_id)
            return None
        now_s, known = self._clock(), self._sightings.get(lease_id)
        lease, etag = found
        fresh = Sighting(lease=lease, etag=etag, since_s=now_s)
        sighting = fresh if known is None else known.next(lease, etag, now_s=now_s)
        self._sightings[lease_id] = sighting
        return sighting

    async def _read(self, lease_id: str) -> tuple[Lease, str] | None:
        key = keys.replica_lease_key(lease_id)
        try:
            found = await self._store.get(self._bucket, key)
            return Lease.from_bytes(found.body), found.etag
        except NotFound:
            return None
        except InvalidField as problem:
            raise StorageError(f"the object {key}: {problem}") from problem

    def _left_s(self, sighting: Sighting) -> float:
        return sighting.left_s(self._clock())

    def _note_gone(self, lease_id: str) -> None:
        self._gone.add(lease_id)
        self._sightings.pop(lease_id, None)

    def _schedule(self) -> None:
        pause_s = self._settings.lease_s / RENEWALS_PER_DURATION
        self._timer = asyncio.get_running_loop().call_later(pause_s, self._tick)

    def _tick(self) -> None:
        self._schedule()
        is_free = self._task is None or self._task.done()
        if is_free and (self._watchers or (self._own is not None and self._in_use())):
            self._task = asyncio.get_running_loop().create_task(self.keep_up())

    def _say_over(self, lease_id: str) -> None:
        for over in self._watchers.get(lease_id, ()):
            if not over.done():
                over.set_result(None)
