"""What numpy asks the system for when a generator gets no seed, drawn from a recorded seed."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections.abc import Mapping
from typing import Any

FORK_SEED_BITS = 128


class Entropy:
    """A stream of bits: the same for the same seed, and another at each call.

    It stands in for ``secrets.randbits`` in numpy alone, so that ``default_rng()``, ``PCG64()``,
    ``RandomState()`` and ``numpy.random.seed()`` can be replayed. A process that the cell forks
    has a stream of its own, or else the workers of a pool would all draw the same numbers.

    Args:
        seed: recorded.
        drawn_count: how often it was asked.
        fork_count: how many processes were forked.
    """

    def __init__(self, seed: int, *, drawn_count: int = 0, fork_count: int = 0) -> None:
        self._seed = seed
        self._drawn_count = drawn_count
        self._fork_count = fork_count
        self._lock = threading.Lock()

    @classmethod
    def carried(cls, seed: int, state: Mapping[str, int]) -> Entropy:
        """Return the stream where ``state`` says that it was left."""
        return cls(seed, drawn_count=state.get("drawn", 0), fork_count=state.get("forks", 0))

    @property
    def state(self) -> dict[str, int]:
        """What ``carried`` needs besides the seed."""
        return {"drawn": self._drawn_count, "forks": self._fork_count}

    def randbits(self, k: int) -> int:
        """Return the next ``k`` bits, as ``secrets.randbits`` does."""
        with self._lock:
            self._drawn_count += 1
            count = self._drawn_count
        return _bits(f"{self._seed}:{count}", k)

    def install(self, module: Any) -> None:
        """Have ``numpy.random`` draw here.

        Args:
            module: ``numpy.random``.
        """
        module.bit_generator.randbits = self.randbits

    def follow_forks(self) -> None:
        """Give every process that this one forks a stream of its own, from now on.

        Its ``random`` is seeded too: Python itself does so, from the system.
        """
        os.register_at_fork(before=self._count_fork, after_in_child=self._begin_in_fork)

    def _count_fork(self) -> None:
        self._fork_count += 1

    def _begin_in_fork(self) -> None:
        # Another thread may have held the lock.
        self._lock = threading.Lock()
        self._seed = _bits(f"{self._seed}:fork:{self._fork_count}", FORK_SEED_BITS)
        self._drawn_count = self._fork_count = 0
        random.seed(_bits(f"{self._seed}:random", FORK_SEED_BITS))


def _bits(text: str, k: int) -> int:
    drawn = hashlib.shake_256(text.encode("ascii")).digest((k + 7) // 8)
    return int.from_bytes(drawn, "big") >> (-k % 8)
