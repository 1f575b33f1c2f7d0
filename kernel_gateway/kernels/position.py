"""Where a kernel stands in its chain of commits, and how to find that out from the state bucket."""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass, replace

from kernel_gateway.errors import NotFound, PreconditionFailed, StorageError
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Commit, digest_of
from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.scope import Scope

logger = logging.getLogger(__name__)

ATTEMPTS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The kernel's place.

    Attributes:
        next_seq: the number of the next commit.
        head: the newest commit, or None for an empty session.
        head_count: the execution count of ``head``'s cell.
        execution_count: of the last cell that took one, as far as commits tell.
        stored: the bytes of ``head``, where they were read.
    """

    next_seq: int = 1
    head: Head | None = None
    head_count: int | None = None
    execution_count: int = 0
    stored: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a kernel was forked.

    Attributes:
        kernel_id: the kernel that it was forked from.
        head: the commit of that kernel.
        execution_count: of that commit's cell.
    """

    kernel_id: str
    head: Head
    execution_count: int


class UnreadableCommit(StorageError):
    """The newest commit is not there any more, or is not one; only a restart helps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """The commits of one kernel in the state bucket.

    Attributes:
        store, bucket: where they are.
        scope, kernel_id: whose they are.
        origin: the commit of another kernel that they begin with, or None.
    """

    store: ObjectStore
    bucket: str
    scope: Scope
    kernel_id: str
    origin: Origin | None = None

    def beginning(self, execution_count: int = 0) -> Position:
        """Return the place of a kernel that has committed nothing yet."""
        origin = self.origin
        if origin is None:
            return Position(execution_count=execution_count)
        return Position(
            head=origin.head,
            head_count=origin.execution_count,
            execution_count=max(origin.execution_count, execution_count),
        )

    def other_kernel_of(self, head: Head | None) -> str | None:
        """Return the kernel that a head is a commit of, None where it is this one."""
        origin = self.origin
        return origin.kernel_id if origin is not None and origin.head == head else None

    async def locate(self, floor_seq: int) -> Position:
        """Return the kernel's place, after making sure that it is the last word.

        A cell of an earlier gateway may still be in flight. It can only commit at the next number,
        so that number is taken by a void commit first; where the cell was faster, its commit is
        the head.

        Args:
            floor_seq: commits up to this number belong to before the last restart.

        Raises:
            UnreadableCommit: the newest commit cannot be read.
            StorageError: S3 does not answer.
        """
        for _ in range(ATTEMPTS):
            highest = await self.highest_seq()
            found = await self._at(highest, floor_seq)
            fence = max(highest, floor_seq) + 1
            if await self.put_void(fence, parent=found.head, count=found.execution_count):
                return Position(
                    next_seq=fence + 1,
                    head=found.head,
                    head_count=found.head_count,
                    execution_count=found.execution_count,
                    stored=found.stored,
                )
        raise StorageError(f"kernel {self.kernel_id} has another writer")

    async def look(self, floor_seq: int) -> Position:
        """Return the kernel's place as it is now; a cell may commit behind it at any time.

        Raises:
            UnreadableCommit: the newest commit cannot be read.
            StorageError: S3 does not answer.
        """
        highest = await self.highest_seq()
        found = await self._at(highest, floor_seq)
        return replace(found, next_seq=max(highest, floor_seq) + 1)

    async def fence_off(self) -> int:
        """Take the next number whatever the newest commit is; return it (raises StorageError)."""
        for _ in range(ATTEMPTS):
            fence = await self.highest_seq() + 1
            if await self.put_void(fence, parent=None, count=0):
                return fence
        raise StorageError(f"kernel {self.kernel_id} has another writer")

    async def highest_seq(self) -> int:
        """Return the number of the newest commit, 0 where there is none."""
        return max(await self.seqs(), default=0)

    async def seqs(self) -> list[int]:
        """Return the numbers of all commits, void ones too."""
        prefix = keys.commits_prefix(self.scope, self.kernel_id)
        names = [key.removeprefix(prefix) async for key in self.store.list(self.bucket, prefix)]
        return [int(name) for name in names if name.isascii() and name.isdigit()]

    async def stored_at(self, seq: int) -> bytes:
        """Return the stored bytes of this kernel's commit ``seq`` (raises NotFound)."""
        key = keys.commit_key(self.scope, self.kernel_id, seq)
        return (await self.store.get(self.bucket, key)).body

    async def put_void(self, seq: int, *, parent: Head | None, count: int) -> bool:
        """Take ``seq`` so that nobody can commit there; return whether it was free."""
        void = Commit(
            kernel_id=self.kernel_id,
            scope_hash=self.scope.hash,
            seq=seq,
            parent=parent,
            parent_kernel_id=self.other_kernel_of(parent),
            void=True,
            request_id=uuid.uuid4().hex,
            execution_count=count,
        )
        key = keys.commit_key(self.scope, self.kernel_id, seq)
        try:
            await self.store.put(self.bucket, key, void.to_bytes(), if_absent=True)
        except PreconditionFailed:
            return False
        return True

    async def fetch(self, head: Head) -> bytes:
        """Return the stored bytes of a commit (raises StorageError)."""
        kernel_id = self.other_kernel_of(head) or self.kernel_id
        try:
            stored = await replace(self, kernel_id=kernel_id).stored_at(head.seq)
        except NotFound as missing:
            raise UnreadableCommit(f"commit {head.seq} is not available any more") from missing
        if digest_of(stored) != head.digest:
            raise UnreadableCommit(f"commit {head.seq} is not the one that was committed")
        return stored

    async def _at(self, highest: int, floor_seq: int) -> Position:
        if highest <= floor_seq:
            return self.beginning()
        try:
            stored = await self.stored_at(highest)
        except NotFound as missing:
            raise UnreadableCommit(f"commit {highest} vanished") from missing
        newest = self._read(stored, highest)
        if not newest.void:
            return Position(
                head=Head(seq=highest, digest=digest_of(stored)),
                head_count=newest.execution_count,
                execution_count=newest.execution_count,
                stored=stored,
            )
        head = newest.parent
        if head is None or head.seq <= floor_seq:
            return self.beginning(newest.execution_count)
        parent_stored = await self.fetch(head)
        return Position(
            head=head,
            head_count=self._read(parent_stored, head.seq).execution_count,
            execution_count=newest.execution_count,
            stored=parent_stored,
        )

    def _read(self, stored: bytes, seq: int) -> Commit:
        try:
            commit = Commit.from_bytes(stored)
        except InvalidField as problem:
            raise UnreadableCommit(f"commit {seq} cannot be read: {problem}") from problem
        if (commit.kernel_id, commit.scope_hash) != (self.kernel_id, self.scope.hash):
            raise UnreadableCommit(f"commit {seq} is that of another kernel or scope")
        return commit
