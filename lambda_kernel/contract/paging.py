"""How a child gets at the objects of its session: what is at hand, and what it asks for.

**snapshot_in** is a sealed memfd: the header's length (8 bytes, big-endian), the header (JSON)

    {"index": id, "objects": [[id, size_bytes, offset or -1], …]}

and, each at a multiple of PAGE_BYTES, the bytes of the objects that are at hand: all that ride
inside the commit, and always the index. An empty file is an empty session.

**Child → serving** on ``pager``, one datagram per question: ``{"want": [id, …]}`` (at most
MAX_WANTED ids) with one descriptor: an end of a SOCK_SEQPACKET pair that the asker made, so that
the answers of threads and forks never mix.

**Serving → asker** on that socket, one or more datagrams:

    {"objects": [[id, [[fd number, offset, size_bytes], …]], …], "fds": count, "more": true | false}

with ``fds`` sealed memfds; a fd number counts within its datagram. The pieces of an object are in
order, and may go on in the next datagram; all offsets are multiples of PAGE_BYTES, and so is the
size of every piece but an object's last. Or ``{"error": "text"}``, at any time, as the last.
"""

from __future__ import annotations

import itertools
import json
import os
import socket
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

PAGE_BYTES = 4096
MAX_WANTED = 1024
MAX_ANSWER_DESCRIPTORS = 64
DATAGRAM_BYTES = 64 * 1024
MAX_HEADER_BYTES = 64 * 1024 * 1024

_LENGTH_BYTES = 8


class Piece(NamedTuple):
    """A run of bytes of a sealed file; the offset is a multiple of PAGE_BYTES."""

    descriptor: int
    offset: int
    size_bytes: int


class PagerError(Exception):
    """An object cannot be had: the serving process says why, or it is gone."""


@dataclass(frozen=True, slots=True)
class HeldObject:
    """An object of the session.

    Attributes:
        id: its number.
        size_bytes: of the whole object.
        offset: in ``snapshot_in``; -1 = ask the pager.
    """

    id: int
    size_bytes: int
    offset: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotHeader:
    """What stands at the beginning of ``snapshot_in``.

    Attributes:
        index: id of the object that describes the others; 0 for an empty session.
        objects: all of them.
    """

    index: int = 0
    objects: tuple[HeldObject, ...] = ()

    @property
    def highest_id(self) -> int:
        """The highest id in use: new ones are above."""
        return max((held.id for held in self.objects), default=0)

    @classmethod
    def read(cls, descriptor: int) -> SnapshotHeader:
        """Return the header of ``snapshot_in``; that of an empty session for an empty file.

        Raises:
            ValueError: there is none.
        """
        if os.fstat(descriptor).st_size == 0:
            return cls()
        length = int.from_bytes(os.pread(descriptor, _LENGTH_BYTES, 0), "big")
        if length > MAX_HEADER_BYTES:
            raise ValueError("the header is too long")
        try:
            data = json.loads(os.pread(descriptor, length, _LENGTH_BYTES))
            objects = tuple(itertools.starmap(HeldObject, data["objects"]))
            return cls(index=data["index"], objects=objects)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"the header cannot be read: {error}") from error


def write_snapshot_in(
    descriptor: int, index: int, sizes: Mapping[int, int], bodies: Mapping[int, bytes]
) -> SnapshotHeader:
    """Write header and bytes into an empty file; returns the header.

    Args:
        descriptor: of the file.
        index: id of the index.
        sizes: of every object by id.
        bodies: the bytes that are at hand, by id.
    """
    # The header's length depends on the offsets: they are counted from after it, with room for
    # the longest numbers that can come out.
    room = page_aligned(_LENGTH_BYTES + 64 + 56 * len(sizes))
    objects, offset = [], room
    for object_id, size in sizes.items():
        if object_id in bodies:
            objects.append(HeldObject(object_id, size, offset))
            offset = page_aligned(offset + size)
        else:
            objects.append(HeldObject(object_id, size))
    listed = [[held.id, held.size_bytes, held.offset] for held in objects]
    text = json.dumps({"index": index, "objects": listed}, separators=(",", ":")).encode("ascii")
    os.pwrite(descriptor, len(text).to_bytes(_LENGTH_BYTES, "big") + text, 0)
    os.ftruncate(descriptor, offset)
    for held in objects:
        if held.offset >= 0:
            write_at(descriptor, bodies[held.id], held.offset)
    return SnapshotHeader(index=index, objects=tuple(objects))


def ask(pager: int, ids: Iterable[int]) -> dict[int, list[Piece]]:
    """Return the pieces of objects, in order; the caller owns (and closes) their descriptors.

    Safe in threads and after a fork. One descriptor may occur in several pieces and objects.

    Args:
        pager: the child's descriptor.
        ids: of any number of objects of ``snapshot_in``'s header.

    Raises:
        PagerError: an object cannot be had; nothing is left open.
    """
    found: dict[int, list[Piece]] = {}
    wanted = list(dict.fromkeys(ids))
    try:
        for begin in range(0, len(wanted), MAX_WANTED):
            _ask(pager, wanted[begin : begin + MAX_WANTED], found)
    except BaseException:
        close_all(found)
        raise
    return found


def close_all(found: Mapping[int, Iterable[Piece]]) -> None:
    """Close every descriptor of an answer."""
    for descriptor in {piece[0] for pieces in found.values() for piece in pieces}:
        with suppress(OSError):
            os.close(descriptor)


def _ask(pager: int, ids: Sequence[int], found: dict[int, list[Piece]]) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    question = json.dumps({"want": ids}, separators=(",", ":")).encode("ascii")
    with ours:
        try:
            with theirs, socket.socket(fileno=os.dup(pager)) as channel:
                channel.setblocking(True)
                socket.send_fds(channel, [question], [theirs.fileno()])
            while _take_answer(ours, found):
                pass
        except OSError as error:
            raise PagerError(f"the serving process does not answer: {error}") from error
    if missing := [object_id for object_id in ids if object_id not in found]:
        raise PagerError(f"there was no answer for object {missing[0]}")


def _take_answer(ours: socket.socket, found: dict[int, list[Piece]]) -> bool:
    datagram, received, _, _ = socket.recv_fds(
        ours, DATAGRAM_BYTES, MAX_ANSWER_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC
    )
    used: set[int] = set()
    try:
        answer: Any = json.loads(datagram) if datagram else {"error": "it ended"}
        if "error" in answer:
            raise PagerError(str(answer["error"]))
        if answer["fds"] != len(received):
            raise PagerError(f"{len(received)} of {answer['fds']} descriptors arrived")
        for object_id, pieces in answer["objects"]:
            mine = found.setdefault(object_id, [])
            for number, offset, size in pieces:
                mine.append(Piece(received[number], offset, size))
                used.add(received[number])
        return bool(answer["more"])
    finally:
        for descriptor in received:
            if descriptor not in used:
                os.close(descriptor)


def write_at(descriptor: int, body: bytes | memoryview, offset: int) -> None:
    """Write all of ``body`` at ``offset``."""
    rest = memoryview(body)
    while rest:
        count = os.pwrite(descriptor, rest, offset)
        rest, offset = rest[count:], offset + count


def page_aligned(offset: int) -> int:
    """Return the first multiple of PAGE_BYTES that is not below ``offset``."""
    return -(-offset // PAGE_BYTES) * PAGE_BYTES
