"""The global random number generators: seeded once per session, continued in every cell."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from typing import Any

from lambda_kernel.child.side_state.imports import when_imported

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
    if carried.get("numpy") is not None or "numpy" in seeds or _NUMPY_RANDOM in sys.modules:
        when_imported(_NUMPY_RANDOM, lambda module: _apply_numpy(module, carried, seeds))


def _apply_numpy(module: Any, carried: Mapping[str, Any], seeds: Mapping[str, int]) -> None:
    state = carried.get("numpy")
    if state is not None:
        name, keys, *rest = state
        module.set_state((name, memoryview(keys).cast("I").tolist(), *rest))
    else:
        words = [seeds["numpy"]] if "numpy" in seeds else list(os.urandom(32))
        module.seed([word % 2**32 for word in words])
