"""Variables as chunks in the state bucket."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Commit, Namespace, digest_of
from lambda_kernel.contract.invocation import INLINE_PACK_BYTES, CellMessage, Head, Invocation
from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving.errors import InvalidRequest, SnapshotTooLarge, StorageUnavailable
from lambda_kernel.serving.memory import MemoryObjectStore
from lambda_kernel.serving.parallel import CallCount, Pool
from lambda_kernel.serving.snapshots import CHUNK_BYTES, ChunkCache, Snapshots, namespace_of

SCOPE = Scope(user="u1")
KERNEL = "12345678-1234-1234-1234-123456789012"


class Session:
    def __init__(self) -> None:
        self.store = MemoryObjectStore()
        self.pool = Pool(CallCount(), threads=2)
        self.cache = ChunkCache(64 * 1024 * 1024)
        self.snapshots = Snapshots(self.store, "state", self.pool, self.cache)

    def write(self, body: bytes, known: Namespace | None = None) -> Namespace:
        memfd = os.memfd_create("test")
        try:
            os.write(memfd, body)
            pack = self.snapshots.cut(memfd, 2**30)
            self.snapshots.upload(SCOPE, pack, known or Namespace())
            return namespace_of(pack, {"x": "int"})
        finally:
            os.close(memfd)

    def read(self, namespace: Namespace) -> bytes:
        memfd = self.snapshots.restore(SCOPE, namespace)
        try:
            return os.pread(memfd, 2**30, 0)
        finally:
            os.close(memfd)


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session()
    yield session
    session.pool.close()


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


@given(size=st.sampled_from([0, 1, INLINE_PACK_BYTES, INLINE_PACK_BYTES + 1, CHUNK_BYTES + 1]))
def test_what_is_read_is_what_was_written(size: int) -> None:
    session = Session()
    body = (b"0123456789" * (size // 10 + 1))[:size]
    try:
        assert session.read(session.write(body)) == body
    finally:
        session.pool.close()


def test_a_small_pack_rides_inside_the_commit(session: Session) -> None:
    namespace = session.write(b"x" * 1000)
    assert namespace.chunks[0].inline is not None
    assert session.store.calls == []


def test_an_unchanged_chunk_is_not_stored_again(session: Session) -> None:
    first = session.write(b"a" * CHUNK_BYTES + b"b" * CHUNK_BYTES)
    session.store.calls.clear()
    session.write(b"a" * CHUNK_BYTES + b"c" * CHUNK_BYTES, known=first)
    assert [operation for operation, _ in session.store.calls] == ["put"]


def test_equal_chunks_of_one_pack_are_stored_once(session: Session) -> None:
    session.write(b"a" * CHUNK_BYTES * 3)
    assert len(session.store.calls) == 1


def test_a_chunk_in_memory_is_not_fetched(session: Session) -> None:
    namespace = session.write(b"a" * CHUNK_BYTES)
    session.store.calls.clear()
    session.read(namespace)
    assert session.store.calls == []


def test_a_chunk_of_another_scope_is_not_served_from_memory(session: Session) -> None:
    namespace = session.write(b"a" * CHUNK_BYTES)
    with pytest.raises(StorageUnavailable):
        session.snapshots.restore(Scope(user="u2"), namespace)


def test_a_tampered_chunk_is_refused(session: Session) -> None:
    namespace = session.write(b"a" * CHUNK_BYTES)
    session.snapshots = Snapshots(session.store, "state", session.pool, ChunkCache(0))
    session.store.put("state", keys.blob_key(SCOPE, namespace.chunks[0].digest), b"evil")
    with pytest.raises(StorageUnavailable, match="digest"):
        session.read(namespace)


def test_a_tampered_inline_pack_is_refused(session: Session) -> None:
    namespace = session.write(b"a")
    blob = replace(namespace.chunks[0], digest="0" * 64)
    with pytest.raises(StorageUnavailable, match="digest"):
        session.read(replace(namespace, chunks=(blob,)))


def test_the_restored_pack_cannot_be_written_to(session: Session) -> None:
    memfd = session.snapshots.restore(SCOPE, session.write(b"a"))
    with pytest.raises(PermissionError):
        os.write(memfd, b"x")
    os.close(memfd)


def test_a_pack_over_the_limit_is_refused(session: Session) -> None:
    memfd = os.memfd_create("test")
    os.write(memfd, b"12345")
    with pytest.raises(SnapshotTooLarge, match="limit"):
        session.snapshots.cut(memfd, 4)
    os.close(memfd)


def test_the_memory_of_chunks_is_bounded() -> None:
    cache = ChunkCache(10)
    for digest in "abc":
        cache.add(SCOPE, digest, b"12345")
    assert (cache.size_bytes, cache.get(SCOPE, "a")) == (10, None)
    assert cache.get(SCOPE, "c") == b"12345"


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
