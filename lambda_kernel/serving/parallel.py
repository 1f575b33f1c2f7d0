"""Threads for requests that do not wait for each other, and a count of those that do."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

T = TypeVar("T")
A = TypeVar("A")


class CallCount:
    """Counts AWS requests, and the longest chain of them, one waiting for the other.

    The chain is a property of the code, not of the clock: a task begins with the chain of whoever
    submitted it, and who waits for it goes on with the longer of both chains.
    """

    def __init__(self) -> None:
        self.total = 0
        self._lock = threading.Lock()
        self._local = threading.local()

    def reset(self) -> None:
        """Begin a new invocation in this thread."""
        self.total = 0
        self.chain = 0

    @property
    def chain(self) -> int:
        """The length of this thread's chain."""
        return getattr(self._local, "chain", 0)

    @chain.setter
    def chain(self, value: int) -> None:
        self._local.chain = value

    def called(self, **_: Any) -> None:
        """Note one request of this thread; its signature is that of a botocore event."""
        with self._lock:
            self.total += 1
        self.chain += 1


class Pool:
    """A fixed set of threads whose tasks carry the chain of calls."""

    def __init__(self, count: CallCount, threads: int = 24) -> None:
        self._count = count
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix="aws")

    def start(self, function: Callable[..., T], *arguments: Any) -> Future[tuple[T, int]]:
        """Begin ``function(*arguments)`` in a thread; give the result to ``wait``."""
        chain = self._count.chain

        def task() -> tuple[T, int]:
            self._count.chain = chain
            return function(*arguments), self._count.chain

        return self._executor.submit(task)

    def wait(self, future: Future[tuple[T, int]]) -> T:
        """Return what the task returned, or raise what it raised."""
        result, chain = future.result()
        self._count.chain = max(self._count.chain, chain)
        return result

    def wait_all(self, futures: Iterable[Future[tuple[T, int]]]) -> list[T]:
        """Return what the tasks returned, in order.

        All of them have ended when this comes back, also by the first exception.
        """
        error: BaseException | None = None
        results: list[T] = []
        for future in futures:
            if error is not None and future.cancel():
                continue
            try:
                results.append(self.wait(future))
            except BaseException as raised:  # noqa: BLE001  (raised below, after the others)
                error = error or raised
        if error is not None:
            raise error
        return results

    def map(self, function: Callable[[A], T], items: Iterable[A]) -> list[T]:
        """Return ``function(item)`` for each item, in order, as ``wait_all`` does."""
        return self.wait_all([self.start(function, item) for item in items])

    def close(self) -> None:
        """Let the threads end."""
        self._executor.shutdown(wait=False, cancel_futures=True)
