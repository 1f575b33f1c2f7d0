"""The process that started a kernel's process: the kernel ends with it."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import stat
import sys
from collections.abc import Callable

logger = logging.getLogger(__name__)

PARENT = "JPY_PARENT_PID"
"""Set by jupyter_client for a kernel that is to end with the process that started it."""

DROPPED_BYTES = 1 << 16


def watch_parent(loop: asyncio.AbstractEventLoop, ended: Callable[[], object]) -> None:
    """Call ``ended`` when the process is gone that started this one, as far as that shows.

    It shows where jupyter_client names it, and where it holds the other end of this process's
    stdin, as VS Code does. jupyter_client closes that at once: it says nothing then.

    Args:
        loop: which watches.
        ended: called at least once.
    """
    named = os.environ.get(PARENT, "")
    if named.isdecimal() and int(named) > 1:
        _watch_process(loop, int(named), ended)
    elif (stdin := _held_stdin()) is not None:
        _watch_stdin(loop, stdin, ended)


def _watch_process(loop: asyncio.AbstractEventLoop, pid: int, ended: Callable[[], object]) -> None:
    try:
        loop.add_reader(os.pidfd_open(pid), ended)
    except ProcessLookupError:
        ended()
    except OSError:
        logger.warning("the process that started this kernel cannot be watched", exc_info=True)


def _held_stdin() -> int | None:
    """Return stdin where it is a pipe or socket whose other end somebody holds."""
    if sys.stdin is None:
        return None
    stdin = sys.stdin.fileno()
    kind = os.fstat(stdin).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISSOCK(kind)):
        return None
    poll = select.poll()
    poll.register(stdin, select.POLLRDHUP)
    return None if poll.poll(0) else stdin


def _watch_stdin(loop: asyncio.AbstractEventLoop, stdin: int, ended: Callable[[], object]) -> None:
    def look() -> None:
        # What is typed there is nobody's.
        if not os.read(stdin, DROPPED_BYTES):
            loop.remove_reader(stdin)
            ended()

    loop.add_reader(stdin, look)
