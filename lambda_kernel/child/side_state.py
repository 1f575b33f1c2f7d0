"""What a session has beside its variables: environment, current directory, import paths."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NEVER_CARRIED = ("HOME", "PWD", "OLDPWD")
SECRET_PREFIXES = ("AWS_", "CONN_")
NO_SECRETS = ("AWS_REGION", "AWS_DEFAULT_REGION")


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """How the process was before the session's own changes.

    Attributes:
        environment: as the request gave it.
        path: ``sys.path`` with this HOME's folders.
        workdir: the absolute working directory.
    """

    environment: Mapping[str, str]
    path: tuple[str, ...]
    workdir: str

    @classmethod
    def here(cls, workdir: str) -> Baseline:
        """Return the baseline of this process, as it is now."""
        return cls(environment=dict(os.environ), path=tuple(sys.path), workdir=workdir)


def is_secret(name: str) -> bool:
    """Return whether an environment variable may hold a credential."""
    return name.startswith(SECRET_PREFIXES) and name not in NO_SECRETS


def collect(baseline: Baseline) -> dict[str, Any]:
    """Return what differs from ``baseline``, as plain values."""
    return {
        "environment": _environment_changes(baseline.environment),
        "cwd": _relative_cwd(baseline.workdir),
        "path": _path_additions(baseline.path),
    }


def apply(baseline: Baseline, carried: Mapping[str, Any]) -> list[str]:
    """Make this process what ``collect`` saw in another one.

    Returns:
        Notices for the user, one a line.
    """
    for name, value in carried["environment"].items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    front, back = carried["path"]
    sys.path[:0] = front
    sys.path += back
    return _enter(baseline.workdir, carried["cwd"])


def _environment_changes(before: Mapping[str, str]) -> dict[str, str | None]:
    changes: dict[str, str | None] = {
        name: value for name, value in os.environ.items() if before.get(name) != value
    }
    changes |= dict.fromkeys(name for name in before if name not in os.environ)
    return {
        name: value
        for name, value in changes.items()
        if name not in NEVER_CARRIED and not is_secret(name)
    }


def _relative_cwd(workdir: str) -> str:
    try:
        cwd = Path.cwd()
    except OSError:
        return "."
    base = Path(workdir).resolve()
    return str(cwd.relative_to(base)) if cwd.is_relative_to(base) else str(cwd)


def _enter(workdir: str, cwd: str) -> list[str]:
    if cwd == ".":
        return []
    try:
        os.chdir(Path(workdir, cwd))
    except OSError:
        return [f"[state] the current directory {cwd!r} is gone; back in the working directory"]
    return []


def _path_additions(before: tuple[str, ...]) -> tuple[list[str], list[str]]:
    known = set(before)
    front: list[str] = []
    back: list[str] = []
    target = front
    for entry in sys.path:
        if entry in known:
            target = back
        elif isinstance(entry, str):
            target.append(entry)
    return front, back
