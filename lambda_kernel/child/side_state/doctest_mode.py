"""``%doctest_mode``: what it found, to go back to."""

from __future__ import annotations

from typing import Any

from IPython.utils.ipstruct import Struct

KEY = "doctest_mode"


class DoctestMode:
    """Whether it is on, and the settings before that; those of now are carried as such."""

    name = "doctest mode"

    def __init__(self, shell: Any) -> None:
        self._meta = shell.meta

    def collect(self) -> dict[str, Any] | None:
        """Return what the magic has noted, None where it was never called."""
        noted = self._meta.get(KEY)
        return None if noted is None else dict(noted)

    def apply(self, carried: dict[str, Any]) -> list[str]:
        """Note it."""
        self._meta[KEY] = Struct(carried)
        return []
