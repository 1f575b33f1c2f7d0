"""The global random number generators: seeded once per session, continued in every cell."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import os
import random
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

_NUMPY_RANDOM = "numpy.random"


def collect(carried: Mapping[str, Any]) -> dict[str, Any]:
    """Return the generators' states as plain values.

    Args:
        carried: what ``apply`` was given; it lives on for a module that was not imported.
    """
    numpy_random = sys.modules.get(_NUMPY_RANDOM)
    if numpy_random is None:
        return {"random": random.getstate(), "numpy": carried.get("numpy")}
    name, keys, *rest = numpy_random.get_state()
    return {"random": random.getstate(), "numpy": (str(name), keys.tobytes(), *rest)}


def apply(carried: Mapping[str, Any], seeds: Mapping[str, int]) -> None:
    """Continue the generators where the last cell left them.

    Where there is nothing to continue they are seeded: children of one zygote would otherwise
    all draw the same numbers. numpy may be imported already, later, or never.

    Args:
        carried: what ``collect`` gave, or nothing.
        seeds: recorded seeds, by generator name (``random``, ``numpy``).
    """
    if "random" in carried:
        random.setstate(carried["random"])
    else:
        random.seed(seeds["random"] if "random" in seeds else os.urandom(32))
    if _NUMPY_RANDOM in sys.modules:
        _apply_numpy(sys.modules[_NUMPY_RANDOM], carried, seeds)
    elif carried.get("numpy") is not None or "numpy" in seeds:
        sys.meta_path.insert(0, _NumpyFinder(carried, seeds))


def _apply_numpy(module: Any, carried: Mapping[str, Any], seeds: Mapping[str, int]) -> None:
    state = carried.get("numpy")
    if state is not None:
        name, keys, *rest = state
        module.set_state((name, memoryview(keys).cast("I").tolist(), *rest))
    else:
        words = [seeds["numpy"]] if "numpy" in seeds else list(os.urandom(32))
        module.seed([word % 2**32 for word in words])


class _NumpyFinder(importlib.abc.MetaPathFinder):
    """Applies the state as soon as numpy's generators exist."""

    def __init__(self, carried: Mapping[str, Any], seeds: Mapping[str, int]) -> None:
        self._carried = carried
        self._seeds = seeds

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != _NUMPY_RANDOM:
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_apply(module: ModuleType) -> None:
            execute(module)
            _apply_numpy(module, self._carried, self._seeds)

        spec.loader.exec_module = execute_and_apply  # type: ignore[method-assign]
        return spec
