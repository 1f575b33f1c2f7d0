"""How the session wants its tracebacks: ``%xmode``."""

from __future__ import annotations

from typing import Any


class TracebackMode:
    """``%xmode``: the mode, and whether hidden frames are shown."""

    name = "tracebacks"

    def __init__(self, shell: Any) -> None:
        self._formatter = shell.InteractiveTB
        self._before = self._now()

    def collect(self) -> list[Any] | None:
        """Return mode and whether hidden frames are skipped, where one of them differs."""
        now = self._now()
        return None if now == self._before else now

    def apply(self, carried: list[Any]) -> list[str]:
        """Set them."""
        mode, skip_hidden = carried
        if mode in self._formatter.valid_modes:
            self._formatter.set_mode(mode)
        self._formatter.skip_hidden = bool(skip_hidden)
        return []

    def _now(self) -> list[Any]:
        return [self._formatter.mode, bool(self._formatter.skip_hidden)]
