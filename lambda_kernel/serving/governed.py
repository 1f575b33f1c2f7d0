"""The governed read prefix: mirrored read-only at ``.governed``; what a cell does there is undone.

S3 refuses writes to it by the session policy; the working directory's copy is dropped with it.
"""

from __future__ import annotations

import stat
from collections.abc import Mapping

from lambda_kernel.serving import trees
from lambda_kernel.serving.cache import DownloadCache, state_of
from lambda_kernel.serving.manifest import FileState

GOVERNED = ".governed"


def is_governed(path: str) -> bool:
    """Return whether a path of the working directory is ``.governed`` or under it."""
    return path == GOVERNED or path.startswith(f"{GOVERNED}/")


class GovernedScan:
    """What a cell did under ``.governed``, where nothing it does counts.

    Args:
        prefix: what is mirrored there.
        before: its files, by path in the working directory.
        cache: is told which of them are still as they were.
    """

    def __init__(self, prefix: str, before: Mapping[str, FileState], cache: DownloadCache) -> None:
        self._prefix = prefix
        self._before = before
        self._cache = cache
        self._same: set[str] = set()
        self._changed: list[str] = []

    def see(self, found: trees.Found) -> None:
        """Take note of one thing there."""
        before = self._before.get(found.path)
        if stat.S_ISDIR(found.status.st_mode):
            return
        if before is None or not stat.S_ISREG(found.status.st_mode):
            self._changed.append(repr(found.path))
            return
        now = state_of(found)
        self._same.add(found.path)
        if (now.digest, now.size_bytes) != (before.digest, before.size_bytes):
            self._changed.append(repr(found.path))
        else:
            key = self._prefix + found.path.removeprefix(f"{GOVERNED}/")
            self._cache.vouch(key, found.status.st_ino, before)

    def changed(self) -> list[str]:
        """Return the paths of what is new, different or gone."""
        gone = self._before.keys() - self._same
        return sorted({*self._changed, *map(repr, gone)})
