"""A child in namespaces of its own, below a first process of ours that reaps and reports.

``fork_confined`` forks a helper that makes the namespaces, forks their pid 1 and ends. Pid 1 is
then the zygote's child (the zygote is a subreaper) and forks the process that runs the user's code.
With pid 1 everything in the namespaces ends.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from lambda_kernel.child import process
from lambda_kernel.isolation import linux, namespaces
from lambda_kernel.isolation.namespaces import NoNamespaces, Room

_NOTE_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Confined:
    """Pid 1 of a cell's namespaces.

    Attributes:
        pid: as the zygote sees it.
        notes: what it tells; the last note is how the cell's process ended.
    """

    pid: int
    notes: socket.socket

    def final_status(self, status: int) -> int:
        """Return the wait status of the cell's process.

        Args:
            status: that of pid 1, which counts where it was killed and could not tell.
        """
        with self.notes:
            self.notes.setblocking(False)
            with suppress(OSError, KeyError, NoNamespaces):
                return int(_receive(self.notes)["status"])
        return status


def fork_confined(fork: Callable[[], int], room: Room, become: Callable[[], NoReturn]) -> Confined:
    """Return a child in namespaces of its own in which ``become`` runs.

    Args:
        fork: os.fork, or what stands for it.
        room: how much it may store outside its own folders.
        become: still has every capability *in the namespaces*: it lets its folders in and then
            gives them up.

    Raises:
        NoNamespaces: the kernel or a policy refuses.
    """
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    helper = fork()
    if helper == 0:
        ours.close()
        _make_namespaces(fork, room, theirs, become)
    theirs.close()
    told: dict[str, Any] = {}
    try:
        # The two tell independently of each other.
        while not {"pid", "furnished"} <= told.keys():
            told |= _receive(ours)
    except BaseException:
        ours.close()
        raise
    finally:
        os.waitpid(helper, 0)
    return Confined(pid=int(told["pid"]), notes=ours)


def _make_namespaces(
    fork: Callable[[], int], room: Room, notes: socket.socket, become: Callable[[], NoReturn]
) -> NoReturn:
    try:
        namespaces.unshare_all()
        first = fork()
        if first == 0:
            _be_first(fork, room, notes, become)
        _send(notes, pid=first)
    except BaseException as error:  # noqa: BLE001  (the zygote tells it; a fork never returns)
        _send(notes, failed=str(error))
    os._exit(0)


def _be_first(
    fork: Callable[[], int], room: Room, notes: socket.socket, become: Callable[[], NoReturn]
) -> NoReturn:
    try:
        # The cell stays in this session and group: a signal to the group reaches it, and this
        # process is immune to whatever comes out of its own namespace.
        os.setsid()
        process.reset_signals()
        namespaces.furnish(room)
        cell = fork()
        if cell == 0:
            notes.close()
            become()
        linux.drop_capabilities()
        process.close_all_but(notes.fileno())
        _send(notes, furnished=True)
        _wait_for(cell, notes)
    except BaseException as error:  # noqa: BLE001
        _send(notes, failed=str(error))
    os._exit(0)


def _wait_for(cell: int, notes: socket.socket) -> None:
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == cell and not process.stopped_itself(pid, status):
            _send(notes, status=status)
            return


def _send(notes: socket.socket, **fields: Any) -> None:
    with suppress(OSError):
        notes.send(json.dumps(fields).encode())


def _receive(notes: socket.socket) -> dict[str, Any]:
    datagram = notes.recv(_NOTE_BYTES)
    if not datagram:
        raise NoNamespaces("the process that makes them was killed")
    fields: dict[str, Any] = json.loads(datagram)
    if "failed" in fields:
        raise NoNamespaces(fields["failed"])
    return fields
