"""Answers what a child asks of its session while its cell runs; believes nothing of a question."""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field

from lambda_kernel.contract.paging import (
    DATAGRAM_BYTES,
    MAX_ANSWER_DESCRIPTORS,
    MAX_WANTED,
    PAGE_BYTES,
)
from lambda_kernel.serving.errors import CellEnded
from lambda_kernel.serving.parallel import Pool
from lambda_kernel.serving.segments import Place, Segment
from lambda_kernel.serving.session_objects import SessionObjects, UnknownObject

MAX_OUTSTANDING = 8
"""Questions of one cell that are being answered; each occupies a thread."""

SEND_WAIT_S = 5.0
"""For an asker that does not take its answer."""

_ANSWER_BYTES = DATAGRAM_BYTES - 8192
_PIECE_BYTES = 40
_NO_LINGER = struct.pack("ii", 1, 0)


class Pager:
    """The channel of one cell's questions, for one loop that polls it.

    Args:
        objects: what may be asked for.
        pool: where questions are answered.

    Attributes:
        wake: readable when an answer is done.
    """

    def __init__(self, objects: SessionObjects, pool: Pool) -> None:
        self._objects = objects
        self._pool = pool
        self._channel, self._child_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._waiting: set[Future[tuple[None, int]]] = set()
        self._lock = threading.Lock()
        self._is_closed = False
        objects.is_cancelled = False
        self.wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor that is readable when there is a question."""
        return self._channel.fileno()

    def detach_child_end(self) -> int:
        """Return the child's descriptor; the caller closes it."""
        return self._child_end.detach()

    @property
    def is_full(self) -> bool:
        """Whether further questions must wait."""
        return len(self._waiting) >= MAX_OUTSTANDING

    def read(self) -> bool:
        """Take one question, which a thread answers; False at the end of the channel."""
        try:
            datagram, received, _, _ = socket.recv_fds(
                self._channel,
                DATAGRAM_BYTES,
                4,
                socket.MSG_DONTWAIT | socket.MSG_CMSG_CLOEXEC,
            )
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        if not datagram:
            _discard(received)
            return False
        asker = _asker(received)
        if asker is not None:
            future = self._pool.start(self._answer, datagram, asker)
            self._waiting.add(future)
            future.add_done_callback(self._done)
        return True

    def reap(self) -> None:
        """Take note of answers that are done: what is asked after them comes after them."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.wake)
        for future in [future for future in self._waiting if future.done()]:
            self._waiting.discard(future)
            self._pool.wait(future)

    def close(self) -> None:
        """Wait until nothing is being answered; close everything."""
        self._objects.is_cancelled = True
        try:
            self._pool.wait_all(list(self._waiting))
        finally:
            self._channel.close()
            self._child_end.close()
            with self._lock:
                self._is_closed = True
                os.close(self.wake)

    def _done(self, _: object) -> None:
        with self._lock:
            # It may come late: then nobody waits, and the number is another file's.
            if not self._is_closed:
                os.eventfd_write(self.wake, 1)

    def _answer(self, question: bytes, asker: socket.socket) -> None:
        with asker:
            try:
                found = self._objects.places(wanted(question))
            except (ValueError, UnknownObject, CellEnded, OSError) as error:
                text = json.dumps({"error": str(error)[:1000]}).encode("ascii")
                _send(asker, text, [])
                return
            for text, descriptors in datagrams(found):
                if not _send(asker, text, descriptors):
                    return


def wanted(question: bytes) -> list[int]:
    """Return the ids in a question.

    Raises:
        ValueError: it is none.
    """
    try:
        data = json.loads(question)
    except (ValueError, RecursionError):
        raise ValueError("the question is not JSON") from None
    ids = data.get("want") if isinstance(data, dict) else None
    if not isinstance(ids, list) or any(type(number) is not int for number in ids):
        raise ValueError("the question is not a list of ids")
    if len(ids) > MAX_WANTED:
        raise ValueError(f"more than {MAX_WANTED} objects in one question")
    return ids


@dataclass(slots=True)
class _Datagram:
    objects: list[tuple[int, list[tuple[int, int, int]]]] = field(default_factory=list)
    numbers: dict[Segment, int] = field(default_factory=dict)
    size: int = 0

    def has_room(self, segment: Segment | None) -> bool:
        """Whether one more piece in ``segment`` fits; None for an object without any."""
        full = segment is not None and segment not in self.numbers
        too_many = full and len(self.numbers) >= MAX_ANSWER_DESCRIPTORS
        return not too_many and self.size + _PIECE_BYTES <= _ANSWER_BYTES

    def encode(self, *, more: bool) -> tuple[bytes, list[int]]:
        body = {"objects": self.objects, "fds": len(self.numbers), "more": more}
        text = json.dumps(body, separators=(",", ":")).encode("ascii")
        return text, [segment.descriptor for segment in self.numbers]


def datagrams(found: Sequence[tuple[int, list[Place]]]) -> Iterator[tuple[bytes, list[int]]]:
    """Yield the datagrams of an answer, each with its descriptors."""
    current = _Datagram()
    for object_id, places in found:
        pieces: list[tuple[int, int, int]] | None = None
        pieces_or_none: list[Place | None] = [*_joined(places)]
        for place in pieces_or_none or [None]:
            segment = None if place is None else place.segment
            if not current.has_room(segment):
                yield current.encode(more=True)
                current, pieces = _Datagram(), None
            if pieces is None:
                pieces = []
                current.objects.append((object_id, pieces))
                current.size += _PIECE_BYTES
            if place is not None:
                number = current.numbers.setdefault(place.segment, len(current.numbers))
                pieces.append((number, place.offset, place.size_bytes))
                current.size += _PIECE_BYTES
    yield current.encode(more=False)


def _joined(places: Sequence[Place]) -> list[Place]:
    """Return the places with neighbours made one."""
    joined: list[Place] = []
    for place in places:
        last = joined[-1] if joined else None
        if (
            last is not None
            and last.segment is place.segment
            and last.offset + last.size_bytes == place.offset
            and last.size_bytes % PAGE_BYTES == 0
        ):
            joined[-1] = Place(last.segment, last.offset, last.size_bytes + place.size_bytes)
        else:
            joined.append(place)
    return joined


def _asker(received: list[int]) -> socket.socket | None:
    """Return where the answer goes; None where that is not one end of such a pair."""
    if len(received) != 1:
        _discard(received)
        return None
    try:
        asker = socket.socket(fileno=received[0])
    except OSError:
        _discard(received)
        return None
    if asker.family != socket.AF_UNIX or asker.type != socket.SOCK_SEQPACKET:
        _discard([asker.detach()])
        return None
    return asker


def _discard(received: list[int]) -> None:
    for descriptor in received:
        try:
            sock = socket.socket(fileno=descriptor)
        except OSError:
            os.close(descriptor)
            continue
        # The close of a socket that lingers would block.
        with sock, suppress(OSError):
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)


def _send(asker: socket.socket, text: bytes, descriptors: list[int]) -> bool:
    """Send one datagram; False where nobody takes it."""
    ends = time.monotonic() + SEND_WAIT_S
    while True:
        try:
            flags = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
            if descriptors:
                socket.send_fds(asker, [text], descriptors, flags)
            else:
                asker.send(text, flags)
        except (BlockingIOError, InterruptedError):
            left_s = ends - time.monotonic()
            if left_s <= 0:
                return False
            poll = select.poll()
            poll.register(asker, select.POLLOUT)
            poll.poll(min(left_s, 0.1) * 1000)
        except OSError:
            return False
        else:
            return True
