"""One kernel's journal in the records bucket: written by number, each number once.

Two gateways cannot interleave it: the object of a number is created only where it is absent, and
who finds another's there has lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass, replace

from kernel_gateway.audit import chain
from kernel_gateway.audit.chain import (
    CellFinished,
    Entry,
    Event,
    Outputs,
    RecordedMessage,
    SignedEntry,
)
from kernel_gateway.audit.envelopes import Envelope, NoSealer, Sealer, payload_of
from kernel_gateway.audit.keeping import Keeping
from kernel_gateway.audit.stored_outputs import Said, in_place_of_removed, prepared, said_in
from kernel_gateway.errors import GatewayError, NotFound, PreconditionFailed, StorageError
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract import keys
from lambda_kernel.contract.schema import InvalidField

logger = logging.getLogger(__name__)


class JournalConflict(GatewayError):
    """Another gateway writes to this journal."""

    http_status = 409


class UnreadableJournal(StorageError):
    """An entry is missing, or is not one."""


class ContentMissing(UnreadableJournal):
    """What a cell has said is not there any more: it was removed, on purpose or not."""

    http_status = 404


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """An event that is not durable yet, and what `Journal.add` was given with it."""

    event: Event
    epoch: int
    time: str
    on_written: Callable[[int], object]
    complete: Callable[[], Awaitable[Event]] | None = None


class Journal:
    """Writes and reads the journal of one kernel.

    Events are written in the order in which they were added. One that could not be written is
    written before the next.

    Attributes:
        number: of the newest entry, 0 where there is none; None = not known.
        is_settled: no cell of an earlier gateway is without an end.
    """

    __slots__ = (
        "_bucket",
        "_digest",
        "_epoch",
        "_keeping",
        "_kernel_id",
        "_sealer",
        "_store",
        "_waiting",
        "_writing",
        "is_settled",
        "number",
    )

    def __init__(
        self,
        store: ObjectStore,
        bucket: str,
        kernel_id: str,
        *,
        is_new: bool,
        sealer: Sealer | None = None,
        keeping: Keeping | None = None,
    ) -> None:
        """Take the journal of a kernel.

        Args:
            store: S3.
            bucket: the records bucket.
            kernel_id: whose it is.
            is_new: there is nothing in it; else that is found out by the first call.
            sealer: signs entries; None = they are not signed.
            keeping: how entries are kept.
        """
        self._store = store
        self._bucket = bucket
        self._kernel_id = kernel_id
        self._sealer = sealer or NoSealer()
        self._keeping = keeping or Keeping()
        self._digest = ""
        self._epoch = 0
        self._writing: asyncio.Task[None] | None = None
        self._waiting: deque[Waiting] | None = None
        self.number: int | None = 0 if is_new else None
        self.is_settled = is_new

    @property
    def epoch(self) -> int:
        """The lowest epoch of the next entry, once it is open."""
        return self._epoch

    @property
    def is_waiting(self) -> bool:
        """Whether something that was added is not durable yet."""
        return bool(self._waiting)

    async def open(self) -> int:
        """Return the number of the newest entry, 0 where there is none.

        Raises:
            StorageError: S3 does not answer, or the newest entry cannot be read.
        """
        if self.number is None:
            await self._look()
        assert self.number is not None  # noqa: S101  (set by _look)
        return self.number

    def add(
        self,
        event: Event,
        *,
        epoch: int,
        time: str,
        on_written: Callable[[int], object] = lambda number: None,
        complete: Callable[[], Awaitable[Event]] | None = None,
    ) -> None:
        """Have ``event``, or what ``complete`` returns for it, written by the next `flush`.

        ``on_written`` is given its number; ``complete`` must not fail.
        """
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(
            Waiting(event=event, epoch=epoch, time=time, on_written=on_written, complete=complete)
        )

    async def flush(self) -> None:
        """Write what was added.

        Raises:
            StorageError: S3 does not answer; what is left is written by the next call.
            JournalConflict: another gateway writes to this journal.
        """
        while self._waiting:
            if self._writing is None or self._writing.done():
                # What is cancelled while it is under way would leave a number nobody knows of.
                self._writing = asyncio.create_task(self._write_all())
                self._writing.add_done_callback(self._written)
            await asyncio.shield(self._writing)

    async def append(self, event: Event, *, epoch: int, time: str) -> None:
        """Write ``event``, after all that was added before; where that fails, it is taken back.

        Raises:
            StorageError, JournalConflict: as `flush`.
        """
        self.add(event, epoch=epoch, time=time)
        try:
            await self.flush()
        except GatewayError:
            left = [each for each in self._waiting or () if each.event is not event]
            self._waiting = deque(left) if left else None
            raise

    async def entry(self, number: int) -> Entry:
        """Return an entry, its messages brought in from where they are (raises StorageError)."""
        entry, _, _ = await self._stored(number)
        event = entry.event
        if not isinstance(event, CellFinished) or event.outputs.blob is None:
            return entry
        said = await self.said(event.outputs)
        outputs = replace(event.outputs, messages=said.messages, blob=None)
        reply, answers = event.reply or said.reply, event.answers or said.answers
        whole = replace(event, outputs=outputs, reply=reply, answers=answers)
        return replace(entry, event=whole)

    async def end_of_cell(self, number: int) -> CellFinished:
        """Return the event of an entry that is about the end of a cell, for clients.

        Where what the cell said was removed, a notice stands for it. Raises as `entry`.
        """
        try:
            event = (await self.entry(number)).event
        except ContentMissing:
            event = (await self._stored(number))[0].event
            if isinstance(event, CellFinished):
                outputs = replace(event.outputs, messages=in_place_of_removed(), blob=None)
                event = replace(event, outputs=outputs)
        if not isinstance(event, CellFinished):
            raise UnreadableJournal(
                f"entry {number} of the journal of kernel {self._kernel_id} is no end of a cell"
            )
        return event

    async def blob(self, digest: str) -> bytes:
        """Return the object that holds what a cell has said.

        Raises:
            ContentMissing: it is not there.
            StorageError: S3 does not answer, or it is not what was recorded.
        """
        try:
            stored = (await self._store.get(self._bucket, self._blob_key(digest))).body
        except NotFound as problem:
            raise ContentMissing(f"the stored output {digest} was removed: {problem}") from problem
        if chain.digest_of(stored) != digest:
            raise UnreadableJournal(f"the stored output {digest} is not what was recorded")
        return stored

    async def said(self, outputs: Outputs) -> Said:
        """Return what a cell has said, from where it is; raises as `blob`."""
        if outputs.blob is None:
            return Said(messages=outputs.messages)
        stored = await self.blob(outputs.blob)
        try:
            return await asyncio.to_thread(said_in, stored)
        except InvalidField as problem:
            raise UnreadableJournal(f"the stored output {outputs.blob}: {problem}") from problem

    async def messages(self, outputs: Outputs) -> tuple[RecordedMessage, ...]:
        """Return what a cell published, from where it is; raises as `blob`."""
        return (await self.said(outputs)).messages

    async def stored_blobs(self) -> frozenset[str]:
        """Return the digests of the objects that stand beside it (raises StorageError)."""
        prefix = keys.audit_blob_key(self._kernel_id, "")
        return frozenset(
            [key.removeprefix(prefix) async for key in self._store.list(self._bucket, prefix)]
        )

    async def locked_until(self, digest: str) -> float | None:
        """Return until when (Unix time) an object cannot be deleted, None where it can be."""
        return await self._store.locked_until(self._bucket, self._blob_key(digest))

    async def erase_blob(self, digest: str) -> None:
        """Delete the object that holds what a cell has said, for good (raises StorageError)."""
        await self._store.erase(self._bucket, self._blob_key(digest))

    async def signed(self, number: int) -> SignedEntry:
        """Return an entry as it is stored, without messages that are elsewhere; as `entry`."""
        return (await self._stored(number))[2]

    async def newest_first(self, *, ahead_count: int = 1) -> AsyncGenerator[Entry, None]:
        """Yield the entries from the newest on, without messages that are elsewhere.

        Args:
            ahead_count: so many are read at a time.

        Raises:
            StorageError: S3 does not answer, or an entry cannot be read, or is not the one that
                the next one followed.
        """
        highest = await self.open()
        expected = self._digest
        while highest > 0:
            numbers = range(highest, max(0, highest - ahead_count), -1)
            for entry, digest, _ in await asyncio.gather(*map(self._stored, numbers)):
                if digest != expected:
                    raise UnreadableJournal(
                        f"entry {entry.number} of the journal of kernel {self._kernel_id} is not "
                        "what was recorded: somebody has changed it"
                    )
                yield entry
                expected = entry.previous
            highest -= ahead_count

    async def _look(self) -> None:
        prefix = keys.journal_prefix(self._kernel_id)
        number = 0
        async for key in self._store.list(self._bucket, prefix):
            name = key.removeprefix(prefix).removesuffix(".json")
            if name.isascii() and name.isdigit():
                number = max(number, int(name))
        if number:
            entry, self._digest, _ = await self._stored(number)
            self._epoch = chain.epoch_after(entry)
        self.number = number

    async def _write_all(self) -> None:
        while self._waiting:
            first = self._waiting[0]
            if first.complete is not None:
                # Once: what is written again must be the same.
                self._waiting[0] = replace(first, event=await first.complete(), complete=None)
            number = await self._write(self._waiting[0])
            self._waiting.popleft().on_written(number)
        self._waiting = None

    def _written(self, writing: asyncio.Task[None]) -> None:
        if self._writing is writing:
            self._writing = None

    async def _write(self, waiting: Waiting) -> int:
        number = 0
        while number <= 1:
            number = await self.open() + 1
            if waiting.epoch < self._epoch:
                raise JournalConflict(
                    f"the journal of kernel {self._kernel_id} has entries of epoch {self._epoch}, "
                    f"this gateway is at {waiting.epoch}: another gateway has taken over the kernel"
                )
            entry = Entry(
                kernel_id=self._kernel_id,
                number=number,
                previous=self._digest,
                epoch=waiting.epoch,
                time=waiting.time,
                event=await self._kept(waiting.event),
            )
            payload = entry.to_bytes()
            if await self._put(number, payload):
                self.number, self._digest = number, chain.digest_of(payload)
                self._epoch = chain.epoch_after(entry)
                return number
            self.number = None
        # At number 1 a kernel of this id was here before: its journal goes on.
        self.is_settled = False
        raise JournalConflict(
            f"entry {number} of the journal of kernel {self._kernel_id} was written by another "
            "gateway: use the kernel there, or try again"
        )

    async def _put(self, number: int, payload: bytes) -> bool:
        """Create an entry; return whether it is there as we want it."""
        key = keys.journal_key(self._kernel_id, number)
        stored = await self._sealer.seal(payload)
        try:
            lock = self._keeping.lock
            await self._store.put(self._bucket, key, stored, if_absent=True, lock=lock)
        except PreconditionFailed:
            # Our own write, whose answer was lost, is no other's; its signature may differ.
            return await self._holds(key, payload)
        return True

    async def _holds(self, key: str, payload: bytes) -> bool:
        try:
            return payload_of((await self._store.get(self._bucket, key)).body) == payload
        except InvalidField:
            return False

    async def _kept(self, event: Event) -> Event:
        """Return an event as its entry has it; what stands elsewhere is written."""
        if not self._keeping.redactor.is_idle:
            event = await asyncio.to_thread(self._keeping.redactor.event, event)
        if not isinstance(event, CellFinished):
            return event
        end, stored = await asyncio.to_thread(
            prepared, event, is_removable=self._keeping.is_removable
        )
        if end.outputs.blob is not None:
            key = self._blob_key(end.outputs.blob)
            await self._store.put(self._bucket, key, stored, lock=self._keeping.lock)
        return end

    def _blob_key(self, digest: str) -> str:
        return keys.audit_blob_key(self._kernel_id, digest)

    async def _stored(self, number: int) -> tuple[Entry, str, SignedEntry]:
        """Return an entry, the digest of its bytes, and it with its envelope."""
        try:
            stored = (
                await self._store.get(self._bucket, keys.journal_key(self._kernel_id, number))
            ).body
            envelope = Envelope.around(stored)
            payload = envelope.payload_bytes
            entry = Entry.from_bytes(payload)
        except (NotFound, InvalidField) as problem:
            raise UnreadableJournal(
                f"entry {number} of the journal of kernel {self._kernel_id}: {problem}"
            ) from problem
        if (entry.kernel_id, entry.number) != (self._kernel_id, number):
            raise UnreadableJournal(
                f"entry {number} of the journal of kernel {self._kernel_id} is another's"
            )
        digest = chain.digest_of(payload)
        return entry, digest, SignedEntry(entry=entry, digest=digest, envelope=envelope)
