"""Pools without work: made again, idle; futures that are done."""

from __future__ import annotations

import concurrent.futures
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lambda_kernel.child.rehydrators.registry import NotCarried

_SETTLE_S = 0.05
_UNFINISHED = "it has work that is not finished"
_HINT = "{name}.shutdown(wait=True) and keep the results"


def reduce_thread_pool(pool: Any) -> Any:
    """Carry its settings."""
    _only_exact(pool, ThreadPoolExecutor)
    deadline_s = time.monotonic() + _SETTLE_S
    while not pool._shutdown and pool._idle_semaphore._value < len(pool._threads):
        if time.monotonic() > deadline_s:
            raise NotCarried(_UNFINISHED, _HINT)
        time.sleep(0.001)
    if not pool._work_queue.empty() and not pool._shutdown:
        raise NotCarried(_UNFINISHED, _HINT)
    settings = {
        "max_workers": pool._max_workers,
        "thread_name_prefix": pool._thread_name_prefix,
        "initializer": getattr(pool, "_initializer", None),
        "initargs": getattr(pool, "_initargs", ()),
    }
    return make_pool, (ThreadPoolExecutor, settings, pool._shutdown)


def reduce_process_pool(pool: Any) -> Any:
    """Carry its settings."""
    cls = concurrent.futures.ProcessPoolExecutor
    _only_exact(pool, cls)
    is_shut_down = bool(pool._shutdown_thread)
    if pool._pending_work_items and not is_shut_down:
        raise NotCarried(_UNFINISHED, _HINT)
    settings = {
        "max_workers": pool._max_workers,
        "initializer": pool._initializer,
        "initargs": pool._initargs,
    }
    method = pool._mp_context.get_start_method()
    return make_process_pool, (method, settings, is_shut_down)


def make_pool(cls: Any, settings: dict[str, Any], is_shut_down: bool) -> Any:
    """Return an idle pool."""
    pool = cls(**settings)
    if is_shut_down:
        pool.shutdown()
    return pool


def make_process_pool(method: str, settings: dict[str, Any], is_shut_down: bool) -> Any:
    """Return an idle pool of processes."""
    import multiprocessing

    context = multiprocessing.get_context(method)
    cls = concurrent.futures.ProcessPoolExecutor
    return make_pool(cls, settings | {"mp_context": context}, is_shut_down)


def reduce_future(future: Any) -> Any:
    """Carry the result of one that is done."""
    if not future.done():
        raise NotCarried("its work is not finished", "{name} = {name}.result()")
    state = vars(future) | {"_waiters": [], "_done_callbacks": []}
    return type(future), (), state


def _only_exact(pool: Any, cls: type) -> None:
    if type(pool) is not cls:
        raise NotCarried(
            "its workers end with the cell that started them",
            "open it with `with` in the cell that uses it",
        )
