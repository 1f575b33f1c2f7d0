"""What a session changed in modules and in classes of libraries: ``ssl.x = y``, accessors."""

from __future__ import annotations

import ast
import re
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from lambda_kernel.child.side_state.imports import when_imported

_OF_THE_PROCESS = frozenset({"__main__", "sys"})
_WATCHED = {"pandas": ("DataFrame", "Series", "Index")}
"""Classes that libraries and users add attributes to by calls (accessors, ``tqdm.pandas()``)."""

_ASSIGNMENT = re.compile(r"\.[^\W\d]\w*\s*(=(?!=)|[-+*/@%&|^]=|//=|\*\*=|,|:)")
_NONE = object()


class Patches:
    """Attributes of modules and of their classes: those that cells assign."""

    name = "patches"

    def __init__(self, shell: Any) -> None:
        self._namespace = shell.user_ns
        self._assigned: set[tuple[str, ...]] = set()
        self._carried: dict[str, Any] = {}
        self._known: dict[str, frozenset[str]] = {}
        for module in _WATCHED:
            when_imported(module, self._begin)

    def note(self, source: str) -> None:
        """See which attributes a cell may assign."""
        if _ASSIGNMENT.search(source) is None:
            return
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                self._assigned.add(tuple(_path_of(node)))

    def collect_objects(self) -> dict[str, Any]:
        """Return values by ``module:path``."""
        keys = dict.fromkeys(self._carried)
        keys.update(dict.fromkeys(key for path in self._assigned if (key := self._key(path))))
        for owner, names in self._known.items():
            added = vars(_owner_of(owner)).items()
            keys.update(
                (f"{owner}.{n}", None) for n, v in added if n not in names and _is_made_here(v)
            )
        found = {key: self._value(key) for key in keys}
        return {key: value for key, value in found.items() if value is not _NONE}

    def apply_objects(self, objects: Mapping[str, Any]) -> None:
        """Assign them, now or when their module is imported."""
        self._carried.update(objects)
        for module in {key.partition(":")[0] for key in objects}:
            when_imported(module, self._assign)

    def _begin(self, module: Any) -> None:
        for name in _WATCHED[module.__name__]:
            cls = getattr(module, name)
            self._known[f"{module.__name__}:{name}"] = frozenset(vars(cls))

    def _assign(self, module: Any) -> None:
        for key, value in self._carried.items():
            if key.startswith(f"{module.__name__}:"):
                name, _, attribute = key.partition(":")[2].rpartition(".")
                try:
                    setattr(_owner_of(f"{module.__name__}:{name}"), attribute, value)
                except (AttributeError, TypeError):
                    sys.stderr.write(f"[state] {key!r} could not be set\n")

    def _key(self, path: tuple[str, ...]) -> str | None:
        """Return the key of an attribute, if it is one of a module or of a class in one."""
        if not path or path[0] not in self._namespace:
            return None
        owner = self._namespace[path[0]]
        for part in path[1:-1]:
            owner = vars(owner).get(part) if isinstance(owner, types.ModuleType | type) else None
        name = getattr(owner, "__name__", "") if isinstance(owner, types.ModuleType | type) else ""
        if isinstance(owner, types.ModuleType):
            module, prefix = name, ""
        else:
            module, prefix = getattr(owner, "__module__", ""), f"{name}."
        if not name or module in _OF_THE_PROCESS or module not in sys.modules:
            return None
        key = f"{module}:{prefix}"
        return f"{key}{path[-1]}" if _owner_of(key.rstrip(".")) is owner else None

    def _value(self, key: str) -> Any:
        module, _, path = key.partition(":")
        if module not in sys.modules:
            return self._carried.get(key, _NONE)
        owner, _, attribute = path.rpartition(".")
        found = _owner_of(f"{module}:{owner}")
        return _NONE if found is None else vars(found).get(attribute, _NONE)


def _owner_of(key: str) -> Any:
    module, _, name = key.partition(":")
    found: Any = sys.modules.get(module)
    return getattr(found, name, None) if name else found


def _is_made_here(value: Any) -> bool:
    """Return whether an attribute is of the session: its library would not add it again."""
    value = getattr(value, "_accessor", value)
    value = getattr(value, "__func__", getattr(value, "fget", value))
    is_local = "<locals>" in str(getattr(value, "__qualname__", ""))
    return is_local or getattr(value, "__module__", None) == "__main__"


def _path_of(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Attribute):
        parts = list(_path_of(node.value))
        if parts:
            yield from parts
            yield node.attr
    elif isinstance(node, ast.Name):
        yield node.id
