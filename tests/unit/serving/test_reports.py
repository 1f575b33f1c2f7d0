"""What a child says of the session it leaves: whatever does not add up is refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambda_kernel.contract.commit import CHUNK_BYTES, Blob, Namespace, StoredObject
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.snapshot_report import MAX_OBJECTS, SnapshotReport
from lambda_kernel.serving import child_messages
from lambda_kernel.serving.errors import SnapshotTooLarge
from lambda_kernel.serving.reports import Span, drafts_of

MIB = 1024**2
LIMIT = 64 * MIB


def blob(size: int) -> Blob:
    return Blob(digest=f"{size:064x}", size_bytes=size, day=1)


PARENT = Namespace(
    objects=(
        StoredObject(id=1, size_bytes=100, chunks=(blob(100),)),
        StoredObject(
            id=5,
            size_bytes=2 * CHUNK_BYTES + 3,
            chunks=(blob(CHUNK_BYTES), blob(CHUNK_BYTES), blob(3)),
        ),
    ),
    index=1,
)
GOOD: dict[str, Any] = {
    "kind": "snapshot",
    "size_bytes": 8192 + CHUNK_BYTES,
    "index": 6,
    "keep": [5],
    "new": [[6, 0, 50]],
    "patched": [[7, 5, [[0, 4096], [2, 4096 + CHUNK_BYTES]]]],
    "lost": [],
}


def drafts(**changes: Any) -> Any:
    return drafts_of(SnapshotReport.from_dict({**GOOD, **changes}), PARENT, LIMIT)


def test_a_report_that_adds_up_becomes_the_objects_in_order() -> None:
    kept, new, patched = drafts()
    assert (kept.id, kept.parts) == (5, PARENT.objects[1].chunks)
    assert (new.id, new.parts) == (6, (Span(0, 50),))
    assert patched.size_bytes == 2 * CHUNK_BYTES + 3
    assert patched.parts == (
        Span(4096, CHUNK_BYTES),
        PARENT.objects[1].chunks[1],
        Span(4096 + CHUNK_BYTES, 3),
    )


def test_a_large_object_is_cut_into_chunks() -> None:
    size = 2 * CHUNK_BYTES + 1
    (draft,) = drafts(size_bytes=size, keep=[], patched=[], new=[[6, 0, size]])
    assert draft.parts == (
        Span(0, CHUNK_BYTES),
        Span(CHUNK_BYTES, CHUNK_BYTES),
        Span(2 * CHUNK_BYTES, 1),
    )


def test_an_empty_session_may_be_left() -> None:
    assert drafts(size_bytes=0, index=0, keep=[], new=[], patched=[]) == []


ATTACKS: dict[str, dict[str, Any]] = {
    "a foreign id is kept": {"keep": [5, 4]},
    "an id is kept twice": {"keep": [5, 5]},
    "a new id is one of the session before": {"keep": [], "new": [[5, 0, 1], [6, 4096, 50]]},
    "a new id is below the highest": {"new": [[4, 0, 1], [6, 4096, 50]]},
    "a new id is negative": {"new": [[-1, 0, 1], [6, 4096, 50]]},
    "a new id is enormous": {"new": [[2**60, 0, 1], [6, 4096, 50]]},
    "a new id occurs twice": {"new": [[6, 0, 50], [6, 8192, 1]], "patched": []},
    "a patched id is a new one": {"patched": [[6, 5, []]]},
    "a foreign object is patched": {"patched": [[7, 9, []]]},
    "a new object is patched": {"patched": [[7, 6, []]]},
    "a chunk that is not there": {"patched": [[7, 5, [[3, 4096]]]]},
    "a chunk with a negative number": {"patched": [[7, 5, [[-1, 4096]]]]},
    "a chunk twice": {"patched": [[7, 5, [[2, 4096], [2, 8192]]]]},
    "offsets overlap": {"new": [[6, 0, 5000]]},
    "an offset is taken": {"new": [[6, 4096, 50]]},
    "an offset is odd": {"new": [[6, 10, 50]], "patched": []},
    "an offset is negative": {"new": [[6, -4096, 50]]},
    "a size is negative": {"new": [[6, 0, -1]]},
    "the end is behind what is used": {"size_bytes": 8192},
    "used bytes are negative": {"size_bytes": -1},
    "used bytes are none": {"size_bytes": 0},
    "the index is foreign": {"index": 1},
    "the index is none of them": {"index": 99},
    "there is no index": {"index": 0},
}


@pytest.mark.parametrize("name", ATTACKS)
def test_a_report_that_does_not_add_up_is_refused(name: str) -> None:
    with pytest.raises(InvalidField):
        drafts(**ATTACKS[name])


@pytest.mark.parametrize(
    "changes",
    [
        {"size_bytes": 2**50, "new": [[6, 0, 2**50]], "patched": []},
        {"patched": [[n, 5, []] for n in range(7, 5000)]},
        {"size_bytes": LIMIT, "new": [[6, 0, LIMIT - 10]], "patched": []},
    ],
)
def test_a_session_over_the_limit_is_refused_before_it_is_cut(changes: dict[str, Any]) -> None:
    with pytest.raises(SnapshotTooLarge, match="limit"):
        drafts(**changes)


@pytest.mark.parametrize(
    "changes",
    [
        {"keep": [True]},
        {"keep": ["5"]},
        {"keep": 5},
        {"new": [[6, 0]]},
        {"new": [[6, 0, 1.0]]},
        {"new": [[6, 0, True]]},
        {"new": {"6": 0}},
        {"patched": [[7, 5]]},
        {"patched": [[7, 5, [[1]]]]},
        {"patched": [[7, 5, {}]]},
        {"keep": list(range(MAX_OBJECTS + 1))},
        {"names": {}},
        {"index": None},
        {"digest": "0" * 64},
    ],
)
def test_a_report_of_another_form_is_none(changes: dict[str, Any]) -> None:
    assert child_messages.snapshot({**GOOD, **changes}) is None


NUMBERS = st.one_of(st.integers(-2, 12), st.sampled_from([4096, 8192, CHUNK_BYTES, 2**63]))
REPORTS = st.fixed_dictionaries(
    {
        "size_bytes": NUMBERS,
        "index": NUMBERS,
        "keep": st.lists(NUMBERS, max_size=3),
        "new": st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS).map(list), max_size=3),
        "patched": st.lists(
            st.tuples(
                NUMBERS, NUMBERS, st.lists(st.tuples(NUMBERS, NUMBERS).map(list), max_size=3)
            ).map(list),
            max_size=2,
        ),
        "lost": st.just([]),
    }
)


@given(REPORTS)
def test_whatever_is_accepted_holds_together(data: dict[str, Any]) -> None:
    report = SnapshotReport.from_dict({"kind": "snapshot", **data})
    try:
        found = drafts_of(report, PARENT, LIMIT)
    except (InvalidField, SnapshotTooLarge):
        return
    ids = [draft.id for draft in found]
    assert ids == sorted(set(ids))
    assert not ids or report.index in ids
    end = 0
    spans = [part for draft in found for part in draft.parts if isinstance(part, Span)]
    for span in sorted(spans, key=lambda span: span.offset):
        assert span.offset >= end
        end = span.offset + span.size_bytes
    assert end <= report.size_bytes
    for draft in found:
        assert sum(part.size_bytes for part in draft.parts) == draft.size_bytes
        assert all(part.size_bytes == CHUNK_BYTES for part in draft.parts[:-1])
