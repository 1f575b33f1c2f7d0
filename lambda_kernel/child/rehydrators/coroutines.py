"""asyncio's locks and queues: without the loop of their cell."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from lambda_kernel.child.rehydrators.registry import NotCarried


def refuse_future(future: Any) -> Any:
    """Refuse it, with the hint that fits."""
    done = future.done() and not future.cancelled()
    raise NotCarried(
        "a coroutine or task ends with the cell that started it",
        "{name} = {name}.result()" if done else "{name} = await {name}",
    )


def reduce_loop_bound(obj: Any) -> Any:
    """Carry its state; who waited for it has ended with the cell."""
    state = {key: _without_waiters(value) for key, value in vars(obj).items()} | {"_loop": None}
    return obj.__class__.__new__, (type(obj),), state


def _without_waiters(value: Any) -> Any:
    if isinstance(value, deque) and any(isinstance(item, asyncio.Future) for item in value):
        return deque(item for item in value if not isinstance(item, asyncio.Future))
    return value
