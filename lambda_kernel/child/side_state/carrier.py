"""What every carrier of side state can do."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Protocol

from lambda_kernel.child.side_state.imports import when_imported


class Carrier(Protocol):
    """One kind of setting; made in a fresh process, whose values it takes as the baseline."""

    name: str

    def collect(self) -> Any:
        """Return what differs from the baseline, as plain values; None = nothing."""
        ...

    def apply(self, carried: Any) -> list[str]:
        """Make this process what ``collect`` saw in another; returns notices for the user."""
        ...


class ObjectCarrier(Protocol):
    """The same for what only the session's own pickles can hold (functions, handlers)."""

    name: str

    def collect_objects(self) -> dict[str, Any]:
        """Return live objects, by any key."""
        ...

    def apply_objects(self, objects: Mapping[str, Any]) -> None:
        """Put back what ``collect_objects`` gave."""
        ...


class LibrarySettings:
    """Named settings of a library that is imported already, later or never."""

    name: str
    module: str

    def __init__(self) -> None:
        self._baseline: dict[str, Any] | None = None
        self._carried: dict[str, Any] = {}
        when_imported(self.module, self._begin)

    def collect(self) -> Any:
        """Return what differs from the baseline; None = nothing."""
        module = sys.modules.get(self.module)
        if module is None or self._baseline is None:
            return self._carried or None
        before = self._baseline
        now = self.read(module)
        return {k: v for k, v in now.items() if k not in before or not _same(before[k], v)} or None

    def apply(self, carried: dict[str, Any]) -> list[str]:
        """Set what ``collect`` saw, now or when the library is imported."""
        self._carried = carried
        if self._baseline is not None:
            self._write(sys.modules[self.module])
        return []

    def _begin(self, module: Any) -> None:
        self._baseline = self.read(module)
        if self._carried:
            self._write(module)

    def _write(self, module: Any) -> None:
        for key, value in self._carried.items():
            try:
                self.write(module, key, value)
            except Exception as error:  # noqa: BLE001  (another version may not know the setting)
                sys.stderr.write(f"[state] {self.module}: {key!r} could not be set: {error}\n")

    def read(self, module: Any) -> dict[str, Any]:
        """Return all settings by key."""
        raise NotImplementedError

    def write(self, module: Any, key: str, value: Any) -> None:
        """Set one."""
        raise NotImplementedError


def _same(first: Any, second: Any) -> bool:
    try:
        return first is second or bool(first == second)
    except Exception:  # noqa: BLE001  (values of a library)
        return False
