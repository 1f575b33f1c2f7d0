"""The session's variables: objects of a child, stored with a commit and there for the next child.

Nothing here knows what the bytes mean; only a child opens them.
"""

from __future__ import annotations

import base64
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Blob, Commit, Namespace, StoredObject, digest_of
from lambda_kernel.contract.invocation import INLINE_PACK_BYTES, Head, Invocation
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving.errors import InvalidRequest
from lambda_kernel.serving.reports import Draft, Span
from lambda_kernel.serving.segments import Place, Segment
from lambda_kernel.serving.session_objects import SessionObjects, Shelf

DAY_S = 86_400


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A session that was stored, not committed yet.

    Attributes:
        namespace: what the commit says of it.
        stored_bytes: written to S3.
    """

    namespace: Namespace
    stored_bytes: int


class Snapshots:
    """Namespaces in the state bucket."""

    def __init__(self, shelf: Shelf, wall_clock: Callable[[], float] = time.time) -> None:
        self._shelf = shelf
        self._wall_clock = wall_clock

    def parent(self, invocation: Invocation) -> Commit | None:
        """Return the commit that the cell starts from, verified; None for an empty session.

        Raises:
            InvalidRequest: it is not the commit that the invocation names.
            StorageUnavailable: it cannot be read.
        """
        head = invocation.parent_head
        kernel_id = invocation.parent_kernel_id or invocation.kernel_id
        stored = invocation.manifest_bytes()
        while head is not None:
            if stored is None:
                key = keys.commit_key(invocation.scope, kernel_id, head.seq)
                stored = self._shelf.store.get(self._shelf.bucket, key)
            commit = _checked_commit(invocation.scope, kernel_id, head, stored)
            if not commit.void:
                return commit
            # The state of a void commit is that of its parent.
            head, stored = commit.parent, None
            kernel_id = commit.parent_kernel_id or kernel_id
        return None

    def open(
        self, scope: Scope, namespace: Namespace, source: Scope | None = None
    ) -> SessionObjects:
        """Return the objects of ``namespace``; the caller closes them.

        Args:
            scope: whose session it is.
            namespace: which objects.
            source: the scope whose stored chunks they are, where it is another.
        """
        return SessionObjects(self._shelf, scope, namespace, source)

    def save(
        self,
        scope: Scope,
        written: Segment,
        drafts: Sequence[Draft],
        index: int,
        known: Namespace,
        recorded: Mapping[str, int] = MappingProxyType({}),
    ) -> Saved:
        """Store what ``known`` (the parent's namespace) does not hold already.

        Args:
            scope: whose session it is.
            written: what the child wrote, sealed; it is kept in memory for the next cell.
            drafts: the objects of the session, in part in ``written``.
            index: id of the one that describes the others.
            known: what a commit names that will stay while this cell runs: nothing else may be
                relied on to be there.
            recorded: digest to day of chunks that a recorded cell has stored: the same.
        """
        day = int(self._wall_clock() // DAY_S)
        saving = _Saving(self._shelf, scope, written, known, day, recorded)
        riding = inline_ids(drafts, index)
        objects = saving.store(drafts, riding)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        self._shelf.cache.add(scope, written, saving.places)
        return Saved(
            namespace=Namespace(objects=objects, index=index, python=version),
            stored_bytes=saving.stored_bytes,
        )


def inline_ids(drafts: Sequence[Draft], index: int) -> set[int]:
    """Return the objects that ride inside the commit: the small ones, as far as there is room.

    Where there is too little, the largest stay outside. The index, which every cell needs, is the
    last to go.
    """
    small = [draft for draft in drafts if draft.may_ride and draft.size_bytes <= INLINE_PACK_BYTES]
    small.sort(key=lambda draft: (draft.id != index, draft.size_bytes, draft.id))
    riding, total = set(), 0
    for draft in small:
        total += draft.size_bytes
        if total > INLINE_PACK_BYTES:
            break
        riding.add(draft.id)
    return riding


class _Saving:
    """One session on its way to S3."""

    def __init__(
        self,
        shelf: Shelf,
        scope: Scope,
        written: Segment,
        known: Namespace,
        day: int,
        recorded: Mapping[str, int],
    ) -> None:
        self._shelf = shelf
        self._scope = scope
        self._written = written
        self._day = day
        self._recorded = recorded
        self._lock = threading.Lock()
        self._blobs = {
            blob.digest: blob
            for stored in known.objects
            for blob in stored.chunks
            if blob.inline is None
        }
        self.places: dict[str, Place] = {}
        self.stored_bytes = 0

    def store(self, drafts: Sequence[Draft], riding: set[int]) -> tuple[StoredObject, ...]:
        """Return the objects, each of whose chunks is stored or rides along."""
        work = [
            (draft, position)
            for draft in drafts
            if draft.id not in riding
            for position, part in enumerate(draft.parts)
            if isinstance(part, Span) or part.inline is not None
        ]
        done = self._shelf.pool.map(lambda item: self._outside(item[0].parts[item[1]]), work)
        outside = {
            (draft.id, number): blob for (draft, number), blob in zip(work, done, strict=True)
        }
        objects = []
        for draft in drafts:
            chunks = [
                self._riding(part)
                if draft.id in riding
                else outside.get((draft.id, number)) or _blob(part)
                for number, part in enumerate(draft.parts)
            ]
            objects.append(
                StoredObject(id=draft.id, size_bytes=draft.size_bytes, chunks=tuple(chunks))
            )
        return tuple(objects)

    def _riding(self, part: Blob | Span) -> Blob:
        if isinstance(part, Blob):
            return part
        body = self._place(part).read()
        text = base64.b64encode(body).decode("ascii")
        return Blob(digest=digest_of(body), size_bytes=len(body), inline=text)

    def _outside(self, part: Blob | Span) -> Blob:
        if isinstance(part, Span):
            body = self._place(part).read()
        else:
            body = base64.b64decode(part.inline or "")
        digest = digest_of(body)
        day = self._recorded.get(digest)
        blob = Blob(digest=digest, size_bytes=len(body), day=self._day if day is None else day)
        with self._lock:
            if isinstance(part, Span):
                self.places[blob.digest] = self._place(part)
            known = self._blobs.setdefault(blob.digest, blob)
        # Of equal chunks the first is stored; the commit waits for all of them.
        if known is blob and day is None:
            key = keys.blob_key(self._scope, blob.digest, blob.day)
            self._shelf.store.put(self._shelf.bucket, key, body, sha256=blob.digest)
            with self._lock:
                self.stored_bytes += len(body)
        return known

    def _place(self, span: Span) -> Place:
        return Place(self._written, span.offset, span.size_bytes)


def _blob(part: Blob | Span) -> Blob:
    assert isinstance(part, Blob)  # noqa: S101
    return part


def _checked_commit(scope: Scope, kernel_id: str, head: Head, stored: bytes) -> Commit:
    if digest_of(stored) != head.digest:
        raise InvalidRequest("the parent commit does not have the digest that was named")
    try:
        commit = Commit.from_bytes(stored)
    except InvalidField as error:
        raise InvalidRequest(f"the parent commit cannot be read: {error}") from error
    named = (commit.scope_hash, commit.kernel_id, commit.seq)
    if named != (scope.hash, kernel_id, head.seq):
        raise InvalidRequest("the parent commit belongs to another session")
    return commit
