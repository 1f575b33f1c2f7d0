"""tqdm's bars: where they stand."""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

_PLAIN = (int, float, str, bool, type(None))
_OF_THE_PROCESS = ("fp", "sp", "iterable", "pos", "container")


def reduce_bar(bar: Any) -> Any:
    """Carry its numbers; what it went through, where that can be stored."""
    plain = {
        key: value
        for key, value in vars(bar).items()
        if key not in _OF_THE_PROCESS and isinstance(value, _PLAIN)
    }
    # Averages: two numbers each.
    averages = {k: vars(v) for k, v in vars(bar).items() if k.startswith("_ema")}
    iterable = bar.iterable if isinstance(bar.iterable, list | tuple | range | dict | set) else None
    if hasattr(bar, "container"):
        # Of a notebook: its widget holds the bar, and is made after it.
        shown = {"container": bar.container}
        return make_bar, (type(bar), plain, averages, iterable), shown, None, None, _show
    return make_bar, (type(bar), plain, averages, iterable)


def _show(bar: Any, shown: dict[str, Any]) -> None:
    vars(bar).update(shown)
    bar.disp = bar.display


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
    if not plain.get("gui"):
        bar.sp = cls.status_printer(sys.stderr)
    if not bar.disable:
        cls._instances.add(bar)
    return bar
