"""The processes of a running gateway."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path


def descendants(pid: int) -> set[int]:
    """Return the processes below ``pid``."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue
        children.setdefault(int(stat.rsplit(")", 1)[1].split()[1]), []).append(int(entry.name))
    found: set[int] = set()
    waiting = [pid]
    while waiting:
        for child in children.get(waiting.pop(), []):
            found.add(child)
            waiting.append(child)
    return found


def arguments_of(pid: int) -> list[str]:
    """Return the arguments of a process, empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
    except OSError:
        return []


def kill_containers(gateway_pid: int) -> None:
    """End all containers of a gateway, and wait until they are gone."""
    handles = []
    for pid in descendants(gateway_pid):
        if "--stage-2" in arguments_of(pid):
            handles.append(os.pidfd_open(pid))
            os.kill(pid, signal.SIGKILL)
    for handle in handles:
        assert select.select([handle], [], [], 10)[0]
        os.close(handle)
