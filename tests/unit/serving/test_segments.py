"""Sealed memory files and the cache of them."""

from __future__ import annotations

import fcntl
import mmap
import os

import pytest

from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving.segments import (
    Holder,
    NotSealable,
    Place,
    Segment,
    SegmentCache,
    StillWritten,
    seal,
)

SCOPE = Scope(user="u1")


def memfd(body: bytes) -> int:
    descriptor = os.memfd_create("test", os.MFD_ALLOW_SEALING)
    os.write(descriptor, body)
    return descriptor


def add(cache: SegmentCache, digests: str, size: int = 10, scope: Scope = SCOPE) -> Segment:
    segment = Segment(memfd(b"x" * size))
    cache.add(scope, segment, {digest: Place(segment, 0, 1) for digest in digests})
    segment.release()
    return segment


def is_open(segment: Segment) -> bool:
    try:
        os.fstat(segment.descriptor)
    except OSError:
        return False
    return True


def test_a_sealed_file_is_cut_and_read_only() -> None:
    descriptor = memfd(b"12345678")
    seal(descriptor, 5)
    assert os.fstat(descriptor).st_size == 5
    with pytest.raises(PermissionError):
        os.pwrite(descriptor, b"x", 0)
    os.close(descriptor)


def test_a_file_that_somebody_can_write_to_is_not_taken() -> None:
    descriptor = memfd(b"x" * 4096)
    with mmap.mmap(descriptor, 4096), pytest.raises(StillWritten):
        seal(descriptor, 4096)
    os.close(descriptor)


@pytest.mark.parametrize(
    ("seals", "size"),
    [
        (fcntl.F_SEAL_SEAL, 8),
        (fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW, 8),
        (fcntl.F_SEAL_SHRINK, 5),
        (0, 9),
    ],
)
def test_what_a_cell_sealed_its_own_way_is_not_taken(seals: int, size: int) -> None:
    descriptor = memfd(b"12345678")
    if seals:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    with pytest.raises(NotSealable):
        seal(descriptor, size)
    os.close(descriptor)


def test_the_least_recently_used_segment_leaves_first() -> None:
    cache, holder = SegmentCache(20), Holder()
    first, second = add(cache, "a"), add(cache, "b")
    cache.find(SCOPE, "a", Holder())
    third = add(cache, "c")
    assert set(cache.find(SCOPE, "abc", holder)) == {"a", "c"}
    assert (is_open(first), is_open(third), cache.size_bytes) == (True, True, 20)
    assert second not in (first, third)
    holder.close()
    cache.clear()


def test_the_number_of_segments_is_bounded() -> None:
    cache = SegmentCache(10**6, max_segments=3)
    for digest in "abcdef":
        add(cache, digest)
    assert cache.count == 3
    cache.clear()
    assert (cache.count, cache.size_bytes) == (0, 0)


def test_a_segment_that_is_in_use_stays_open_when_it_leaves_the_cache() -> None:
    cache, holder = SegmentCache(10), Holder()
    segment = add(cache, "a")
    cache.find(SCOPE, "a", holder)
    add(cache, "b")
    assert cache.find(SCOPE, "a", holder) == {}
    assert is_open(segment)
    holder.close()
    assert not is_open(segment)
    cache.clear()


def test_a_segment_whose_chunks_are_all_in_newer_ones_leaves() -> None:
    cache = SegmentCache(100)
    old = add(cache, "ab")
    add(cache, "a")
    assert is_open(old)
    add(cache, "b")
    assert not is_open(old)
    assert cache.size_bytes == 20
    cache.clear()


def test_a_segment_larger_than_the_cache_is_not_kept() -> None:
    cache = SegmentCache(5)
    assert not is_open(add(cache, "a"))


def test_another_scope_does_not_see_what_is_there() -> None:
    cache = SegmentCache(100)
    add(cache, "a")
    assert cache.find(Scope(user="u2"), "a", Holder()) == {}
    cache.clear()
