"""How much memory a cell's processes hold, where no cgroup counts it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMemory:
    """One process: its parent, command line, and resident private and shared memory."""

    pid: int
    parent: int
    command: bytes
    private_bytes: int
    shared_bytes: int


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
    private, shared = (
        int(fields.get(name, "0").split()[0]) * 1024 for name in ("RssAnon", "RssShmem")
    )
    return ProcessMemory(
        pid=pid,
        parent=int(fields.get("PPid", "0")),
        command=command,
        private_bytes=private,
        shared_bytes=shared,
    )


def total_bytes(
    cell: Iterable[ProcessMemory], zygote: ProcessMemory | None, stored_bytes: int = 0
) -> int:
    """Return what a cell holds beyond what its processes share with whom they came from.

    A fork shares its parent's pages: only what it has more counts. A process that ran exec (another
    command line) counts in full.

    Args:
        cell: its processes.
        zygote: where they come from.
        stored_bytes: shared memory that need not be mapped. What is mapped too counts once.
    """
    known = {process.pid: process for process in cell}
    everyone = {**known, **({zygote.pid: zygote} if zygote else {})}
    private = shared = 0
    for process in known.values():
        # An orphan came from the zygote too, by way of parents that are gone.
        origin = everyone.get(process.parent, zygote)
        is_fork = origin is not None and origin.command == process.command
        private += process.private_bytes
        shared += process.shared_bytes
        if origin is not None and is_fork:
            private -= min(process.private_bytes, origin.private_bytes)
            shared -= min(process.shared_bytes, origin.shared_bytes)
    return private + max(shared, stored_bytes)
