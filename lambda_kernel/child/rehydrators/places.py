"""Which files are still there in the next cell."""

from __future__ import annotations

import os
from pathlib import Path

from lambda_kernel.child.rehydrators.registry import NotCarried

_OF_ONE_CELL = ("/tmp", "/var/tmp", "/dev/shm")  # noqa: S108
_kept: list[str] = []


def keep(*folders: str) -> None:
    """Say which folders outlive the cell: its working directory and its HOME."""
    _kept[:] = [os.path.realpath(folder) for folder in folders]


def require_kept(path: str, hint: str) -> str:
    """Return the absolute path.

    Raises:
        NotCarried: what stands there ends with the cell.
    """
    whole = os.path.realpath(path)
    if not Path(whole).exists():
        raise NotCarried("its file is gone", hint)
    if _kept and not any(_is_below(whole, folder) for folder in _kept):
        for folder in _OF_ONE_CELL:
            if _is_below(whole, folder):
                raise NotCarried(f"what stands in {folder} ends with the cell", hint)
    return whole


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
