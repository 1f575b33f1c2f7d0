"""System V IPC objects outlive their processes: remove those that a cell left."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

_IPC_RMID = 0
_LIBC = ctypes.CDLL(None, use_errno=True)


def remove_all() -> bool:
    """Remove every System V object of this user; False where one stays.

    Only for a process that is alone in its IPC namespace or machine.
    """
    clean = True
    for kind in ("shm", "msg", "sem"):
        for identifier in _owned(kind):
            clean = _remove(kind, identifier) and clean
    return clean


def _owned(kind: str) -> list[int]:
    try:
        lines = Path(f"/proc/sysvipc/{kind}").read_text().splitlines()
    except OSError:
        return []
    # The second column is the identifier: shmid, msqid, semid.
    owner = lines[0].split().index("uid")
    rows = [line.split() for line in lines[1:]]
    return [int(row[1]) for row in rows if int(row[owner]) == os.getuid()]


def _remove(kind: str, identifier: int) -> bool:
    if kind == "shm":
        return int(_LIBC.shmctl(identifier, _IPC_RMID, None)) == 0
    if kind == "msg":
        return int(_LIBC.msgctl(identifier, _IPC_RMID, None)) == 0
    return int(_LIBC.semctl(identifier, 0, _IPC_RMID)) == 0
