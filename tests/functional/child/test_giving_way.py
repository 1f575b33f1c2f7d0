"""Work that is dropped when something is asked."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator

import pytest

from lambda_kernel.child.giving_way import done_unless_wanted


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        yield ours, theirs


def test_work_that_nobody_disturbs_is_done(ends: tuple[socket.socket, socket.socket]) -> None:
    done: list[int] = []

    assert done_unless_wanted(lambda: done.append(1), ends[0])
    assert done == [1]
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0


def test_a_request_ends_work_and_is_still_there_to_be_read(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    def work() -> None:
        ends[1].send(b"request")
        while True:
            try:
                for _ in range(1000):
                    pass
            except Exception as error:
                raise AssertionError from error

    assert not done_unless_wanted(work, ends[0])
    assert ends[0].recv(100) == b"request"
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


def test_an_error_of_the_work_is_its_callers(ends: tuple[socket.socket, socket.socket]) -> None:
    with pytest.raises(ZeroDivisionError):
        done_unless_wanted(lambda: 1 / 0, ends[0])
    assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
