"""How the serving process, the zygote and a cell's child speak with each other.

The serving process and the zygote share a SOCK_SEQPACKET pair: every datagram is one JSON object.
A cell request carries five descriptors (``CellDescriptors``); a request that is larger than a
datagram may be rides in a memfd that follows them.
"""

from __future__ import annotations

import array
import json
import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from lambda_kernel.contract.invocation import CellMessage
from lambda_kernel.contract.schema import InvalidField, decode, encode

DATAGRAM_BYTES = 65_536
REQUEST_BYTES = 256 * 1024 * 1024
DESCRIPTORS = 5

READY = "ready"
FORKED = "forked"
EXITED = "exited"
"""Keys of what the zygote says: ``{"ready": true, …}``, ``{"forked": pid}``,
``{"exited": pid, "status": wait status}``."""

STARTED = "started"
MESSAGE = "message"
REPLY = "reply"
SNAPSHOT = "snapshot"
FAILED = "failed"
"""The ``kind`` of what the child says on its frames socket."""

FAILED_EXIT = 70
"""The child's exit status after ``failed``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLimits:
    """Resource limits of the child.

    Attributes:
        process_count: RLIMIT_NPROC, or None to inherit it.
        open_file_count: RLIMIT_NOFILE, or None to inherit it.
        snapshot_bytes: what the pack of the session's variables may measure.
        output_bytes: output that is kept of one cell.
    """

    process_count: int | None = None
    open_file_count: int | None = None
    snapshot_bytes: int = 5 * 1024**3
    output_bytes: int = 10 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRequest:
    """What one child does.

    Attributes:
        kind: as in the invocation.
        msg: the Jupyter request.
        execution_count: the number the cell shows.
        workdir: current directory of the cell.
        home: its HOME.
        environment: the child's environment, complete.
        seeds: recorded randomness, by generator name.
        cell_name: stable file name of the cell in tracebacks; empty = the child chooses.
        commit: whether a snapshot is wanted.
        limits: resource limits.
    """

    kind: Literal["execute", "complete", "inspect", "comm", "variables"] = "execute"
    msg: CellMessage
    execution_count: int
    workdir: str
    home: str
    environment: dict[str, str] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    cell_name: str = ""
    commit: bool = True
    limits: CellLimits = field(default_factory=CellLimits)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        result: dict[str, Any] = encode(self)
        return result

    @classmethod
    def from_dict(cls, data: object) -> CellRequest:
        """Return the request that ``data`` describes (raises InvalidField naming the field)."""
        return decode(cls, data, "cell")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDescriptors:
    """The descriptors of a request, in the order in which they travel.

    Attributes:
        frames: the child's end of a SOCK_STREAM pair.
        stdout: write end of the pipe that becomes descriptor 1.
        stderr: likewise 2.
        snapshot_in: memfd with the pack of the last commit; empty = none.
        snapshot_out: empty memfd that the child writes its pack to.
    """

    frames: int
    stdout: int
    stderr: int
    snapshot_in: int
    snapshot_out: int

    @property
    def ordered(self) -> tuple[int, int, int, int, int]:
        """All five, as they travel."""
        return (self.frames, self.stdout, self.stderr, self.snapshot_in, self.snapshot_out)

    def close(self) -> None:
        """Close all five in this process."""
        for descriptor in self.ordered:
            os.close(descriptor)


def send_note(channel: socket.socket, note: dict[str, Any], fds: Sequence[int] = ()) -> None:
    """Send one JSON object and descriptors as one datagram."""
    body = json.dumps(note, separators=(",", ":")).encode("ascii")
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    channel.sendmsg([body], rights)


def receive_note(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Return the next JSON object and its descriptors (close-on-exec), or None at the end.

    Raises:
        InvalidField: the datagram is not a whole JSON object.
    """
    room = socket.CMSG_SPACE((DESCRIPTORS + 1) * array.array("i").itemsize)
    body, ancillary, flags, _ = channel.recvmsg(DATAGRAM_BYTES + 1, room, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(data[: len(data) - len(data) % fds.itemsize])
    if not body and not fds:
        return None
    try:
        note = json.loads(body)
    except ValueError:
        note = None
    if not isinstance(note, dict) or flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        for descriptor in fds:
            os.close(descriptor)
        raise InvalidField("datagram", "is not a whole JSON object")
    return note, list(fds)


def send_request(
    channel: socket.socket, request: CellRequest, descriptors: CellDescriptors
) -> None:
    """Send a cell request; the caller still owns (and closes) its descriptors."""
    data = request.to_dict()
    body = json.dumps(data, separators=(",", ":")).encode("ascii")
    if len(body) <= DATAGRAM_BYTES:
        send_note(channel, data, descriptors.ordered)
        return
    memfd = os.memfd_create("request", os.MFD_CLOEXEC)
    try:
        with open(memfd, "wb", closefd=False) as writer:
            writer.write(body)
        send_note(channel, {"bytes": len(body)}, (*descriptors.ordered, memfd))
    finally:
        os.close(memfd)


def receive_request(channel: socket.socket) -> tuple[CellRequest, CellDescriptors] | None:
    """Return the next cell request, or None when the serving process is gone.

    Raises:
        InvalidField: what came is not a request; its descriptors are closed.
    """
    received = receive_note(channel)
    if received is None:
        return None
    note, fds = received
    try:
        request = _decoded(note, fds)
    except BaseException:
        for descriptor in fds:
            os.close(descriptor)
        raise
    frames, stdout, stderr, snapshot_in, snapshot_out = fds
    return request, CellDescriptors(
        frames=frames,
        stdout=stdout,
        stderr=stderr,
        snapshot_in=snapshot_in,
        snapshot_out=snapshot_out,
    )


def _decoded(note: dict[str, Any], fds: list[int]) -> CellRequest:
    if len(fds) == DESCRIPTORS + 1:
        note = _large_note(fds.pop(), note)
    if len(fds) != DESCRIPTORS:
        raise InvalidField("cell", f"came with {len(fds)} descriptors, not {DESCRIPTORS}")
    return CellRequest.from_dict(note)


def _large_note(memfd: int, note: dict[str, Any]) -> dict[str, Any]:
    try:
        size = note.get("bytes")
        if not isinstance(size, int) or not 0 < size <= REQUEST_BYTES:
            raise InvalidField("cell", "has an impossible size")
        data = json.loads(os.pread(memfd, size, 0))
    finally:
        os.close(memfd)
    if not isinstance(data, dict):
        raise InvalidField("cell", "is not an object")
    return data
