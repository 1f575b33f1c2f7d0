"""Names that are not there until somebody reads them.

A namespace is an exact dict, so that every kind of code works on it; what it lacks is looked up in
its ``__builtins__``, which may be a dict with ``__missing__``.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Set
from typing import Any

_PATCHED = frozenset({"input", "display", "_", "get_ipython", "help", "exit", "quit"})
"""What IPython changes in ``builtins`` while a cell runs: looked up there each time."""

MODULE_HOOK = "__getattr__"


class LazyBuiltins(dict[str, Any]):
    """The builtins of a namespace, and its stored names.

    Args:
        stored: the names; they hide builtins of the same name.
        load: returns the value of a stored name; raises KeyError where the name is not stored.
    """

    def __init__(self, stored: Set[str], load: Callable[[str], Any]) -> None:
        super().__init__(vars(builtins))
        for name in self.keys() & stored | _PATCHED:
            self.pop(name, None)
        self._load = load

    def __missing__(self, name: str) -> Any:
        try:
            return self._load(name)
        except KeyError:
            return vars(builtins)[name]


def install(namespace: dict[str, Any], lazy: LazyBuiltins) -> None:
    """Let ``namespace`` find stored names, also by way of ``import __main__``."""

    def module_attribute(name: str) -> Any:
        try:
            return lazy._load(name)
        except KeyError:
            raise AttributeError(f"module '__main__' has no attribute {name!r}") from None

    namespace["__builtins__"] = lazy
    namespace[MODULE_HOOK] = module_attribute


def uninstall(namespace: dict[str, Any]) -> None:
    """Give ``namespace`` the real builtins: nothing is left to load."""
    namespace["__builtins__"] = builtins
    namespace.pop(MODULE_HOOK, None)
