"""What serving process, zygote and child say to each other.

**Serving → zygote**: one ``SOCK_SEQPACKET`` datagram per request, made by ``send_request``. Code
may be 60 MB long and a datagram is not, so the request itself (JSON, ASCII only: lone surrogates of
a notebook's source survive as escapes) stands in a memfd. The datagram is ``{"request": 1}`` and
carries these descriptors, in this order, by ``SCM_RIGHTS``:

    request memfd, frames, stdout, stderr, snapshot_in, snapshot_out, pager

The zygote itself never reads it: what a cell gets (its code, its connectors' values) would stay in
the memory that all later children inherit. It hands the descriptors on; the child reads.

``send_request`` closes none of the caller's descriptors; close them once it has returned, or EOF on
``frames``, ``stdout`` and ``stderr`` never comes.

``send_prepare`` asks, between two cells, for a child that is forked ahead: the zygote answers
``Prepared``, and the next request is handed to it (its ``Forked`` names the same pid). It has seen
no request; whoever sweeps must know its pid. Nothing is lost when it is killed. Where it cannot be
forked, there is no answer: the next request is told why.

In the namespaces tier a child's pid is that of the first process of its namespaces, which ends
with it and after everything else in them; the status is the child's own.

**Zygote → serving**: ``Ready`` once; then for each request, in order, ``Forked`` or ``Refused``;
and ``Exited`` for each child, once it is reaped. Children end in any order.

**Child → serving** on ``frames``, each as ``length_prefixed(pack_parts({"kind": …}, buffers))``:

    {"kind": "started"}                                        user code begins
    {"kind": "message", "msg_type", "content", "metadata"}     with the message's buffers
    {"kind": "reply", "msg_type", "content", "metadata"}       once, after every message
    {"kind": "snapshot", "size_bytes", "index", "keep",
     "new", "patched", "lost", "changed"}                      last of STORING_KINDS
    {"kind": "failed", "reason", "message"}                    instead of what is missing

A child that wrote everything ends with status 0; one that says ``failed`` with ``FAILED_STATUS``.
``complete`` and ``inspect`` requests end with their reply. Whatever else is seen (EOF without a
reply, another status) is the user's doing: ``os._exit``, a crash, a kill. Nothing a child says is
trusted: read it with ``PartsReader`` and ``SnapshotReport.from_dict``.

**Serving → child** on ``frames``: one byte with one memfd for each answer to an ``input_request``
(of the cell's own, counted from 1), ``{"number", "value"}`` or ``{"number", "error"}`` as JSON.

**Child → serving** on ``pager``: see ``contract.paging``.
"""

from __future__ import annotations

import json
import os
import socket
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal

from lambda_kernel.contract.frames import MAX_FRAME_BYTES
from lambda_kernel.contract.invocation import CellMessage
from lambda_kernel.contract.schema import InvalidField, decode, encode, json_of

MAX_REQUEST_BYTES = 1024**3
"""60 MB of code may take six times its length as JSON escapes."""

MAX_MESSAGE_BYTES = MAX_FRAME_BYTES - 64 * 1024
"""The largest message a child sends: it must still fit the authenticated frame around it."""

FAILED_STATUS = 70
"""Exit status of a child whose own (not the user's) code failed. Source: sysexits.h."""

DATAGRAM_BYTES = 64 * 1024

STORING_KINDS = frozenset({"execute", "comm"})
"""Kinds of requests after which the child says what became of the session."""

_DESCRIPTOR_COUNT = 7
_PREPARE = b'{"prepare":1}'
_REQUEST = b'{"request":1}'


class ChildKind(StrEnum):
    """What a child's frame is."""

    STARTED = "started"
    MESSAGE = "message"
    REPLY = "reply"
    SNAPSHOT = "snapshot"
    FAILED = "failed"


class FailedReason(StrEnum):
    """Why a child could not do its part."""

    SNAPSHOT_TOO_LARGE = "snapshot_too_large"
    SNAPSHOT_UNREADABLE = "snapshot_unreadable"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class CellLimits:
    """What the kernel enforces for the child.

    Attributes:
        open_files: RLIMIT_NOFILE, of each process, and so of descriptors under way in sockets.
        processes: RLIMIT_NPROC; it counts every process of the same uid in the container.
        snapshot_bytes: a larger snapshot is not written (``snapshot_too_large``).
        input_timeout_s: how long a question to the user waits for its answer.
    """

    open_files: int = 4096
    processes: int = 1024
    snapshot_bytes: int = 5 * 1024**3
    input_timeout_s: float = 600.0

    def __post_init__(self) -> None:
        for name in ("open_files", "processes", "snapshot_bytes", "input_timeout_s"):
            if getattr(self, name) <= 0:
                raise InvalidField(f"cell_request.limits.{name}", "must be greater than 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRequest:
    """One request for a fresh child.

    Attributes:
        kind: what the child does with ``msg``; ``probe``, which no client can ask for, attacks
            other processes as user code could.
        msg: the Jupyter request.
        execution_count: the number the cell shows.
        workdir: absolute; the cell's current directory; exists.
        home: absolute; the cell's HOME; exists.
        environment: variables added to the zygote's clean environment; HOME, PATH's
            ``~/.local/bin`` and PWD are the child's own doing.
        seeds: what a new session's generators begin with, by name (``random``, ``numpy``,
            ``default_rng``); what is missing is drawn from the system.
        limits: what the child may use.
    """

    kind: Literal["execute", "complete", "inspect", "comm", "variables", "probe"] = "execute"
    msg: CellMessage
    execution_count: int
    workdir: str
    home: str
    environment: dict[str, str] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    limits: CellLimits = field(default_factory=CellLimits)

    def __post_init__(self) -> None:
        if self.execution_count < 0:
            raise InvalidField("cell_request.execution_count", "must not be negative")
        for name in ("workdir", "home"):
            path = getattr(self, name)
            if not path.startswith("/") or "\0" in path:
                raise InvalidField(f"cell_request.{name}", "must be an absolute path")
        for name, value in self.environment.items():
            if not name or "=" in name or "\0" in name + value:
                raise InvalidField("cell_request.environment", "holds an impossible variable")

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form."""
        result: dict[str, Any] = encode(self)
        return result

    @classmethod
    def from_dict(cls, data: object) -> CellRequest:
        """Return the request that ``data`` describes (raises InvalidField naming the field)."""
        return decode(cls, data, "cell_request")


@dataclass(frozen=True, slots=True, kw_only=True)
class CellDescriptors:
    """The descriptors of one child.

    Attributes:
        frames: the child's end of an AF_UNIX SOCK_STREAM pair.
        stdout: write end of the pipe that becomes descriptor 1.
        stderr: write end of the pipe that becomes descriptor 2.
        snapshot_in: the session's objects, as far as they are at hand (``paging.SnapshotHeader``);
            an empty file where there are none.
        snapshot_out: an empty memfd that the child writes new bytes to.
        pager: the child's end of an AF_UNIX SOCK_SEQPACKET pair, to ask for other objects.
    """

    frames: int
    stdout: int
    stderr: int
    snapshot_in: int
    snapshot_out: int
    pager: int

    def as_list(self) -> list[int]:
        """Return them in the order of the datagram."""
        snapshots = [self.snapshot_in, self.snapshot_out, self.pager]
        return [self.frames, self.stdout, self.stderr, *snapshots]

    def close(self) -> None:
        """Close all of them in this process."""
        for descriptor in self.as_list():
            os.close(descriptor)


def send_request(sock: socket.socket, request: CellRequest, descriptors: CellDescriptors) -> None:
    """Send ``request`` to the zygote at the other end of ``sock``.

    Raises:
        InvalidField: the request is longer than MAX_REQUEST_BYTES.
        OSError: the zygote is gone.
    """
    text = json.dumps(request.to_dict(), separators=(",", ":")).encode("ascii")
    if len(text) > MAX_REQUEST_BYTES:
        raise InvalidField("cell_request", f"is longer than {MAX_REQUEST_BYTES} bytes")
    memfd = os.memfd_create("lkg-request", os.MFD_CLOEXEC)
    try:
        with open(memfd, "wb", closefd=False) as stream:
            stream.write(text)
        socket.send_fds(sock, [_REQUEST], [memfd, *descriptors.as_list()])
    finally:
        os.close(memfd)


def send_prepare(sock: socket.socket) -> None:
    """Ask the zygote to fork the next request's child ahead (raises OSError: it is gone)."""
    sock.send(_PREPARE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingRequest:
    """A request that nobody has read yet, with descriptors that this process owns.

    Attributes:
        memfd: holds the request.
        descriptors: of its child.
    """

    memfd: int
    descriptors: CellDescriptors

    def read(self) -> CellRequest:
        """Return the request; its memfd is closed (raises InvalidField: it is none)."""
        try:
            return CellRequest.from_dict(json_of(_read_memfd(self.memfd), "cell_request"))
        finally:
            os.close(self.memfd)

    def forward(self, sock: socket.socket) -> None:
        """Send it on, unread (raises OSError: nobody is there)."""
        socket.send_fds(sock, [_REQUEST], [self.memfd, *self.descriptors.as_list()])

    def close(self) -> None:
        """Close everything in this process."""
        os.close(self.memfd)
        self.descriptors.close()


def receive_request(sock: socket.socket) -> PendingRequest | None:
    """Return the next request on ``sock``, unread.

    Returns:
        None where a child is to be prepared.

    Raises:
        EOFError: the serving process is gone.
        InvalidField: it is not a request; its descriptors are closed.
    """
    datagram, received, _, _ = socket.recv_fds(
        sock, DATAGRAM_BYTES, _DESCRIPTOR_COUNT, socket.MSG_CMSG_CLOEXEC
    )
    if not datagram and not received:
        raise EOFError("the serving process is gone")
    if datagram == _PREPARE and not received:
        return None
    if len(received) != _DESCRIPTOR_COUNT:
        for descriptor in received:
            os.close(descriptor)
        raise InvalidField("cell_request", f"must come with {_DESCRIPTOR_COUNT} descriptors")
    memfd, frames, stdout, stderr, snapshot_in, snapshot_out, pager = received
    descriptors = CellDescriptors(
        frames=frames,
        stdout=stdout,
        stderr=stderr,
        snapshot_in=snapshot_in,
        snapshot_out=snapshot_out,
        pager=pager,
    )
    return PendingRequest(memfd=memfd, descriptors=descriptors)


def _read_memfd(descriptor: int) -> bytes:
    size = os.fstat(descriptor).st_size
    if size > MAX_REQUEST_BYTES:
        raise InvalidField("cell_request", f"is longer than {MAX_REQUEST_BYTES} bytes")
    os.lseek(descriptor, 0, os.SEEK_SET)
    with open(descriptor, "rb", closefd=False) as stream:
        return stream.read(size)
