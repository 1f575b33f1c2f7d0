"""A child's questions: honest ones, and every other kind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambda_kernel.contract import paging
from lambda_kernel.contract.commit import CHUNK_BYTES, Namespace
from lambda_kernel.contract.paging import PagerError, ask, close_all
from lambda_kernel.serving.paging import MAX_OUTSTANDING, Pager, datagrams, wanted
from lambda_kernel.serving.segments import Place, Segment
from lambda_kernel.serving.session_objects import SessionObjects
from tests.unit.serving.sessions import INDEX, SCOPE, Session, chunks


class Cell:
    """Polls a pager as the loop of a cell does, in a thread."""

    def __init__(self, session: Session, namespace: Namespace) -> None:
        self.objects: SessionObjects = session.snapshots.open(SCOPE, namespace)
        self.pager = Pager(self.objects, session.pool)
        self.end = self.pager.detach_child_end()
        self.most = 0
        self._stop, self._stopped = os.pipe()
        self._thread = threading.Thread(target=self._loop)
        self._thread.start()

    def _loop(self) -> None:
        asking = True
        while True:
            poll = select.poll()
            poll.register(self._stop, select.POLLIN)
            poll.register(self.pager.wake, select.POLLIN)
            if asking and not self.pager.is_full:
                poll.register(self.pager.fileno(), select.POLLIN)
            ready = {descriptor for descriptor, _ in poll.poll()}
            if self.pager.wake in ready:
                self.pager.reap()
            if self.pager.fileno() in ready:
                asking = self.pager.read()
                self.most = max(self.most, len(self.pager._waiting))
            if self._stop in ready:
                return

    def read(self, *ids: int) -> dict[int, bytes]:
        found = ask(self.end, ids)
        try:
            return {
                i: b"".join(os.pread(fd, size, offset) for fd, offset, size in pieces)
                for i, pieces in found.items()
            }
        finally:
            close_all(found)

    def close(self) -> None:
        os.write(self._stopped, b"x")
        self._thread.join()
        self.pager.close()
        for descriptor in (self.end, self._stop, self._stopped):
            os.close(descriptor)
        self.objects.close()


@pytest.fixture
def session() -> Iterator[Session]:
    session = Session()
    yield session
    session.close()


@pytest.fixture
def cell(session: Session) -> Iterator[Cell]:
    bodies = {2: chunks("ab", b"c"), 3: b"small", 4: b"", 5: b"x" * 300_000}
    namespace = session.write({1: INDEX, **bodies}, index=1)
    session.forget()
    cell = Cell(session, namespace)
    yield cell
    cell.close()


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_objects_are_brought_on_demand(cell: Cell, session: Session) -> None:
    assert session.store.calls == []
    assert cell.read(3, 4) == {3: b"small", 4: b""}
    assert cell.objects.fetched_bytes == 0
    assert cell.read(2) == {2: chunks("ab", b"c")}
    assert cell.objects.fetched_bytes == 2 * CHUNK_BYTES + 1
    assert cell.read(2, 5)[5] == b"x" * 300_000
    assert cell.objects.fetched_bytes == 2 * CHUNK_BYTES + 1 + 300_000


def test_an_object_of_one_segment_is_one_piece(cell: Cell) -> None:
    found = ask(cell.end, [2])
    assert [size for _, _, size in found[2]] == [2 * CHUNK_BYTES + 1]
    close_all(found)


def test_an_object_in_many_segments_comes_in_several_datagrams(session: Session) -> None:
    letters = [chr(65 + i) for i in range(70)]
    small = paging.PAGE_BYTES
    segments = []
    for letter in letters:
        memfd = os.memfd_create("x")
        os.write(memfd, letter.encode() * small)
        segments.append(Segment(memfd))
    sent = list(datagrams([(7, [Place(segment, 0, small) for segment in segments]), (8, [])]))
    assert [len(held) for _, held in sent] == [64, 6]
    assert [json.loads(text)["more"] for text, _ in sent] == [True, False]
    for segment in segments:
        segment.release()


def test_an_answer_of_any_length_is_cut_into_datagrams() -> None:
    memfd = os.memfd_create("x")
    segment = Segment(memfd)
    apart = [Place(segment, 8192 * n, 4096) for n in range(2_000)]
    sent = list(datagrams([(i, apart) for i in range(5)]))
    assert all(len(text) < paging.DATAGRAM_BYTES for text, _ in sent)
    pieces = [p for text, _ in sent for _, found in json.loads(text)["objects"] for p in found]
    assert len(pieces) == 10_000
    segment.release()


def test_threads_get_their_own_answers(cell: Cell) -> None:
    results: dict[int, bytes] = {}

    def read(number: int) -> None:
        object_id = (2, 3, 5)[number % 3]
        assert results.setdefault(object_id, cell.read(object_id)[object_id])

    threads = [threading.Thread(target=read, args=(n,)) for n in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {2: chunks("ab", b"c"), 3: b"small", 5: b"x" * 300_000}
    assert cell.objects.fetched_bytes == 2 * CHUNK_BYTES + 1 + 300_000
    assert cell.most <= MAX_OUTSTANDING


def test_more_objects_than_one_question_takes_are_asked_for(session: Session) -> None:
    bodies = {n: b"%d" % n for n in range(2, 2500)}
    cell = Cell(session, session.write({1: INDEX, **bodies}, index=1))
    assert cell.read(*bodies) == bodies
    cell.close()


def test_an_unknown_object_is_an_error_and_the_next_question_is_answered(cell: Cell) -> None:
    before = descriptors()
    with pytest.raises(PagerError, match="no object 99"):
        cell.read(2, 99)
    assert cell.read(3) == {3: b"small"}
    assert descriptors() <= before + 1


def test_storage_that_fails_is_an_error(cell: Cell, session: Session) -> None:
    session.store.versions.clear()
    with pytest.raises(PagerError, match="no object"):
        cell.read(2)


@pytest.mark.parametrize(
    "question",
    [b"x", b"{}", b"[]", b'{"want": 1}', b'{"want": [true]}', b'{"want": ["1"]}', b"[" * 60_000,
     json.dumps({"want": [1] * 1025}).encode(), b"\xff", b'{"want": [1e9]}'],
)  # fmt: skip
def test_a_question_that_is_none_gets_an_error(cell: Cell, question: bytes) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, socket.socket(fileno=os.dup(cell.end)) as channel:
        socket.send_fds(channel, [question], [theirs.fileno()])
        assert "error" in json.loads(ours.recv(65536))
    assert cell.read(3) == {3: b"small"}


def test_a_question_with_nowhere_to_answer_is_dropped(cell: Cell) -> None:
    before = descriptors()
    stream, other = socket.socketpair()
    listener = socket.create_server(("127.0.0.1", 0))
    with socket.socket(fileno=os.dup(cell.end)) as channel, stream, other, listener:
        channel.send(b'{"want":[3]}')
        for held in ([0], [stream.fileno()], [listener.fileno()], [stream.fileno()] * 2):
            socket.send_fds(channel, [b'{"want":[3]}'], held)
        socket.send_fds(channel, [b'{"want":[3]}'], [stream.fileno()] * 200)
    assert cell.read(3) == {3: b"small"}
    deadline_s = time.monotonic() + 30
    while descriptors() > before and time.monotonic() < deadline_s:
        # The threads that answered are still closing theirs.
        cell.read(3)
    assert descriptors() <= before


def test_an_asker_that_has_gone_disturbs_nobody(cell: Cell) -> None:
    for _ in range(50):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with socket.socket(fileno=os.dup(cell.end)) as channel, theirs:
            ours.close()
            socket.send_fds(channel, [b'{"want":[2]}'], [theirs.fileno()])
    assert cell.read(3) == {3: b"small"}


def test_a_flood_of_questions_is_answered_in_bounded_memory(cell: Cell) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs, socket.socket(fileno=os.dup(cell.end)) as channel:
        for _ in range(3_000):
            socket.send_fds(channel, [b'{"want":[3]}'], [theirs.fileno()])
            ours.recv(65536)
    assert cell.most <= MAX_OUTSTANDING


def test_an_asker_who_asks_to_be_answered_on_the_channel_itself_gets_nothing(cell: Cell) -> None:
    with socket.socket(fileno=os.dup(cell.end)) as channel:
        socket.send_fds(channel, [b'{"want":[3]}'], [cell.end])
    assert cell.read(3) == {3: b"small"}


def test_an_empty_datagram_ends_the_channel(cell: Cell) -> None:
    with socket.socket(fileno=os.dup(cell.end)) as channel:
        channel.send(b"")


def test_questions_that_come_after_the_cell_are_not_waited_for(session: Session) -> None:
    namespace = session.write({1: INDEX, 2: chunks("a")}, index=1)
    objects = session.snapshots.open(SCOPE, namespace)
    pager = Pager(objects, session.pool)
    end = pager.detach_child_end()
    pager.close()
    with pytest.raises(PagerError):
        ask(end, [2])
    os.close(end)
    objects.close()


@given(st.binary(max_size=200))
def test_noise_is_no_question(noise: bytes) -> None:
    with contextlib.suppress(ValueError):
        assert all(type(number) is int for number in wanted(noise))
