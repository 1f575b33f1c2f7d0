"""Whether a flat list or dict still holds the very objects it held: without pickling it again."""

from __future__ import annotations

import operator
from typing import Any


def copy_of(container: Any) -> Any:
    """Return the references that a flat container holds."""
    if type(container) is dict:
        return dict, tuple(container), tuple(container.values())
    return list, tuple(container)


def is_as_copied(container: Any, copy: Any) -> bool:
    """Return whether a flat container holds the very objects it held."""
    kind, *columns = copy
    if type(container) is not kind or len(container) != len(columns[0]):
        return False
    found = (container, container.values()) if kind is dict else (container,)
    return all(all(map(operator.is_, now, then)) for now, then in zip(found, columns, strict=True))
