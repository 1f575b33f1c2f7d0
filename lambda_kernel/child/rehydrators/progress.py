"""tqdm's bars: where they stand."""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

from lambda_kernel.child.rehydrators.registry import NotCarried

_PLAIN = (int, float, str, bool, type(None))
_OF_THE_PROCESS = ("fp", "sp", "iterable", "pos", "container")


def reduce_bar(bar: Any) -> Any:
    """Carry its numbers; what it went through, where that can be stored."""
    if type(bar).__module__ == "tqdm.notebook":
        raise NotCarried("its widget ends with the cell", "keep {name}.n")
    plain = {
        key: value
        for key, value in vars(bar).items()
        if key not in _OF_THE_PROCESS and isinstance(value, _PLAIN)
    }
    # Averages: two numbers each.
    averages = {k: vars(v) for k, v in vars(bar).items() if k.startswith("_ema")}
    iterable = bar.iterable if isinstance(bar.iterable, list | tuple | range | dict | set) else None
    return make_bar, (type(bar), plain, averages, iterable)


def make_bar(cls: Any, plain: dict[str, Any], averages: dict[str, Any], iterable: Any) -> Any:
    """Return a bar that is drawn when it moves next."""
    bar = object.__new__(cls)
    vars(bar).update(plain, iterable=iterable, fp=sys.stderr, pos=0)
    cls.get_lock()
    bar._time = time.time
    ema = importlib.import_module("tqdm.std").EMA
    for name, numbers in averages.items():
        average = ema()
        vars(average).update(numbers)
        setattr(bar, name, average)
    bar.sp = cls.status_printer(sys.stderr)
    if not bar.disable:
        cls._instances.add(bar)
    return bar
