"""How much memory a cell's processes hold, where no cgroup counts it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """One process: its parent, command line, and resident private plus shared memory."""

    pid: int
    parent: int
    command: bytes
    resident_bytes: int


def read(pid: int) -> ProcessMemory | None:
    """Return the memory of ``pid``, or None where it is gone.

    ``status`` and ``cmdline`` stay readable for a non-dumpable process, ``smaps_rollup`` does not.
    """
    try:
        text = Path(f"/proc/{pid}/status").read_text(errors="replace")
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
    kilobytes = sum(int(fields.get(name, "0").split()[0]) for name in ("RssAnon", "RssShmem"))
    return ProcessMemory(
        pid=pid,
        parent=int(fields.get("PPid", "0")),
        command=command,
        resident_bytes=kilobytes * 1024,
    )


def total_bytes(cell: Iterable[ProcessMemory], zygote: ProcessMemory | None) -> int:
    """Return what the processes of a cell hold beyond what they share with whom they came from.

    A fork shares its parent's pages: only what it has more counts. A process that ran exec (another
    command line) counts in full.
    """
    known = {process.pid: process for process in cell}
    everyone = {**known, **({zygote.pid: zygote} if zygote else {})}
    total = 0
    for process in known.values():
        # An orphan came from the zygote too, by way of parents that are gone.
        origin = everyone.get(process.parent, zygote)
        shared = 0
        if origin is not None and origin.command == process.command:
            shared = origin.resident_bytes
        total += max(0, process.resident_bytes - shared)
    return total
