"""Pickling what is nested deeply: a linked list of ten thousand nodes, a tree that is a line."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import TypeVar

from lambda_kernel.child.losses import is_too_deep

STACK_BYTES = 512 * 1024 * 1024
"""Address space; only what is used of it takes memory."""

MAX_DEPTH = 100_000

Result = TypeVar("Result")


def at_any_depth(make: Callable[[], Result]) -> Result:
    """Return what ``make`` returns; where the stack is too small for it, on a larger one.

    Raises:
        BaseException: what ``make`` raises.
    """
    try:
        return make()
    except Exception as error:
        if not is_too_deep(error):
            raise
    # Not at first: values that belong to a thread are another's there.
    return _on_a_large_stack(make)


def _on_a_large_stack(make: Callable[[], Result]) -> Result:
    results: list[Result] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(make())
        except BaseException as error:  # noqa: BLE001  (it is raised below)
            errors.append(error)

    limit, size = sys.getrecursionlimit(), threading.stack_size(STACK_BYTES)
    sys.setrecursionlimit(max(limit, MAX_DEPTH))
    try:
        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
    finally:
        sys.setrecursionlimit(limit)
        threading.stack_size(size)
    if errors:
        raise errors[0]
    return results[0]
