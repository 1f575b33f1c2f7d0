"""Environment variables, current directory, import paths."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path

NEVER_CARRIED = ("HOME", "PWD", "OLDPWD")
SECRET_PREFIXES = ("AWS_", "CONN_")
NO_SECRETS = ("AWS_REGION", "AWS_DEFAULT_REGION")


def is_secret(name: str) -> bool:
    """Return whether an environment variable may hold a credential."""
    return name.startswith(SECRET_PREFIXES) and name not in NO_SECRETS


class Environment:
    """``os.environ``."""

    name = "environment"

    def __init__(self, before: Mapping[str, str]) -> None:
        self._before = before

    def collect(self) -> dict[str, str | None] | None:
        """Return changes; None as a value = removed."""
        before = self._before
        changes: dict[str, str | None] = {
            name: value for name, value in os.environ.items() if before.get(name) != value
        }
        changes |= dict.fromkeys(name for name in before if name not in os.environ)
        return {
            name: value
            for name, value in changes.items()
            if name not in NEVER_CARRIED and not is_secret(name)
        } or None

    def apply(self, carried: Mapping[str, str | None]) -> list[str]:
        """Set and remove."""
        for name, value in carried.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        if "TZ" in carried:
            time.tzset()
        return []


class ImportPath:
    """``sys.path``."""

    name = "path"

    def __init__(self, before: tuple[str, ...]) -> None:
        self._before = before

    def collect(self) -> tuple[list[str], list[str]] | None:
        """Return what was added in front and at the back."""
        if tuple(sys.path) == self._before:
            return None
        known = set(self._before)
        front: list[str] = []
        back: list[str] = []
        target = front
        for entry in sys.path:
            if entry in known:
                target = back
            elif isinstance(entry, str):
                target.append(entry)
        return (front, back) if front or back else None

    def apply(self, carried: tuple[list[str], list[str]]) -> list[str]:
        """Add."""
        front, back = carried
        sys.path[:0] = front
        sys.path += back
        return []


class CurrentDirectory:
    """The current directory, relative to the working directory where it is below."""

    name = "cwd"

    def __init__(self, workdir: str) -> None:
        self._workdir = workdir

    def collect(self) -> str | None:
        """Return it; None = the working directory."""
        try:
            cwd = Path.cwd()
        except OSError:
            return None
        base = Path(self._workdir).resolve()
        where = str(cwd.relative_to(base)) if cwd.is_relative_to(base) else str(cwd)
        return None if where == "." else where

    def apply(self, carried: str) -> list[str]:
        """Go there."""
        try:
            os.chdir(Path(self._workdir, carried))
        except OSError:
            return [
                f"[state] the current directory {carried!r} is gone; back in the working directory"
            ]
        return []
