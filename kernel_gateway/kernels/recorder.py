"""The audit trail of cells: told before one is sent and after it is settled.

What it is told becomes entries of the kernel's journal, and what was said of finished cells is read
from there.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from enum import Enum
from functools import partial
from typing import Any

from kernel_gateway.audit.answers import Answer
from kernel_gateway.audit.chain import (
    CellFinished,
    CellInterrupted,
    CellStarted,
    Event,
    KernelRestarted,
    SessionClosed,
)
from kernel_gateway.audit.envelopes import Sealer
from kernel_gateway.audit.events import SessionForked, SessionOpened
from kernel_gateway.audit.facts import Owner, StartFacts
from kernel_gateway.audit.file_lists import FileLists
from kernel_gateway.audit.indexing import Indexing
from kernel_gateway.audit.journal import Journal
from kernel_gateway.audit.keeping import Keeping
from kernel_gateway.audit.later_events import ContentRemoved
from kernel_gateway.audit.references import BlobShelf
from kernel_gateway.audit.removal import Removable, remove
from kernel_gateway.audit.shelf import TrailShelf
from kernel_gateway.audit.trail_index import TrailIndex
from kernel_gateway.dispatch.settle import Settled
from kernel_gateway.errors import GatewayError, PreconditionFailed, StorageError
from kernel_gateway.function_code import FunctionCode
from kernel_gateway.kernels.evidence import end_facts, handler_facts
from kernel_gateway.kernels.finished import FinishedCell
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.record import KernelRecord
from kernel_gateway.kernels.transcript import Transcript, recorded, recorded_outputs
from kernel_gateway.kernels.unrecorded import Gaps
from kernel_gateway.kernels.watch import Watch
from kernel_gateway.messaging.caller import Actor
from kernel_gateway.messaging.message import InMessage, utc_text
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract.invocation import Invocation

logger = logging.getLogger(__name__)


class Recorded(Enum):
    """Whether the journal has a cell that is about to be sent."""

    YES = "yes"
    NO = "no"
    NO_LONGER = "no, but the cell before"


class CellRecorder:
    """Keeps the journals of a gateway's kernels.

    Args:
        store: S3.
        bucket: the records bucket.
        now: the time, aware.
        sealer: signs entries; None = they are not signed.
        keeping: how entries are kept.
        index_pause_s: so long after a cell its journal is indexed; None = by searches only.

    Attributes:
        sealer: as it was given.
        watchers: are told when a cell's end is in the journal.
        indexing: is told of journals that have grown.
    """

    def __init__(
        self,
        store: ObjectStore,
        bucket: str,
        now: Callable[[], datetime],
        sealer: Sealer | None = None,
        keeping: Keeping | None = None,
        index_pause_s: float | None = None,
    ) -> None:
        self._store = store
        self._bucket = bucket
        self._now = now
        self.sealer = sealer
        self._keeping = keeping or Keeping()
        self._gaps = Gaps()
        self._shelf = TrailShelf(store, bucket)
        self._journals: dict[str, Journal] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._unrendered: set[str] = set()
        self._references = BlobShelf(store, bucket, self._keeping.lock)
        self._file_lists = FileLists(self._references, self._keeping.redactor)
        self._watch = Watch()
        self.watchers: list[Callable[[FinishedCell], object]] = []
        self.indexing = Indexing(TrailIndex(store, bucket), pause_s=index_pause_s)

    def journal(self, kernel_id: str, *, is_new: bool = False) -> Journal:
        """Return the journal of a kernel; ``is_new``: nobody has written to it."""
        found = self._journals.get(kernel_id)
        if found is None:
            found = self.opened(kernel_id, is_new=is_new)
            self._journals[kernel_id] = found
        return found

    def opened(self, kernel_id: str, *, is_new: bool = False) -> Journal:
        """Return a journal that is not kept: of a kernel that may have ended long ago."""
        return Journal(
            self._store,
            self._bucket,
            kernel_id,
            is_new=is_new,
            sealer=self.sealer,
            keeping=self._keeping,
        )

    async def check_past(self, kernel_id: str, owner: Identity) -> None:
        """Raise PreconditionFailed where a kernel of this id was another's (or StorageError)."""
        if await self.indexing.index.owners(kernel_id) - {
            Owner(user=owner.user, agent=owner.agent)
        }:
            # Its journal would go on, and what another's kernel said be this one's past.
            raise PreconditionFailed(f"kernel {kernel_id} was another's: choose another id")

    def forget(self, kernel_id: str) -> None:
        """Know nothing of a journal that another gateway may have written to."""
        self._journals.pop(kernel_id, None)
        self._gaps.close(kernel_id)
        self._watch.forget(kernel_id)

    def keep(self, kernel_id: str, body: bytes) -> str:
        """Have an object stored that an entry of a journal names; return its digest."""
        return self._references.keep(kernel_id, body)

    async def started(
        self,
        record: KernelRecord,
        invocation: Invocation,
        request: InMessage,
        facts: StartFacts,
    ) -> Recorded:
        """Record that a cell is about to be sent.

        Raises:
            GatewayError: it cannot be recorded; the cell must not be sent (AuditUnavailable).
        """
        event = CellStarted(
            request_id=invocation.request_id,
            seq=invocation.seq,
            parent=invocation.parent_head,
            parent_kernel_id=invocation.parent_kernel_id,
            execution_count=invocation.execution_count,
            timeout_s=invocation.limits.timeout_s,
            header=request.header,
            metadata=request.metadata,
            content=request.content,
            gateway=facts,
        )
        journal, stamp = self.journal(record.kernel_id), self._stamp(record)
        if record.options.replay is not None and record.options.replay.pinned is not None:
            # A replay has as many as cells; each is rendered when it is asked for.
            self._unrendered.add(record.kernel_id)
        changed = self._watch.before(record.kernel_id, facts)
        if changed is not None:
            journal.add(changed, **stamp)
        try:
            await self._close_gap(journal, record)
            await journal.append(event, **stamp)
        except StorageError as problem:
            # Who finds another gateway's entries must not go on.
            if self._keeping.is_required:
                raise
            logger.warning("a cell runs unrecorded", exc_info=True)
            event = await asyncio.to_thread(self._keeping.redactor.started, event)
            is_first = self._gaps.note(record.kernel_id, event, stamp["time"], str(problem))
            return Recorded.NO_LONGER if is_first else Recorded.NO
        return Recorded.YES

    def finished(
        self,
        record: KernelRecord,
        invocation: Invocation,
        settled: Settled,
        said: Transcript,
        timings_ms: Mapping[str, float],
        on_written: Callable[[], object],
        answers: tuple[Answer, ...] = (),
        code: Awaitable[FunctionCode] | None = None,
    ) -> None:
        """Record how a cell ended, after its reply; the next cell waits until it is durable.

        Args:
            record: of the kernel.
            invocation: which cell.
            settled: how it ended.
            said: what clients were told; once the journal has it, it is to be read there.
            timings_ms: duration per step.
            on_written: called then.
            answers: what its user answered it.
            code: that ran it, as Lambda says; may come later, cannot fail.
        """
        event = self._finished(record, invocation.request_id, settled, said, timings_ms)
        event = replace(event, answers=answers)
        stamp = self._stamp(record)
        count, is_cell = invocation.execution_count, invocation.kind == "execute"

        def written(number: int) -> None:
            said.move_to_journal(number)
            on_written()
            self._tell(FinishedCell.of(record, event, count, number, stamp["time"]), is_cell)

        self._add(record, event, written, None if code is None else partial(_told, event, code))
        granted = self._watch.after(record.kernel_id, event)
        if granted is not None:
            self._add(record, granted)

    async def settled(
        self, record: KernelRecord, started: CellStarted, settled: Settled, said: Transcript
    ) -> None:
        """Record how a cell of an earlier gateway ended, whose output nobody has.

        Raises:
            GatewayError: it cannot be recorded.
        """
        event = self._finished(record, started.request_id, settled, said, {})
        outputs = replace(event.outputs, is_complete=False)
        status = event.status if settled.committed else "lost"
        event = replace(event, outputs=outputs, status=status)
        journal, stamp = self.journal(record.kernel_id), self._stamp(record)
        await journal.append(event, **stamp)
        self._grew(record.kernel_id)
        number, count = journal.number or 0, started.execution_count
        self._tell(FinishedCell.of(record, event, count, number, stamp["time"]), started.is_cell)

    def opened_session(self, record: KernelRecord, event: SessionOpened | None) -> None:
        """Record who started a kernel, unless its journal says that already, or nobody knows."""
        if event is not None and _is_empty(self.journal(record.kernel_id)):
            self._add(record, event)

    def forked(self, record: KernelRecord, event: SessionForked) -> None:
        """Record that another kernel began with the variables of this one."""
        self._add(record, event)

    def interrupted(self, record: KernelRecord, invocation: Invocation, actor: Actor) -> None:
        """Record that somebody asked to interrupt a cell."""
        self._add(record, CellInterrupted(request_id=invocation.request_id, actor=actor))

    def restarted(self, record: KernelRecord, actor: Actor) -> None:
        """Record that a kernel begins again with nothing."""
        self._add(record, KernelRestarted(actor=actor))

    async def closed(
        self, record: KernelRecord, journal: Journal, reason: str, actor: Actor
    ) -> None:
        """Record that a kernel is no more, and forget it; of one without entries nothing is."""
        if _is_empty(journal) and self._gaps.find(record.kernel_id) is None:
            self._journals.pop(record.kernel_id, None)
            return
        gap = self._gaps.find(record.kernel_id)
        if gap is not None:
            journal.add(gap, **self._stamp(record))
            self._gaps.close(record.kernel_id)
        journal.add(SessionClosed(reason=reason, actor=actor), **self._stamp(record))
        await self._flush(journal, record.kernel_id)
        self._unrendered.discard(record.kernel_id)
        self._journals.pop(record.kernel_id, None)

    async def remove_content(
        self,
        kernel_id: str,
        journal: Journal,
        found: Removable,
        event: ContentRemoved | None,
        *,
        epoch: int,
    ) -> None:
        """Delete what cells have said, also where the rendered notebook shows it; as `remove`."""
        async with self._shelf.without(kernel_id):
            await remove(journal, found, event, epoch=epoch, time=utc_text(self._now()))

    def _add(
        self,
        record: KernelRecord,
        event: Event,
        on_written: Callable[[int], object] = lambda number: None,
        complete: Callable[[], Awaitable[Event]] | None = None,
    ) -> None:
        journal = self.journal(record.kernel_id)
        journal.add(event, **self._stamp(record), on_written=on_written, complete=complete)
        task = asyncio.get_running_loop().create_task(self._flush(journal, record.kernel_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def open_cell(self, kernel_id: str) -> CellStarted | None:
        """Return the cell that nobody has recorded the end of (raises StorageError)."""
        await self._watch.recall(kernel_id, self.journal(kernel_id))
        async for entry in self.journal(kernel_id).newest_first():
            if isinstance(entry.event, CellStarted):
                return entry.event
            if not isinstance(entry.event, CellInterrupted | SessionForked | ContentRemoved):
                return None
        return None

    async def flush(self) -> None:
        """Try to write all that was added; what fails is logged, and tried again later."""
        waiting = [
            (kernel_id, each) for kernel_id, each in self._journals.items() if each.is_waiting
        ]
        await asyncio.gather(*(self._flush(each, kernel_id) for kernel_id, each in waiting))

    async def flush_objects(self) -> None:
        """Try to store what entries name; what fails is logged, and tried again later."""
        await self._references.flush()

    async def close(self) -> None:
        """Wait until all that was added was tried to be written."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.flush_objects()
        self.indexing.close()
        await self._shelf.close()

    async def _flush(self, journal: Journal, kernel_id: str) -> None:
        try:
            await journal.flush()
        except GatewayError:
            # It is tried again before the kernel's next cell, which is refused if that fails too.
            logger.exception("the journal was not written", extra={"kernel_id": kernel_id})
        else:
            self._grew(kernel_id)

    def _grew(self, kernel_id: str) -> None:
        if kernel_id not in self._unrendered:
            self._shelf.changed(kernel_id)
        self.indexing.note(kernel_id)

    def _tell(self, cell: FinishedCell, is_cell: bool) -> None:
        # Later: what a watcher does is no concern of the journal.
        for watcher in self.watchers if is_cell else ():
            asyncio.get_running_loop().call_soon(watcher, cell)

    async def _close_gap(self, journal: Journal, record: KernelRecord) -> None:
        gap = self._gaps.find(record.kernel_id)
        if gap is not None:
            await journal.append(gap, **self._stamp(record))
            self._gaps.close(record.kernel_id)

    def _stamp(self, record: KernelRecord) -> dict[str, Any]:
        return {"epoch": record.epoch, "time": utc_text(self._now())}

    def _finished(
        self,
        record: KernelRecord,
        request_id: str,
        settled: Settled,
        said: Transcript,
        timings_ms: Mapping[str, float],
    ) -> CellFinished:
        # A comm message has no reply.
        failed = settled.trouble is not None or (
            said.reply is not None and said.reply.content.get("status") != "ok"
        )
        return CellFinished(
            request_id=request_id,
            status="error" if failed else "ok",
            failure=settled.trouble.failure.ename if settled.trouble else None,
            head=settled.head,
            adopted=settled.adopted,
            reply=None if said.reply is None else recorded(said.reply),
            outputs=recorded_outputs(said),
            gateway=end_facts(settled, timings_ms),
            handler=handler_facts(
                settled,
                partial(self.keep, record.kernel_id),
                partial(self._file_lists.keep, record.kernel_id),
            ),
        )


def _is_empty(journal: Journal) -> bool:
    return journal.number == 0 and not journal.is_waiting


async def _told(event: CellFinished, code: Awaitable[FunctionCode]) -> Event:
    """Return the end of a cell with the code that ran it, once Lambda has said which."""
    return replace(event, platform=await code)
