"""Locks, queues, thread-local values, threads that have ended.

Conditions, events, semaphores, barriers and ``queue.Queue`` are made of locks and plain values:
pickle carries them once it can carry a lock.
"""

from __future__ import annotations

import queue
import threading
from typing import Any

from lambda_kernel.child.rehydrators.registry import NotCarried
from lambda_kernel.child.state.threads import STOPPED

_STARTED_OVER = ("_started", "_ident", "_native_id", "_tstate_lock", "_is_stopped", "_handle")
_OF_THE_PROCESS = (*_STARTED_OVER, "_invoke_excepthook", "_stderr", "_os_thread_handle")


def make_lock(*, locked: bool) -> Any:
    """Return a lock."""
    lock = threading.Lock()
    if locked:
        lock.acquire()
    return lock


def reduce_lock(lock: Any) -> Any:
    """Carry whether it is held, unless a thread may hold it: threads end with their cell."""
    return _lock, (lock.locked() and threading.active_count() == 1,)


def _lock(locked: bool) -> Any:
    return make_lock(locked=locked)


def reduce_rlock(lock: Any) -> Any:
    """Carry how often this thread holds it."""
    if not lock._is_owned():
        return threading.RLock, ()
    count, owner = lock._release_save()
    lock._acquire_restore((count, owner))
    return make_rlock, (count,)


def make_rlock(count: int) -> Any:
    """Return a re-entrant lock that this thread holds ``count`` times."""
    lock = threading.RLock()
    for _ in range(count):
        lock.acquire()
    return lock


def reduce_local(local: Any) -> Any:
    """Carry the values of this thread."""
    return type(local), (), dict(vars(local))


def reduce_simple_queue(items: Any) -> Any:
    """Carry what waits in it."""
    waiting = []
    while True:
        try:
            waiting.append(items.get_nowait())
        except queue.Empty:
            break
    for item in waiting:
        items.put(item)
    return queue.SimpleQueue, (), waiting or None, None, None, _put_all


def _put_all(items: Any, waiting: list[Any]) -> None:
    for item in waiting:
        items.put(item)


def reduce_thread(thread: Any) -> Any:
    """Carry a thread that has ended or was never started, with what it computed."""
    is_started = thread._started.is_set()
    was_stopped = STOPPED in vars(thread)
    if was_stopped or thread.is_alive() or thread is threading.main_thread():
        raise NotCarried(
            "a thread ends with the cell that started it",
            "{name}.join() and keep what it computed",
        )
    state = {k: v for k, v in vars(thread).items() if k not in _OF_THE_PROCESS}
    ident = thread.ident if is_started else None
    return make_thread, (type(thread), ident), state, None, None, _set_thread_state


def make_thread(cls: type, ident: int | None) -> Any:
    """Return a thread that has ended, or (no identity) one that can be started."""
    thread: Any = threading.Thread()
    if ident is not None:
        # What "ended" means inside a Thread differs between Pythons: let one end.
        thread.start()
        thread.join()
        thread._ident = ident
    thread.__class__ = cls
    return thread


def _set_thread_state(thread: Any, state: dict[str, Any]) -> None:
    vars(thread).update(state)
