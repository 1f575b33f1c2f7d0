"""Variables as objects and chunks in the state bucket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lambda_kernel.contract import keys, paging
from lambda_kernel.contract.commit import CHUNK_BYTES, Blob, Commit, Namespace, digest_of
from lambda_kernel.contract.invocation import INLINE_PACK_BYTES, CellMessage, Head, Invocation
from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving.errors import InvalidRequest, StorageUnavailable
from lambda_kernel.serving.reports import Draft, Span
from lambda_kernel.serving.snapshots import inline_ids
from tests.unit.serving.sessions import DAY, INDEX, SCOPE, Session, chunks

KERNEL = "12345678-1234-1234-1234-123456789012"


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session()
    yield session
    session.close()


def invocation(head: Head | None) -> Invocation:
    return Invocation(
        request_id="0" * 32,
        kernel_id=KERNEL,
        seq=9,
        parent_head=head,
        scope=SCOPE,
        workdir_name="0" * 32,
        msg=CellMessage(header={}, content={}),
        execution_count=1,
        write_prefix="users/u1/default/",
        nonce="0" * 32,
    )


def void(seq: int, parent: Head | None) -> Commit:
    return Commit(
        kernel_id=KERNEL,
        scope_hash=SCOPE.hash,
        seq=seq,
        parent=parent,
        void=True,
        request_id="0" * 32,
        execution_count=1,
    )


@settings(max_examples=25, deadline=None)
@given(
    sizes=st.lists(
        st.sampled_from([0, 1, 4097, 100_000, INLINE_PACK_BYTES, CHUNK_BYTES + 1]), max_size=6
    )
)
def test_what_is_read_is_what_was_written(sizes: list[int]) -> None:
    session = Session()
    bodies = {i: (b"%d." % i * size)[:size] for i, size in enumerate(sizes, start=2)}
    try:
        namespace = session.write({1: INDEX, **bodies}, index=1)
        assert session.read(namespace) == {1: INDEX, **bodies}
        session.forget()
        assert session.read(namespace) == {1: INDEX, **bodies}
    finally:
        session.close()


def test_small_objects_ride_inside_the_commit(session: Session) -> None:
    namespace = session.write({1: INDEX, 2: b"x" * 1000}, index=1)
    assert [stored.chunks[0].inline is not None for stored in namespace.objects] == [True, True]
    assert session.store.calls == []
    assert session.read(namespace)[2] == b"x" * 1000
    assert session.store.calls == []


def test_one_changed_chunk_is_one_put(session: Session) -> None:
    first = session.write({1: INDEX, 2: chunks("abcd", b"tail")}, index=1)
    session.store.calls.clear()
    second = session.write(
        {3: INDEX},
        index=3,
        parent=first,
        patched={(4, 2): {2: chunks("C")}},
    )
    assert [operation for operation, _ in session.store.calls] == ["put"]
    assert session.stored_bytes == CHUNK_BYTES
    session.forget()
    assert session.read(second) == {3: INDEX, 4: chunks("abCd", b"tail")}


def test_a_shorter_last_chunk_can_be_patched(session: Session) -> None:
    first = session.write({1: INDEX, 2: chunks("a", b"tail")}, index=1)
    second = session.write({3: INDEX}, index=3, parent=first, patched={(4, 2): {1: b"TAIL"}})
    assert session.read(second)[4] == chunks("a", b"TAIL")


def test_a_whole_object_written_again_stores_what_is_new(session: Session) -> None:
    first = session.write({1: INDEX, 2: chunks("ab")}, index=1)
    session.write({3: INDEX, 4: chunks("ac")}, index=3, parent=first)
    assert session.stored_bytes == CHUNK_BYTES


def test_equal_chunks_are_stored_once(session: Session) -> None:
    session.write({1: INDEX, 2: chunks("aaa")}, index=1)
    assert len(session.store.calls) == 1


def test_a_kept_object_costs_nothing(session: Session) -> None:
    first = session.write({1: INDEX, 2: chunks("abc")}, index=1)
    session.forget()
    second = session.write({3: INDEX}, index=3, parent=first, keep=(2,))
    opened = session.snapshots.open(SCOPE, second)
    assert (session.store.calls, opened.fetched_bytes, session.stored_bytes) == ([], 0, 0)
    opened.close()


def test_what_a_cell_wrote_is_in_memory_for_the_next(session: Session) -> None:
    namespace = session.write({1: INDEX, 2: chunks("ab")}, index=1)
    session.store.calls.clear()
    session.read(namespace)
    assert session.store.calls == []


def test_the_same_chunk_is_fetched_once_for_a_cell(session: Session) -> None:
    namespace = session.write({1: INDEX, 2: chunks("aab"), 3: chunks("b")}, index=1)
    session.forget()
    opened = session.snapshots.open(SCOPE, namespace)
    opened.places([2])
    opened.places([2, 3])
    assert opened.fetched_bytes == 2 * CHUNK_BYTES
    opened.close()


def test_where_inline_objects_get_too_many_the_largest_go_outside(session: Session) -> None:
    half = INLINE_PACK_BYTES // 2
    first = session.write({1: INDEX, 2: b"a" * half}, index=1)
    assert session.store.calls == []
    second = session.write({3: INDEX, 4: b"b" * (half - 5)}, index=3, parent=first, keep=(2,))
    assert [stored.chunks[0].inline is None for stored in second.objects] == [True, False, False]
    third = session.write({5: INDEX}, index=5, parent=second, keep=(2,))
    assert third.objects[0].chunks == second.objects[0].chunks
    session.forget()
    assert session.read(third) == {2: b"a" * half, 5: INDEX}


@given(
    sizes=st.lists(st.integers(0, INLINE_PACK_BYTES * 2), min_size=1, max_size=30),
    index=st.integers(1, 30),
)
def test_what_rides_along_fits(sizes: list[int], index: int) -> None:
    drafts = [Draft(i, size, (Span(0, size),)) for i, size in enumerate(sizes, start=1)]
    riding = inline_ids(drafts, index)
    sizes_by_id = {draft.id: draft.size_bytes for draft in drafts}
    assert sum(sizes_by_id[i] for i in riding) <= INLINE_PACK_BYTES
    if sizes_by_id.get(index, INLINE_PACK_BYTES + 1) <= INLINE_PACK_BYTES:
        assert index in riding


def test_a_large_index_is_at_hand_all_the_same(session: Session) -> None:
    index = b"i" * (INLINE_PACK_BYTES + 1)
    namespace = session.write({1: index}, index=1)
    session.forget()
    opened = session.snapshots.open(SCOPE, namespace)
    header = paging.SnapshotHeader.read(opened.snapshot_in)
    assert header.objects[0].offset > 0
    assert os.pread(opened.snapshot_in, len(index), header.objects[0].offset) == index
    opened.close()


def test_a_chunk_of_another_scope_is_not_served_from_memory(session: Session) -> None:
    namespace = session.write({1: INDEX, 2: chunks("a")}, index=1)
    with pytest.raises(StorageUnavailable):
        session.read(namespace, Scope(user="u2"))


def test_a_tampered_chunk_is_refused(session: Session) -> None:
    namespace = session.write({1: INDEX, 2: chunks("a")}, index=1)
    session.forget()
    (blob,) = namespace.objects[1].chunks
    session.store.put("state", keys.blob_key(SCOPE, blob.digest, DAY), b"evil")
    with pytest.raises(StorageUnavailable, match="digest"):
        session.read(namespace)


@pytest.mark.parametrize("text", ["eA==", "?", "\u00e9"])
def test_a_damaged_inline_object_is_refused(session: Session, text: str) -> None:
    namespace = session.write({1: INDEX}, index=1)
    blob = Blob(digest="0" * 64, size_bytes=1, inline=text)
    damaged = replace(namespace.objects[0], chunks=(blob,))
    with pytest.raises(StorageUnavailable):
        session.read(replace(namespace, objects=(damaged,)))


REPLAY = Scope(user="u1", execution=KERNEL)


def test_what_a_replayed_cell_begins_with_is_read_where_it_was_recorded(session: Session) -> None:
    recorded = session.write({1: INDEX, 2: chunks("ab")}, index=1)
    session.forget()
    assert session.read(recorded, REPLAY, source=SCOPE)[2] == chunks("ab")
    session.forget()
    with pytest.raises(StorageUnavailable):
        session.read(recorded, REPLAY)


def test_what_the_recorded_cell_has_stored_is_not_stored_again(session: Session) -> None:
    recorded = session.write({1: INDEX, 2: chunks("ab")}, index=1)
    first, second = recorded.objects[1].chunks
    # As stored on an earlier day, whose key nobody writes to any more.
    days = {first.digest: DAY - 3, second.digest: DAY - 3}
    before = set(session.store.versions)

    again = session.write({1: INDEX, 2: chunks("ac")}, index=1, scope=REPLAY, recorded=days)

    same, other = again.objects[1].chunks
    assert (same.digest, same.day) == (first.digest, DAY - 3)
    assert other.day == DAY
    written = set(session.store.versions) - before
    assert written == {("state", keys.blob_key(REPLAY, other.digest, DAY))}
    assert session.stored_bytes == CHUNK_BYTES


def test_what_a_child_gets_cannot_be_written_to(session: Session) -> None:
    namespace = session.write({1: INDEX, 2: chunks("a")}, index=1)
    opened = session.snapshots.open(SCOPE, namespace)
    ((_, (place,)),) = opened.places([2])
    for descriptor in (opened.snapshot_in, place.segment.descriptor):
        with pytest.raises(PermissionError):
            os.pwrite(descriptor, b"x", 0)
    opened.close()


def test_an_empty_session_is_an_empty_file(session: Session) -> None:
    opened = session.snapshots.open(SCOPE, Namespace())
    assert paging.SnapshotHeader.read(opened.snapshot_in) == paging.SnapshotHeader()
    opened.close()


def test_a_session_without_a_commit_is_empty(session: Session) -> None:
    assert session.snapshots.parent(invocation(None)) is None


def test_the_parent_of_a_void_commit_is_what_counts(session: Session) -> None:
    body = void(3, None).to_bytes()
    session.store.put("state", keys.commit_key(SCOPE, KERNEL, 3), body)
    head = Head(seq=3, digest=digest_of(body))
    assert session.snapshots.parent(invocation(head)) is None


def test_a_parent_with_another_digest_is_refused(session: Session) -> None:
    body = void(3, None).to_bytes()
    session.store.put("state", keys.commit_key(SCOPE, KERNEL, 3), body)
    with pytest.raises(InvalidRequest, match="digest"):
        session.snapshots.parent(invocation(Head(seq=3, digest="0" * 64)))


def test_a_parent_of_another_kernel_is_refused(session: Session) -> None:
    body = replace(void(3, None), kernel_id=KERNEL.replace("1", "2")).to_bytes()
    session.store.put("state", keys.commit_key(SCOPE, KERNEL, 3), body)
    with pytest.raises(InvalidRequest, match="another session"):
        session.snapshots.parent(invocation(Head(seq=3, digest=digest_of(body))))
