"""Work that a zygote does while nothing is asked of it, and drops as soon as something is."""

from __future__ import annotations

import select
import signal
import socket
from collections.abc import Callable

CHECK_S = 0.005


class _Wanted(BaseException):
    """There is something to read; no handler of errors in what is dropped takes it for one."""


def done_unless_wanted(work: Callable[[], object], sock: socket.socket) -> bool:
    """Do some work; False where it was dropped because there is something to read.

    It must be of Python code that may stop anywhere. This is for the main thread, and takes SIGALRM
    and its timer.

    Args:
        work: what to do.
        sock: what is looked at meanwhile.
    """
    poll = select.poll()
    poll.register(sock, select.POLLIN)

    def check(number: int, frame: object) -> None:
        if poll.poll(0):
            signal.setitimer(signal.ITIMER_REAL, 0)
            raise _Wanted

    signal.signal(signal.SIGALRM, check)
    try:
        signal.setitimer(signal.ITIMER_REAL, CHECK_S, CHECK_S)
        try:
            work()
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except _Wanted:
        return False
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    return True
