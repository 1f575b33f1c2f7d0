"""``warnings.filterwarnings`` and ``simplefilter``."""

from __future__ import annotations

import functools
import sys
import warnings
from typing import Any

from lambda_kernel.child.side_state.imports import when_imported

_Plain = tuple[str, Any, str, Any, int]


class WarningFilters:
    """The filters that were added, and whether those of the start are still there."""

    name = "warnings"

    def __init__(self) -> None:
        self._before = list(warnings.filters)
        self._waiting: list[_Plain] = []

    def collect(self) -> dict[str, Any] | None:
        """Return added filters and the positions of removed ones."""
        now = list(warnings.filters)
        if now == self._before and not self._waiting:
            return None
        added = [_plain(line) for line in now if line not in self._before]
        removed = [i for i, line in enumerate(self._before) if line not in now]
        return {"added": added + self._waiting, "removed": removed}

    def apply(self, carried: dict[str, Any]) -> list[str]:
        """Put them in front; those of a library's categories once it is imported."""
        removed = set(carried["removed"])
        kept = [line for i, line in enumerate(self._before) if i not in removed]
        added = []
        for line in carried["added"]:
            module = line[2].partition(":")[0]
            if module in sys.modules:
                live = _live(line)
                added += [live] if live is not None else []
            else:
                self._waiting.append(line)
                when_imported(module, functools.partial(self._add_late, line))
        warnings.filters[:] = added + kept  # type: ignore[index]
        _tell_changed()
        return []

    def _add_late(self, line: _Plain, _: Any) -> None:
        self._waiting.remove(line)
        live = _live(line)
        if live is not None and live not in warnings.filters:
            warnings.filters.insert(0, live)  # type: ignore[attr-defined]
            _tell_changed()


def _plain(line: Any) -> _Plain:
    action, message, category, module, number = line
    return action, message, f"{category.__module__}:{category.__qualname__}", module, number


def _live(line: _Plain) -> Any:
    action, message, category, module, number = line
    place, _, name = category.partition(":")
    cls = getattr(sys.modules[place], name, None)
    if not isinstance(cls, type):
        return None
    return action, message, cls, module, number


def _tell_changed() -> None:
    for name in ("_filters_mutated", "_filters_mutated_lock_held"):
        changed = getattr(warnings, name, None)
        if changed is not None:
            changed()
            return
