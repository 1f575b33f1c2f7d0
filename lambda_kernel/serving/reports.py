"""What a child says of the session it leaves, checked against the session it got."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lambda_kernel.contract.commit import CHUNK_BYTES, Blob, Namespace, StoredObject
from lambda_kernel.contract.paging import PAGE_BYTES
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.snapshot_report import PatchedObject, SnapshotReport
from lambda_kernel.serving.errors import SnapshotTooLarge

MAX_ID = 2**53


@dataclass(frozen=True, slots=True)
class Span:
    """Bytes that the child wrote."""

    offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Draft:
    """An object of the session that is to be stored.

    Attributes:
        id, size_bytes: of the object.
        parts: its chunks: stored with an earlier commit, or written by this cell.
    """

    id: int
    size_bytes: int
    parts: tuple[Blob | Span, ...]

    @property
    def may_ride(self) -> bool:
        """Whether it can be inside the commit: it is small and was not put outside before."""
        if len(self.parts) != 1:
            return False
        part = self.parts[0]
        return isinstance(part, Span) or part.inline is not None


def drafts_of(report: SnapshotReport, parent: Namespace, max_bytes: int) -> list[Draft]:
    """Return the objects of the session that a child leaves, in the order of their ids.

    Raises:
        InvalidField: what it says does not add up.
        SnapshotTooLarge: the objects measure more than ``max_bytes``.
    """
    before = {stored.id: stored for stored in parent.objects}
    # First of all: what is refused must not be cut into billions of chunks before.
    _check_total(report, before, max_bytes)
    drafts = [
        Draft(object_id, before[object_id].size_bytes, before[object_id].chunks)
        for object_id in report.keep
    ]
    drafts += [
        Draft(new.id, new.size_bytes, tuple(_spans(new.offset, new.size_bytes)))
        for new in report.new
    ]
    drafts += [_patched(patched, before[patched.base]) for patched in report.patched]
    _check_ids(report, drafts, before)
    _check_spans(report, drafts)
    return sorted(drafts, key=lambda draft: draft.id)


def _check_total(report: SnapshotReport, before: dict[int, StoredObject], max_bytes: int) -> None:
    total = 0
    for object_id in (*report.keep, *(patched.base for patched in report.patched)):
        if object_id not in before:
            raise InvalidField("snapshot", "names an object that the session did not have")
        total += before[object_id].size_bytes
    for new in report.new:
        if not 0 <= new.size_bytes <= report.size_bytes:
            raise InvalidField("snapshot.new", "has an impossible size")
        total += new.size_bytes
    if total > max_bytes:
        raise SnapshotTooLarge(
            f"the session's variables measure {total / 1e6:.1f} MB, "
            f"the limit is {max_bytes / 1e6:.1f} MB"
        )


def _patched(patched: PatchedObject, base: StoredObject) -> Draft:
    parts: list[Blob | Span] = list(base.chunks)
    for number, offset in patched.chunks:
        if not 0 <= number < len(parts) or isinstance(parts[number], Span):
            raise InvalidField("snapshot.patched", "names a chunk twice or one that is not there")
        parts[number] = Span(offset, parts[number].size_bytes)
    return Draft(patched.id, base.size_bytes, tuple(parts))


def _spans(offset: int, size_bytes: int) -> Iterable[Span]:
    for begin in range(0, size_bytes, CHUNK_BYTES):
        yield Span(offset + begin, min(CHUNK_BYTES, size_bytes - begin))


def _check_ids(
    report: SnapshotReport, drafts: list[Draft], before: dict[int, StoredObject]
) -> None:
    ids = {draft.id for draft in drafts}
    if len(ids) != len(drafts):
        raise InvalidField("snapshot", "names an object twice")
    highest = max(before, default=0)
    new_ids = [new.id for new in report.new] + [patched.id for patched in report.patched]
    for new_id in new_ids:
        if not highest < new_id < MAX_ID:
            raise InvalidField("snapshot", "has a new object whose id is not above all old ones")
    if report.index not in ids and (ids or report.index != 0):
        raise InvalidField("snapshot.index", "is none of the objects")


def _check_spans(report: SnapshotReport, drafts: list[Draft]) -> None:
    spans = [part for draft in drafts for part in draft.parts if isinstance(part, Span)]
    end = 0
    for span in sorted(spans, key=lambda span: span.offset):
        if span.offset % PAGE_BYTES or span.offset < end:
            raise InvalidField("snapshot", "has bytes at an offset that is odd or taken")
        end = span.offset + span.size_bytes
    if end > report.size_bytes:
        raise InvalidField("snapshot.size_bytes", "is less than what is in use")
