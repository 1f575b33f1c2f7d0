"""Shortcuts that a session has made for itself: ``%alias_magic``, ``%pushd``."""

from __future__ import annotations

from typing import Any

from IPython.core.magic import MagicAlias


class MagicAliases:
    """``%alias_magic``: other names of magics."""

    name = "magic aliases"

    def __init__(self, shell: Any) -> None:
        self._manager = shell.magics_manager
        self._before = self._now()

    def collect(self) -> list[list[Any]] | None:
        """Return kind, name, and the magic and parameters it stands for, of each new one."""
        return [alias for alias in self._now() if alias not in self._before] or None

    def apply(self, carried: list[list[Any]]) -> list[str]:
        """Register them."""
        for kind, name, magic, parameters in carried:
            self._manager.register_alias(name, magic, kind, parameters)
        return []

    def _now(self) -> list[list[Any]]:
        return [
            [kind, name, magic.magic_name, magic.magic_params]
            for kind, magics in self._manager.magics.items()
            for name, magic in magics.items()
            if isinstance(magic, MagicAlias)
        ]


class DirectoryStack:
    """``%pushd``: where ``%popd`` goes back to."""

    name = "directory stack"

    def __init__(self, shell: Any) -> None:
        self._stack: list[str] = shell.dir_stack

    def collect(self) -> list[str] | None:
        """Return the stack."""
        return list(self._stack) or None

    def apply(self, carried: list[str]) -> list[str]:
        """Put it back."""
        self._stack[:] = carried
        return []
