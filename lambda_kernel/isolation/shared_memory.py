"""Memory that no process need map: what stands in ``/dev/shm`` and in SysV segments.

A cell's child opens both before user code runs, in the cell's own namespaces, and hands them over:
who holds them can go on measuring from outside. An unmapped memfd has no such place.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress

GAUGES = ("/dev/shm", "/proc/sysvipc/shm")  # noqa: S108
_READ_BYTES = 64 * 1024
_MAX_BYTES = 1024 * 1024
_RSS_COLUMN = 14


def open_gauges() -> list[int]:
    """Return descriptors of those of the two that there are."""
    found = []
    for path in GAUGES:
        with suppress(OSError):
            found.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
    return found


def stored_bytes(gauges: Iterable[int]) -> int:
    """Return how much memory stands behind the gauges; one that cannot be read counts nothing."""
    total = 0
    for descriptor in gauges:
        with suppress(OSError, ValueError, IndexError):
            if stat.S_ISDIR(os.fstat(descriptor).st_mode):
                space = os.fstatvfs(descriptor)
                total += (space.f_blocks - space.f_bfree) * space.f_frsize
            else:
                lines = _whole(descriptor).splitlines()[1:]
                total += sum(int(line.split()[_RSS_COLUMN]) for line in lines)
    return total


def _whole(descriptor: int) -> bytes:
    # A file of /proc comes a page at a time.
    content = b""
    while len(content) < _MAX_BYTES and (chunk := os.pread(descriptor, _READ_BYTES, len(content))):
        content += chunk
    return content
