"""What a cell was recorded to begin with, copied to where its replay may read it.

Never something newer: what is not kept any more is `Unavailable`.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from kernel_gateway.errors import NotFound
from kernel_gateway.kernels.forking import Found
from kernel_gateway.kernels.position import Origin
from kernel_gateway.objects import ObjectStore
from kernel_gateway.replay.recorded import RecordedCell, RecordedTrail, root_of, scope_of
from lambda_kernel.contract import keys, names
from lambda_kernel.contract.commit import Blob, Commit, CommittedFile, Namespace, digest_of
from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.scope import Scope

COPIES_AT_ONCE = 8
_SHARED = re.compile(r"(users/[^/]+/\.replays/[^/]+/)inputs/[0-9]+/")
MAX_COMMITS = 16
MAX_CHUNKS = 500
"""Of those that a recorded cell has stored: they ride in the record and in the invocation."""


class Unavailable(Exception):
    """Something that was recorded is not kept any more; the text says what."""


class VersionedFiles(Protocol):
    """The workspaces bucket. Every method may raise StorageError."""

    async def copy_version(self, key: str, version_id: str, target: str) -> None:
        """Store a version of a file under another key (raises NotFound)."""

    async def version_before(self, key: str, version_id: str) -> str | None:
        """Return the version of a file before this one, None where there is none."""

    async def delete(self, key: str) -> None:
        """Delete the file (raises NotFound)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One version of a file."""

    key: str
    version_id: str | None


Pins = Mapping[str, Pin]
"""By path in the workspace."""


class RecordedStates:
    """The files and variables that recorded cells began with and left.

    Args:
        trail: whose cells.
        store: S3, for commits and chunks.
        files: S3, for the workspaces.
        stack: names of buckets.
        readable: prefix of the workspaces bucket that the caller may have files of; None = none,
            and no variables either.
    """

    def __init__(
        self,
        trail: RecordedTrail,
        store: ObjectStore,
        files: VersionedFiles,
        stack: Stack,
        *,
        readable: str | None,
    ) -> None:
        self._trail = trail
        self._store = store
        self._files = files
        self._stack = stack
        self._readable = readable
        self._copied: dict[str, asyncio.Task[None]] = {}
        self._commits: dict[str, Commit] = {}
        self._inputs: dict[frozenset[tuple[str, Pin]], int] = {}
        self._copying = asyncio.Semaphore(COPIES_AT_ONCE)

    async def commit(self, cell: RecordedCell) -> Commit | None:
        """Return the commit of a cell, None where it has none.

        Raises:
            Unavailable: it is not kept any more.
            StorageError: S3 does not answer.
        """
        head = None if cell.finished is None else cell.finished.head
        if head is None:
            return None
        return (await self._commit(cell, self._trail.kernel_id, head))[0]

    def scope_of(self, cell: RecordedCell) -> Scope:
        """Return whose state a cell's commit is in (raises Unavailable)."""
        first = self._trail.facts
        session = None if cell.facts is None else cell.facts.session
        # A trail that somebody brought along may say of each cell another owner.
        is_same = first is not None and session is not None and session.owner == first.session.owner
        found = scope_of(session, self._trail.kernel_id) if is_same and session else None
        if found is None or self._readable is None:
            raise Unavailable("the variables of that session are not kept for you")
        return found

    async def files_after(self, cell: RecordedCell) -> Pins:
        """Return the workspace as a cell has committed it; raises as `commit`."""
        assert cell.facts is not None  # noqa: S101  (has_committed is asked before)
        root = root_of(cell.facts.session)
        workspace = None
        if cell.finished is not None and cell.finished.handler is not None:
            workspace = cell.finished.handler.workspace
        if workspace is not None and len(workspace.files) == workspace.count:
            return _pins(workspace.files, root)
        commit = await self.commit(cell)
        return _pins(() if commit is None else commit.files, root)

    async def files_before(self, cell: RecordedCell) -> Pins:
        """Return the workspace that a cell found.

        Raises:
            Unavailable: it is not recorded.
            StorageError: S3 does not answer.
        """
        said = _inputs(cell)
        if said is not None:
            return said
        if not cell.has_committed:
            return await self._around(cell)
        assert cell.finished is not None  # noqa: S101
        found = dict(await self.files_after(cell))
        changes = () if cell.finished.handler is None else cell.finished.handler.files
        deleted = any(change.change == "deleted" for change in changes)
        left = (await self._files_left(cell) if deleted else None) or {}
        for change in changes:
            if change.path.endswith("/"):
                continue
            found.pop(change.path, None)
            if change.change == "deleted" and change.path in left:
                # A deletion's place among versions of the same second is not known.
                found[change.path] = left[change.path]
            elif change.change != "created":
                found[change.path] = await self._version_before(change.key, change.version_id)
        return found

    async def bring(self, pins: Pins, target: str) -> None:
        """Copy files to where a replay works.

        Raises:
            Unavailable: one is not kept any more, or not the caller's.
            StorageError: S3 does not answer.
        """

        async def copy(path: str, pin: Pin) -> None:
            if not self._may_read(pin.key):
                raise Unavailable(f"{path} was in a workspace that is not yours")
            if pin.version_id is None:
                raise Unavailable(f"{path}: which version it was is not recorded")
            try:
                names.check_file_key(path)
                async with self._copying:
                    await self._files.copy_version(pin.key, pin.version_id, target + path)
            except (InvalidField, NotFound) as gone:
                raise Unavailable(
                    f"{path} (version {pin.version_id}) is not kept any more"
                ) from gone

        await all_of(copy(path, pin) for path, pin in pins.items())

    async def inputs(self, cell: RecordedCell, target: Callable[[int], str]) -> str:
        """Copy what a cell found, and return where it is: cells that found the same share it.

        Args:
            cell: which.
            target: the prefix for the copies with a number.

        Raises:
            Unavailable, StorageError: as `bring`.
        """
        pins = await self.files_before(cell)
        number = self._inputs.setdefault(frozenset(pins.items()), len(self._inputs) + 1)
        prefix = target(number)
        await self._once(prefix, lambda: self.bring(pins, prefix))
        return prefix

    async def chunks(self, cell: RecordedCell) -> dict[str, int]:
        """Return digest and day of what a cell has stored, none where its commit is not kept.

        Raises:
            StorageError: S3 does not answer.
        """
        try:
            commit = await self.commit(cell)
        except Unavailable:
            return {}
        chunks = () if commit is None else _chunks_of(commit.namespace)
        largest = sorted(chunks, key=lambda chunk: -chunk.size_bytes)[:MAX_CHUNKS]
        return {chunk.digest: chunk.day for chunk in largest}

    async def begin(
        self, cell: RecordedCell, scope: Scope, *, in_place: bool = False
    ) -> Found | None:
        """Copy the variables that a cell began with into a replay's scope.

        Args:
            cell: which.
            scope: the replay's.
            in_place: the replay reads the chunks where they are: only the commit is copied.

        Returns:
            The commit to begin with, None where the cell began with nothing.

        Raises:
            Unavailable: they are not kept any more.
            StorageError: S3 does not answer.
        """
        parent = cell.started.parent
        if parent is None:
            return None
        kernel_id = cell.started.parent_kernel_id or self._trail.kernel_id
        recorded, own = await self._commit(cell, kernel_id, parent)
        # Without HOME and files: the replay has none of the one, and others of the other.
        copied = replace(
            recorded,
            scope_hash=scope.hash,
            parent=None,
            parent_kernel_id=None,
            files=(),
            home_head=None,
        )
        stored = copied.to_bytes()
        key = keys.commit_key(scope, kernel_id, parent.seq)
        # First of all: a chunk that no commit names may be collected.
        await self._once(key, lambda: self._put(key, stored))
        await self._bring_chunks(recorded.namespace, own, None if in_place else scope)
        head = Head(seq=parent.seq, digest=digest_of(stored))
        count = cell.started.execution_count - 1
        origin = Origin(kernel_id=kernel_id, head=head, execution_count=count)
        return Found(origin=origin, stored=stored)

    async def _bring_chunks(self, namespace: Namespace, own: Scope, scope: Scope | None) -> None:
        """Copy chunks to a scope, or make sure that they are there (raises Unavailable)."""
        bucket = self._stack.state

        async def bring(chunk: Blob) -> None:
            source = keys.blob_key(own, chunk.digest, chunk.day)
            async with self._copying:
                if scope is None:
                    is_there = await self._store.exists(bucket, source)
                else:
                    is_there = await self._copy(
                        source, keys.blob_key(scope, chunk.digest, chunk.day)
                    )
            if not is_there:
                raise Unavailable("some of its variables are not kept any more")

        await all_of(
            self._once(f"{chunk.digest}/{chunk.day}", functools.partial(bring, chunk))
            for chunk in _chunks_of(namespace)
        )

    async def _copy(self, source: str, target: str) -> bool:
        try:
            await self._store.copy(self._stack.state, source, target)
        except NotFound:
            return False
        return True

    async def _put(self, key: str, stored: bytes) -> None:
        await self._store.put(self._stack.state, key, stored)

    async def _once(self, key: str, work: Callable[[], Awaitable[None]]) -> None:
        async def run() -> None:
            await work()

        if key not in self._copied:
            self._copied[key] = asyncio.create_task(run())
        await asyncio.shield(self._copied[key])

    async def _commit(self, cell: RecordedCell, kernel_id: str, head: Head) -> tuple[Commit, Scope]:
        scope = self.scope_of(cell)
        if head.digest in self._commits:
            return self._commits[head.digest], scope
        what = f"commit {head.seq} of kernel {kernel_id}"
        try:
            names.check_kernel_id(kernel_id)
            key = keys.commit_key(scope, kernel_id, head.seq)
            stored = (await self._store.get(self._stack.state, key)).body
            commit = Commit.from_bytes(stored)
        except (NotFound, InvalidField) as gone:
            raise Unavailable(f"{what} is not kept any more") from gone
        if digest_of(stored) != head.digest:
            raise Unavailable(f"{what} is not the one that was recorded")
        # One cell's end is the next one's beginning, and is compared with.
        self._commits[head.digest] = commit
        while len(self._commits) > MAX_COMMITS:
            del self._commits[next(iter(self._commits))]
        return commit, scope

    async def _around(self, cell: RecordedCell) -> Pins:
        """Return the workspace as the committed cell before says it, else as the next found it."""
        left = await self._files_left(cell)
        if left is not None:
            return left
        cells = self._trail.cells
        after = next((each for each in cells[cell.number :] if each.has_committed), None)
        if after is None:
            raise Unavailable("what was in the workspace is not recorded")
        return await self.files_before(after)

    async def _files_left(self, cell: RecordedCell) -> Pins | None:
        """Return the workspace that the committed cell before a cell left; None = there is none."""
        before = [each for each in self._trail.cells[: cell.number - 1] if each.has_committed]
        return await self.files_after(before[-1]) if before else None

    def _may_read(self, key: str) -> bool:
        # A trail that somebody brought along names any key; storage must not be asked to climb.
        climbs = {".", ".."} & set(key.replace("\\", "/").split("/"))
        return self._readable is not None and key.startswith(self._readable) and not climbs

    async def _version_before(self, key: str, version_id: str | None) -> Pin:
        found = None
        if version_id is not None and self._may_read(key):
            found = await self._files.version_before(key, version_id)
        return Pin(key=key, version_id=found)


def _chunks_of(namespace: Namespace) -> set[Blob]:
    """Return what is stored of variables outside of their commit."""
    return {chunk for each in namespace.objects for chunk in each.chunks if chunk.inline is None}


def _inputs(cell: RecordedCell) -> Pins | None:
    """Return the files that the entry itself says the cell found; None = it names none."""
    handler = None if cell.finished is None else cell.finished.handler
    inputs = None if handler is None else handler.inputs
    if inputs is None or cell.facts is None or len(inputs.files) != inputs.count:
        return None
    return _pins(inputs.files, root_of(cell.facts.session))


def _pins(files: tuple[CommittedFile, ...], root: str) -> dict[str, Pin]:
    paths = ((file, _path_of(file.key, root)) for file in files)
    return {path: Pin(key=file.key, version_id=file.version_id) for file, path in paths if path}


def _path_of(key: str, root: str) -> str | None:
    if key.startswith(root):
        return key.removeprefix(root)
    # What a pinned cell found, and left as it was, lies beside its own folder.
    shared = _SHARED.match(key)
    return key[shared.end() :] if shared is not None and root.startswith(shared[1]) else None


async def all_of(work: Iterable[Awaitable[None]]) -> None:
    """Do all of it at once; the first problem is raised when nothing is under way any more."""
    results = await asyncio.gather(*work, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
