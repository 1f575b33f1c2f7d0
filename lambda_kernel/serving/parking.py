"""Dormant HOMEs, out of reach: unlinked archives that only the serving process holds open.

Code of another scope runs under the same user id in the same /tmp: a HOME that lay there could be
read, and planted with a usercustomize.py. A descriptor of a non-dumpable process is out of reach.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

from lambda_kernel.contract.scope import Scope
from lambda_kernel.serving import trees
from lambda_kernel.serving.home_manifest import HomeEntry, HomeManifest

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedHome:
    """The bytes of a HOME's files in one unlinked file.

    Attributes:
        manifest, digest: the saved state that it is.
        archive: descriptor.
        places: offset and length by digest.
        size_bytes: of the archive.
    """

    manifest: HomeManifest
    digest: str | None
    archive: int
    places: Mapping[str, tuple[int, int]]
    size_bytes: int

    def holds(self, digest: str) -> bool:
        """Whether it has the bytes with this digest."""
        return digest in self.places

    def copy_to(self, descriptor: int, digest: str) -> None:
        """Write the bytes with this digest to an open file; nobody else could change them."""
        offset, length = self.places[digest]
        while length:
            count = os.sendfile(descriptor, self.archive, offset, length)
            if count == 0:
                raise OSError("a parked HOME is cut short")
            offset, length = offset + count, length - count

    def close(self) -> None:
        """Give the room back."""
        os.close(self.archive)


class ParkingLot:
    """Parked HOMEs by scope; the least recently used leave first.

    Args:
        root: a folder of the file system that the archives lie on.
        max_bytes: of all of them together; 0 = nothing is parked.
    """

    def __init__(self, root: str, max_bytes: int) -> None:
        self._root = root
        self._max_bytes = max_bytes
        self._parked: OrderedDict[Scope, ParkedHome] = OrderedDict()

    @property
    def size_bytes(self) -> int:
        """What the archives measure together."""
        return sum(parked.size_bytes for parked in self._parked.values())

    def park(
        self, scope: Scope, top: str, manifest: HomeManifest, digest: str | None, files: list[str]
    ) -> None:
        """Keep the bytes of these files; ``top`` itself is left as it is.

        Args:
            scope: whose HOME it is.
            top: where it stands.
            manifest: the saved state that it is.
            digest: of that manifest.
            files: paths that are known to be as the manifest says.
        """
        entries = {path: manifest.entries[path] for path in files}
        size = sum({e.digest: e.size_bytes for e in entries.values()}.values())
        if size > self._max_bytes:
            return
        self.make_room(self._max_bytes - size)
        archive = os.open(self._root, os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC, 0o600)
        try:
            places = _copy(top, entries, archive)
        except OSError as error:
            # No room: it comes from S3 again.
            os.close(archive)
            logger.warning("a HOME could not be parked", extra={"errno": error.errno})
            return
        self._parked[scope] = ParkedHome(
            manifest=manifest, digest=digest, archive=archive, places=places, size_bytes=size
        )

    def take(self, scope: Scope) -> ParkedHome | None:
        """Return what was parked of ``scope``, which is parked no longer; the caller closes it."""
        return self._parked.pop(scope, None)

    def make_room(self, keep_bytes: int) -> None:
        """Shrink to at most ``keep_bytes``."""
        while self._parked and self.size_bytes > keep_bytes:
            self.drop_oldest()

    def drop_oldest(self) -> bool:
        """Give up the least recently used; False where there is none."""
        if not self._parked:
            return False
        _, parked = self._parked.popitem(last=False)
        parked.close()
        return True


def _copy(top: str, entries: Mapping[str, HomeEntry], archive: int) -> dict[str, tuple[int, int]]:
    places: dict[str, tuple[int, int]] = {}
    end = 0
    with contextlib.closing(trees.FolderReader(top)) as reader:
        for path, entry in sorted(entries.items()):
            if entry.digest in places or not entry.size_bytes:
                continue
            with reader.reading(path) as descriptor:
                left = entry.size_bytes
                while left:
                    count = os.sendfile(archive, descriptor, entry.size_bytes - left, left)
                    if count == 0:
                        raise OSError(f"{path!r} is shorter than it was")
                    left -= count
            places[entry.digest] = (end, entry.size_bytes)
            end += entry.size_bytes
    return places
