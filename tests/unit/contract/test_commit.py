import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambda_kernel.contract.commit import (
    Blob,
    Commit,
    CommittedFile,
    Namespace,
    StoredObject,
    digest_of,
)
from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.outcome import Outcome, Status
from lambda_kernel.contract.schema import InvalidField

KERNEL_ID = "01234567-89ab-cdef-0123-456789abcdef"


def a_commit(*, void: bool = False) -> Commit:
    outcome = Outcome(status=Status.OK, started=True, committed=False, nonce="c" * 32)
    blobs = (
        Blob(digest="f" * 64, size_bytes=4, inline="YWJjZA=="),
        Blob(digest="1" * 64, size_bytes=9, day=20_000),
    )
    objects = tuple(
        StoredObject(id=n, size_bytes=blob.size_bytes, chunks=(blob,))
        for n, blob in enumerate(blobs, start=2)
    )
    return Commit(
        kernel_id=KERNEL_ID,
        scope_hash="a" * 64,
        seq=7,
        parent=Head(seq=5, digest="b" * 64),
        void=void,
        request_id="d" * 32,
        execution_count=6,
        files=(CommittedFile(key="users/u/w/x", version_id="1", digest="e" * 64, size_bytes=3),),
        namespace=Namespace(objects=objects, index=3, python="3.11"),
        outcome=None if void else outcome,
    )


@pytest.mark.parametrize("void", [False, True])
def test_a_commit_survives_storage(void: bool) -> None:
    commit = a_commit(void=void)
    assert Commit.from_bytes(commit.to_bytes()) == commit


def test_an_adopted_outcome_is_committed_at_its_own_digest() -> None:
    stored = a_commit().to_bytes()
    outcome = Commit.from_bytes(stored).adopt(stored)
    assert outcome.committed
    assert outcome.head == Head(seq=7, digest=digest_of(stored))


def test_a_void_commit_has_no_outcome_to_adopt() -> None:
    stored = a_commit(void=True).to_bytes()
    with pytest.raises(ValueError, match="void"):
        Commit.from_bytes(stored).adopt(stored)


@given(st.binary(max_size=100))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(InvalidField):
        Commit.from_bytes(noise)
    with pytest.raises(InvalidField):
        Commit.from_bytes(zlib.compress(noise))


def test_a_commit_that_is_cut_short_is_refused() -> None:
    stored = a_commit().to_bytes()
    for end in range(len(stored)):
        with pytest.raises(InvalidField):
            Commit.from_bytes(stored[:end])


def test_a_bomb_is_refused_without_unpacking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lambda_kernel.contract.commit.COMMIT_BYTES", 10_000)
    with pytest.raises(InvalidField, match="larger than allowed"):
        Commit.from_bytes(zlib.compress(b" " * 100_000))


def test_a_commit_of_an_unknown_version_is_refused_with_what_to_do() -> None:
    data = json.loads(zlib.decompress(a_commit().to_bytes())) | {"schema": 3, "new_field": 1}
    with pytest.raises(InvalidField, match=r"commit.schema: is '3'.* restart the kernel, which"):
        Commit.from_bytes(zlib.compress(json.dumps(data).encode()))
