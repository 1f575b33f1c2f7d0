"""The random number generators: seeded once per session, continued in every cell.

``secrets``, ``os.urandom``, ``uuid.uuid4`` and what asks the system in C (``random.Random()``
without a seed, so also the names that ``tempfile`` makes) stay the system's.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Mapping
from typing import Any

from lambda_kernel.child.entropy import Entropy
from lambda_kernel.child.side_state.imports import when_imported

_NUMPY_RANDOM = "numpy.random"
SVG_SALT = "lambda-kernel"


class Randomness:
    """The generators of one session in one process.

    Args:
        carried: what ``collect`` gave in the last cell, or nothing.
        seeds: recorded seeds, by generator name (``random``, ``numpy``, ``default_rng``): what a
            session begins with. One that goes on keeps those it has begun with.
    """

    def __init__(self, carried: Mapping[str, Any], seeds: Mapping[str, int]) -> None:
        self._carried = carried
        self._seeds = dict(carried.get("seeds", {}) if "random" in carried else seeds)
        seed = self._seeds.get("default_rng")
        self._entropy = (
            None if seed is None else Entropy.carried(seed, carried.get("default_rng", {}))
        )

    def collect(self) -> dict[str, Any]:
        """Return the generators' states as plain values."""
        found: dict[str, Any] = {"random": random.getstate(), "seeds": self._seeds}
        if self._entropy is not None:
            found["default_rng"] = self._entropy.state
        numpy_random = sys.modules.get(_NUMPY_RANDOM)
        if numpy_random is None:
            # It lives on for a module that was not imported.
            return found | {"numpy": self._carried.get("numpy")}
        name, keys, *rest = numpy_random.get_state()
        return found | {"numpy": (str(name), keys.tobytes(), *rest)}

    def apply(self) -> None:
        """Continue the generators where the last cell left them.

        Where there is nothing to continue they are seeded: children of one zygote would otherwise
        all draw the same numbers. numpy may be imported already, later, or never.
        """
        carried, seeds = self._carried, self._seeds
        if "random" in carried:
            random.setstate(carried["random"])
        else:
            random.seed(seeds["random"] if "random" in seeds else os.urandom(32))
        if self._entropy is not None:
            self._entropy.follow_forks()
            # Not before all of it is there: it draws while it is imported, which may have been done
            # ahead, and must not count.
            when_imported(_NUMPY_RANDOM, self._entropy.install)
        if carried.get("numpy") is not None or "numpy" in seeds or _NUMPY_RANDOM in sys.modules:
            when_imported(_NUMPY_RANDOM, self._apply_numpy)

    def _apply_numpy(self, module: Any) -> None:
        state = self._carried.get("numpy")
        if state is not None:
            name, keys, *rest = state
            module.set_state((name, memoryview(keys).cast("I").tolist(), *rest))
        elif "numpy" in self._seeds:
            seed = self._seeds["numpy"]
            module.seed([seed % 2**32, seed >> 32])
        else:
            module.seed(list(os.urandom(32)))


def salt_svg() -> None:
    """Make the ids in matplotlib's SVG depend on what they stand for, and not on the moment."""
    when_imported("matplotlib", _salt)


def _salt(module: Any) -> None:
    # As if the image's own matplotlibrc said so: rcdefaults() comes back to it.
    for name in ("rcParams", "rcParamsDefault", "rcParamsOrig"):
        parameters = getattr(module, name)
        if parameters["svg.hashsalt"] is None:
            parameters["svg.hashsalt"] = SVG_SALT
