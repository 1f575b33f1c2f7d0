"""Counts: requests that wait for each other, and memory that is shared."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from lambda_kernel.serving import sampling
from lambda_kernel.serving.parallel import CallCount, Pool
from lambda_kernel.serving.sampling import ProcessMemory

ZYGOTE = ProcessMemory(pid=2, parent=1, command=b"python", private_bytes=100, shared_bytes=0)


@pytest.fixture
def count() -> CallCount:
    count = CallCount()
    count.reset()
    return count


@pytest.fixture
def pool(count: CallCount) -> Iterator[Pool]:
    pool = Pool(count, threads=4)
    yield pool
    pool.close()


def test_parallel_requests_count_once_in_the_chain(count: CallCount, pool: Pool) -> None:
    count.called()
    pool.map(lambda _: count.called(), range(10))
    count.called()
    assert (count.total, count.chain) == (12, 3)


def test_the_longest_branch_counts(count: CallCount, pool: Pool) -> None:
    def three_calls() -> None:
        for _ in range(3):
            count.called()

    long = pool.start(three_calls)
    short = pool.start(count.called)
    pool.wait(long)
    pool.wait(short)
    assert (count.total, count.chain) == (4, 3)


def test_all_tasks_have_ended_when_one_fails(pool: Pool) -> None:
    done: list[int] = []

    def task(number: int) -> None:
        if number == 0:
            raise ValueError("first")
        done.append(number)

    futures = [pool.start(task, number) for number in range(20)]
    with pytest.raises(ValueError, match="first"):
        pool.wait_all(futures)
    assert all(future.done() for future in futures)


def test_a_fork_counts_only_what_it_has_beyond_its_origin() -> None:
    child = ProcessMemory(pid=3, parent=2, command=b"python", private_bytes=150, shared_bytes=0)
    worker = ProcessMemory(pid=4, parent=3, command=b"python", private_bytes=160, shared_bytes=0)
    assert sampling.total_bytes([child, worker], ZYGOTE) == 60


def test_an_orphaned_fork_still_shares_with_the_zygote() -> None:
    orphan = ProcessMemory(pid=9, parent=1, command=b"python", private_bytes=120, shared_bytes=0)
    assert sampling.total_bytes([orphan], ZYGOTE) == 20


def test_another_program_counts_in_full() -> None:
    child = ProcessMemory(pid=3, parent=2, command=b"python", private_bytes=100, shared_bytes=0)
    program = ProcessMemory(pid=4, parent=3, command=b"sort", private_bytes=70, shared_bytes=0)
    assert sampling.total_bytes([child, program], ZYGOTE) == 70


def test_stored_shared_memory_counts_once_whether_it_is_mapped_or_not() -> None:
    child = ProcessMemory(pid=3, parent=2, command=b"python", private_bytes=110, shared_bytes=50)
    assert sampling.total_bytes([child], ZYGOTE, stored_bytes=0) == 60
    assert sampling.total_bytes([child], ZYGOTE, stored_bytes=50) == 60
    assert sampling.total_bytes([child], ZYGOTE, stored_bytes=70) == 80


def test_this_process_has_memory() -> None:
    found = sampling.read(os.getpid())
    assert found is not None
    assert found.private_bytes > 1_000_000
    assert sampling.read(2**22 + 1) is None
