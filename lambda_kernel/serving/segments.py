"""Bytes of a session in sealed memory files, kept between cells and shared with them.

A segment is a memfd that nobody can write to any more and whose chunks were verified: a cell maps
it as it is, without a copy and without another hash.
"""

from __future__ import annotations

import errno
import fcntl
import os
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lambda_kernel.contract.scope import Scope

MAX_SEGMENTS = 256
"""Each is an open descriptor. Source: AWS Lambda quota, 1,024 of them in a function."""

SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


class StillWritten(Exception):
    """Somebody has a writable map of the file: a process of the cell lives on."""


class NotSealable(Exception):
    """The cell has sealed its file in a way that leaves it writable, or of another size."""


def seal(descriptor: int, size_bytes: int) -> None:
    """Make a memfd ``size_bytes`` long (never longer than it is) and read-only for ever.

    Raises:
        StillWritten, NotSealable: it cannot be trusted.
    """
    if os.fstat(descriptor).st_size < size_bytes:
        raise NotSealable("it is shorter than announced")
    try:
        if os.fstat(descriptor).st_size != size_bytes:
            os.ftruncate(descriptor, size_bytes)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    except OSError as error:
        if error.errno == errno.EBUSY:
            raise StillWritten("somebody can still write to it") from error
    has_all = fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & SEALS == SEALS
    if not has_all or os.fstat(descriptor).st_size != size_bytes:
        raise NotSealable("it was sealed by the cell")


class Segment:
    """A sealed memfd, closed when the last holder lets go of it.

    Args:
        descriptor: owned from now on.
    """

    __slots__ = ("_holders", "_lock", "descriptor", "size_bytes")

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.size_bytes = os.fstat(descriptor).st_size
        self._holders = 1
        self._lock = threading.Lock()

    def retain(self) -> None:
        """Keep it open for one more holder."""
        with self._lock:
            self._holders += 1

    def release(self) -> None:
        """Let go of it."""
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                os.close(self.descriptor)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a chunk is."""

    segment: Segment
    offset: int
    size_bytes: int

    def read(self) -> bytes:
        """Return its bytes."""
        return os.pread(self.segment.descriptor, self.size_bytes, self.offset)


class Holder:
    """The segments that one cell uses: they stay open until it ends."""

    def __init__(self) -> None:
        self._segments: set[Segment] = set()

    def hold(self, segment: Segment) -> None:
        """Keep ``segment`` open."""
        if segment not in self._segments:
            segment.retain()
            self._segments.add(segment)

    def close(self) -> None:
        """Let go of all of them."""
        while self._segments:
            self._segments.pop().release()


class SegmentCache:
    """Chunks by digest, in segments; the least recently used segment leaves first.

    Keyed with the scope: that another scope holds the same bytes must not show.
    """

    def __init__(self, max_bytes: int, max_segments: int = MAX_SEGMENTS) -> None:
        self._max_bytes = max_bytes
        self._max_segments = max_segments
        self._places: dict[tuple[str, str], Place] = {}
        self._segments: OrderedDict[Segment, set[tuple[str, str]]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @property
    def size_bytes(self) -> int:
        """What the segments measure together."""
        return self._bytes

    @property
    def count(self) -> int:
        """How many segments there are."""
        return len(self._segments)

    def find(self, scope: Scope, digests: Iterable[str], holder: Holder) -> dict[str, Place]:
        """Return where chunks are, of those that are here, and let ``holder`` hold them."""
        found: dict[str, Place] = {}
        with self._lock:
            for digest in digests:
                place = self._places.get((scope.hash, digest))
                if place is not None:
                    found[digest] = place
                    self._segments.move_to_end(place.segment)
                    holder.hold(place.segment)
        return found

    def add(self, scope: Scope, segment: Segment, places: Mapping[str, Place]) -> None:
        """Keep a segment whose chunks were verified; it becomes a holder of its own."""
        if not places or segment.size_bytes > self._max_bytes:
            return
        with self._lock:
            segment.retain()
            held = {(scope.hash, digest) for digest in places}
            for key in held:
                self._forget(key)
                self._places[key] = places[key[1]]
            self._segments[segment] = held
            self._bytes += segment.size_bytes
            while self._bytes > self._max_bytes or len(self._segments) > self._max_segments:
                self._drop(next(iter(self._segments)))

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            while self._segments:
                self._drop(next(iter(self._segments)))

    def _forget(self, key: tuple[str, str]) -> None:
        """Forget where one chunk is: a newer segment has it."""
        old = self._places.pop(key, None)
        if old is not None:
            self._segments[old.segment].discard(key)
            if not self._segments[old.segment]:
                self._drop(old.segment)

    def _drop(self, segment: Segment) -> None:
        for key in self._segments.pop(segment):
            del self._places[key]
        self._bytes -= segment.size_bytes
        segment.release()
