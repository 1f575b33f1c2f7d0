"""pandas' Arrow columns: carried as the buffers that they are."""

from __future__ import annotations

from typing import Any

_CACHE = "_cache"


def reduce_arrow(array: Any) -> Any:
    """Carry the Arrow data itself: pandas would copy every string first."""
    attributes = vars(array)
    return make_arrow, (type(array), {n: v for n, v in attributes.items() if n != _CACHE})


def make_arrow(cls: Any, attributes: dict[str, Any]) -> Any:
    """Return a pandas array of Arrow data."""
    array = cls.__new__(cls)
    vars(array).update(attributes)
    if _CACHE not in vars(cls):
        vars(array)[_CACHE] = {}
    return array
