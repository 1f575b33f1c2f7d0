"""SIGINT in a cell that awaits: KeyboardInterrupt where the user's code stands, as without await.

ipykernel cancels the cell's task instead: code that computes between two awaits goes on, and what
awaits sees a CancelledError.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Generator, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


class Interrupting:
    """Brings interrupts to the coroutine of a cell that awaits something."""

    def __init__(self) -> None:
        self._is_due = False

    @contextmanager
    def by_signal(
        self, task: asyncio.Future[Any], loop: asyncio.AbstractEventLoop
    ) -> Iterator[None]:
        """Have SIGINT interrupt ``task``, in which an `Interruptible` is awaited, meanwhile."""
        waits = asyncio.current_task(loop)

        def interrupt(number: int, frame: FrameType | None) -> None:
            computes = asyncio.current_task(loop)
            if computes is not None and computes in (task, waits):
                raise KeyboardInterrupt
            self._is_due = True
            # Ends what is awaited; what the code sees is the KeyboardInterrupt.
            loop.call_soon_threadsafe(task.cancel)
            if computes is not None:
                # A KeyboardInterrupt in another task would end the event loop.
                raise asyncio.CancelledError

        before = signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)

    def take(self) -> bool:
        """Return whether an interrupt is due; it no longer is."""
        is_due, self._is_due = self._is_due, False
        return is_due


class Interruptible:
    """Awaits a cell's coroutine, in which an interrupt arrives as KeyboardInterrupt.

    Args:
        coroutine: what is awaited; used up.
        interrupting: says when an interrupt is due.
    """

    def __init__(self, coroutine: Coroutine[Any, Any, Any], interrupting: Interrupting) -> None:
        self._coroutine = coroutine
        self._interrupting = interrupting

    def __await__(self) -> Generator[Any, Any, Any]:
        """Drive the coroutine step by step."""
        inner = self._coroutine.__await__()
        error: BaseException | None = None
        given: Any = None
        while True:
            try:
                awaited = inner.send(given) if error is None else inner.throw(error)
            except StopIteration as done:
                return done.value
            given = error = None
            try:
                given = yield awaited
            except GeneratorExit:
                inner.close()
                raise
            except BaseException as thrown:  # noqa: BLE001  (thrown on, to where it belongs)
                # The traceback that a user sees has no frame of this.
                outer = thrown.__traceback__
                error = thrown.with_traceback(outer.tb_next if outer is not None else None)
            if self._interrupting.take():
                _forget_cancellation()
                error = KeyboardInterrupt()


def _forget_cancellation() -> None:
    # Else timeouts and task groups of code that goes on took its task for cancelled.
    task = asyncio.current_task()
    if task is not None:
        task.uncancel()
