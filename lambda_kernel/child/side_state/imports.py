"""Do something once a module is imported: now, later, or never."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

Callback = Callable[[Any], None]


def when_imported(name: str, callback: Callback) -> None:
    """Call ``callback`` with the module ``name``, as soon as it has been executed."""
    module = sys.modules.get(name)
    if module is not None and not _is_being_imported(module):
        callback(module)
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
    _finder.waiting.setdefault(name, []).append(callback)


def _is_being_imported(module: ModuleType) -> bool:
    return getattr(getattr(module, "__spec__", None), "_initializing", False)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what others find, and wraps how it is executed."""

    def __init__(self) -> None:
        self.waiting: dict[str, list[Callback]] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        callbacks = self.waiting.pop(fullname, None)
        if callbacks is None:
            return None
        if not self.waiting and self in sys.meta_path:
            sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            self._wait_again(fullname, callbacks)
            return None
        execute = spec.loader.exec_module

        def execute_and_call(module: ModuleType) -> None:
            execute(module)
            for callback in callbacks:
                callback(module)

        spec.loader.exec_module = execute_and_call  # type: ignore[method-assign]
        return spec

    def _wait_again(self, name: str, callbacks: list[Callback]) -> None:
        self.waiting[name] = callbacks
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)


_finder = _Finder()
