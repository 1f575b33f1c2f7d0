"""What a kernel stands on: its place in the chain of commits, its count, its durable record."""

from __future__ import annotations

import asyncio
import base64
import logging
from collections.abc import Mapping
from dataclasses import replace

from kernel_gateway.dispatch.plan import CellFacts
from kernel_gateway.dispatch.settle import Settled
from kernel_gateway.environments.environment import Environment
from kernel_gateway.errors import GatewayError, Moved, PreconditionFailed, StorageError
from kernel_gateway.kernels.position import Chain, Position, UnreadableCommit
from kernel_gateway.kernels.record import KernelRecord
from kernel_gateway.kernels.services import KernelServices
from lambda_kernel.contract.commit import Commit
from lambda_kernel.contract.invocation import Invocation
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.scope import Scope

logger = logging.getLogger(__name__)

ATTEMPTS = 5
MOVED = "another gateway has taken over the kernel: connect again"


class Lineage:
    """What a cell starts from and leaves behind.

    Attributes:
        record: what is durable of the kernel.
        execution_count: of the last cell that took a number.
        etag: of the record.
        is_left: another gateway has it, or may have it.
    """

    __slots__ = (
        "_is_counted",
        "_position",
        "_services",
        "etag",
        "execution_count",
        "is_left",
        "record",
    )

    def __init__(
        self, record: KernelRecord, etag: str, services: KernelServices, *, is_new: bool
    ) -> None:
        self.record = record
        self.execution_count = 0 if record.origin is None else record.origin.execution_count
        self.etag = etag
        self.is_left = False
        self._is_counted = is_new
        self._services = services
        # Of a kernel that an earlier gateway started it is looked up by the first cell.
        self._position = (
            replace(self._chain().beginning(), next_seq=record.floor_seq + 1) if is_new else None
        )

    @property
    def is_placed(self) -> bool:
        """Whether its place is known; from the start, where no gateway had it before."""
        return self._position is not None

    @property
    def known_count(self) -> int | None:
        """The execution count, None where an earlier gateway ran cells and nobody has looked."""
        return self.execution_count if self._is_counted else None

    @property
    def last_count(self) -> int | None:
        """The execution count of the last committed cell, None where none has, or is known."""
        return self._position.head_count if self._position is not None else None

    @property
    def session_number(self) -> int:
        """Which session of the kernel this is, as IPython counts: 1, and one more by restart."""
        return self.record.restarts + 1

    @property
    def is_held(self) -> bool:
        """Whether this gateway serves it, as far as is known here."""
        lease_id = self._services.replica.lease_id
        return not self.is_left and lease_id is not None and self.record.holder == lease_id

    @property
    def scope(self) -> Scope:
        """Whose HOME and state its cells see."""
        return self.record.options.scope_of(self.record.owner, self.record.kernel_id)

    async def hold(self) -> None:
        """Make sure that this gateway, and no other, sends cells of the kernel.

        Raises:
            HeldElsewhere: another gateway does.
            Moved: another gateway took it over while it was served here.
            NotFound: the kernel was ended.
            StorageError: S3 does not answer.
        """
        lease_id = await self._services.replica.ready()
        if self.is_left:
            raise Moved(MOVED)
        if self.record.holder == lease_id:
            return
        record, etag = self.record, self.etag
        for _ in range(ATTEMPTS):
            if record.holder is not None:
                await self._services.replica.vacate(record.holder)
            taken = replace(record, holder=lease_id, epoch=record.epoch + 1)
            try:
                etag = await self._services.records.change(taken, etag)
            except PreconditionFailed:
                record, etag = await self._services.records.read(record.kernel_id)
                if record.holder != lease_id:
                    continue
                # Our own write, whose answer was lost.
                taken = record
            self._take(taken, etag)
            return
        raise StorageError(f"kernel {record.kernel_id} is being taken over by several gateways")

    def _take(self, record: KernelRecord, etag: str) -> None:
        if self.record.holder == record.holder:
            return
        self.record, self.etag = record, etag
        self._is_counted = False
        self.execution_count = 0 if record.origin is None else record.origin.execution_count
        self._position = None
        self._services.recorder.forget(record.kernel_id)

    async def locate(self) -> Position:
        """Return its place, after looking it up where it is not known.

        Raises:
            StorageError: S3 does not answer.
            GatewayError: as `hold`.
        """
        await self.hold()
        if self._position is None:
            position = await self._chain().locate(self.record.floor_seq)
            self._note(position)
            self._position = replace(position, stored=None)
        return self._position

    async def look(self) -> Position:
        """Return its place without claiming it: for what changes nothing (raises StorageError)."""
        if self._position is not None:
            return self._position
        position = await self._chain().look(self.record.floor_seq)
        self._note(position)
        return replace(position, stored=None)

    def _note(self, position: Position) -> None:
        """Keep what was read on the way to a place."""
        self._is_counted = True
        self.execution_count = max(self.execution_count, position.execution_count)
        if position.head is not None and position.stored is not None:
            self._services.manifests.put(self.record.kernel_id, position.head, position.stored)

    async def commit_at(self, position: Position) -> Commit | None:
        """Return the commit that it stands on, None for an empty session (raises StorageError)."""
        if position.head is None:
            return None
        riding = self._services.manifests.get(self.record.kernel_id, position.head)
        stored = base64.b64decode(riding) if riding else await self._chain().fetch(position.head)
        try:
            return Commit.from_bytes(stored)
        except InvalidField as problem:
            raise UnreadableCommit(f"commit {position.head.seq}: {problem}") from problem

    def facts(self, position: Position, count: int, environment: Environment) -> CellFacts:
        """Return what the invocation of a cell with this count is made from."""
        record, options = self.record, self.record.options
        return CellFacts(
            kernel_id=record.kernel_id,
            epoch=record.epoch,
            seq=position.next_seq,
            head=position.head,
            head_kernel_id=self._chain().other_kernel_of(position.head),
            manifest=self._services.manifests.get(record.kernel_id, position.head),
            scope=self.scope,
            workspace=options.workspace,
            projects=options.projects,
            run=options.run,
            write_prefix=options.prefix(record.owner),
            workdir_name=record.workdir_name,
            execution_count=count,
            limits=self._services.limits_of(environment),
            seeds=record.seeds,
            pinned=None if options.replay is None else options.replay.pinned,
        )

    def advance(self, invocation: Invocation | None, settled: Settled) -> None:
        """Take over what became of a cell."""
        if not settled.position_known:
            self._position = None
        if self._position is None or invocation is None:
            return
        if settled.head is not None:
            self._position = Position(
                next_seq=invocation.seq + 1,
                head=settled.head,
                head_count=invocation.execution_count,
            )
            if settled.stored is not None:
                manifests = self._services.manifests
                manifests.put(self.record.kernel_id, settled.head, settled.stored)
        elif settled.seq_used:
            self._position = replace(self._position, next_seq=invocation.seq + 1)

    async def close_open_cell(self) -> int:
        """Make sure that nothing commits any more; return the highest number in use.

        Raises:
            StorageError: that cannot be made sure.
            GatewayError: as `hold`.
        """
        await self.hold()
        position, self._position = self._position, None
        if position is None:
            try:
                return (await self._chain().locate(self.record.floor_seq)).next_seq - 1
            except UnreadableCommit:
                return await self._chain().fence_off()
        self._position = position
        return position.next_seq - 1

    async def empty(self, floor_seq: int, seeds: Mapping[str, int]) -> None:
        """Begin again with nothing, durably.

        Args:
            floor_seq: commits up to this number are not looked at any more.
            seeds: what its random number generators begin with.

        Raises:
            StorageError: the record could not be changed; the session is as it was.
            NotFound: the record is gone.
            Moved: another gateway has the kernel now.
        """
        record = replace(
            self.record,
            epoch=self.record.epoch + 1,
            restarts=self.record.restarts + 1,
            floor_seq=floor_seq,
            origin=None,
            seeds=dict(seeds),
        )
        records = self._services.records
        try:
            self.etag = await records.change(record, self.etag)
        except PreconditionFailed as problem:
            found, etag = await records.read(record.kernel_id)
            if found.holder != record.holder:
                raise Moved(MOVED) from problem
            # Our own earlier write, whose answer was lost: what it said is older than this.
            self.etag = await records.change(record, etag)
        self.record = record
        self.execution_count = 0
        self._is_counted = True
        self._position = Position(next_seq=floor_seq + 1)
        self._services.manifests.drop(self.record.kernel_id)

    def forget(self) -> None:
        """Drop what the shared caches hold of it."""
        self._services.forget(self.record.kernel_id)

    async def prefetch(self) -> None:
        """Have the head's bytes at hand for the next cell, which then needs no GET for them."""
        head = self._position.head if self._position is not None else None
        manifests, kernel_id = self._services.manifests, self.record.kernel_id
        if head is None or manifests.get(kernel_id, head) is not None:
            return
        try:
            async with asyncio.timeout(self._services.settings.prefetch_timeout_s):
                manifests.put(kernel_id, head, await self._chain().fetch(head))
        except (TimeoutError, GatewayError):
            logger.info("a commit was not fetched ahead", exc_info=True)

    def _chain(self) -> Chain:
        return Chain(
            origin=self.record.origin,
            store=self._services.store,
            bucket=self._services.stack.state,
            scope=self.scope,
            kernel_id=self.record.kernel_id,
        )
