"""What the random number generators of a session begin with, drawn so that it can be replayed."""

from __future__ import annotations

import secrets

from kernel_gateway.environments.environment import Environment

GENERATORS = ("random", "numpy", "default_rng")
SEED_BITS = 53
"""Every program that reads JSON reads such a number as it is."""


def drawn(environment: Environment) -> dict[str, int]:
    """Return new seeds by generator, none where the environment records none.

    They are no secret: the cells of the kernel can read them, and its journal holds them.
    """
    if not environment.recorded_randomness:
        return {}
    return {name: secrets.randbits(SEED_BITS) for name in GENERATORS}
