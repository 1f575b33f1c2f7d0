"""Stands between a running gateway and its storage: sees every AWS call of its containers."""

from __future__ import annotations

import contextlib
import os
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernel_gateway.local.storage_config import SOCKET_NAME
from tests.integration.driver import Gateway
from tests.integration.processes import kill_containers

HEAD_END = b"\r\n\r\n"
READ_BYTES = 256 * 1024
Phase = Literal["before", "after"]


@dataclass(frozen=True)
class Call:
    """One AWS call of a container."""

    method: str
    target: str

    @property
    def label(self) -> str:
        """What it is for, without names that differ from cell to cell."""
        for pattern, label in _LABELS:
            found = re.search(pattern, f"{self.method} {self.target}")
            if found is not None:
                return found.expand(label)
        return f"{self.method} {self.target.partition('?')[0]}"


_LABELS = [
    (r"^POST /(\?|$)", "AssumeRole"),
    (r"^GET \S+/control/", "control"),
    (r"^GET /[^/?]+/?\?.*list-type", "LIST"),
    (r"^PUT \S+-state/\S+/kernels/", "PUT commit"),
    (r"^PUT \S+-state/\S+/blobs/", "PUT blob"),
    (r"^PUT \S+-state/\S+/home/head", "PUT HOME head"),
    (r"^PUT \S+-state/\S+/home/manifests/", "PUT HOME manifest"),
    (r"^PUT \S+-state/\S+/home/packs/", "PUT HOME pack"),
    (r"^GET \S+-state/\S+/home/head", "GET HOME head"),
    (r"^GET \S+-state/\S+/home/manifests/", "GET HOME manifest"),
    (r"^GET \S+-state/\S+/home/packs/", "GET HOME pack"),
    (r"^GET \S+-state/\S+/blobs/", "GET blob"),
    (r"^GET \S+-state/\S+/kernels/", "GET commit"),
    (r"^PUT \S+-workspaces/", "PUT file"),
    (r"^GET \S+-workspaces/", "GET file"),
    (r"^(PUT|DELETE) \S+-state/\S+/deletions/", r"\1 deletions"),
    (r"^POST \S+-workspaces/?\?delete", "DELETE files"),
]


@dataclass
class Trap:
    """What is done when a container's call comes by.

    Attributes:
        label, number: of the call: the first of its kind has number 0.
        phase: before storage sees it, or after storage has answered, before the container hears it.
        spring: called once; the connection is cut after it.
    """

    label: str
    number: int
    phase: Phase
    spring: Callable[[], object]
    sprung: bool = False


class StorageTap:
    """The calls of the containers of one gateway; everybody else's pass unseen."""

    def __init__(self, path: Path, real: Path) -> None:
        self._path, self._real = path, real
        self._listener = socket.socket(socket.AF_UNIX)
        self._lock = threading.Lock()
        self._trap: Trap | None = None
        self._seen_by_label: dict[str, int] = {}
        self.calls: list[Call] = []
        self.accepted: list[Call] = []
        """Those that storage answered well."""
        self.refuse: Callable[[Call], bool] = lambda call: False
        """Which calls are dropped, as by a storage that is down."""

    def begin(self, trap: Trap | None = None) -> None:
        """Forget what was seen; spring ``trap`` when its call comes."""
        with self._lock:
            self.calls, self.accepted, self._seen_by_label = [], [], {}
            self._trap = trap

    def serve(self) -> None:
        """Accept until the listener is closed."""
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connection, args=(near,), daemon=True).start()

    def open(self) -> None:
        """Take the place of the storage's socket."""
        self._path.rename(self._real)
        self._listener.bind(os.fspath(self._path))
        self._listener.listen(128)
        threading.Thread(target=self.serve, daemon=True).start()

    def close(self) -> None:
        """Give the storage its place back."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if self._real.exists():
            self._real.rename(self._path)

    def _connection(self, near: socket.socket) -> None:
        with near, socket.socket(socket.AF_UNIX) as far, contextlib.suppress(OSError):
            far.connect(os.fspath(self._real))
            while self._exchange(near, far):
                pass

    def _exchange(self, near: socket.socket, far: socket.socket) -> bool:
        """Pass one request and its answer on; False where the connection is over."""
        head, rest = _read_head(near)
        if not head:
            return False
        if b"x-amz-security-token" not in head.lower():
            # Not a container's: the gateway, or the local service.
            far.sendall(head + rest)
            _splice(near, far)
            return False
        method, target, _ = head.split(b" ", 2)
        call = Call(method.decode(), target.decode())
        trap = self._note(call)
        if self.refuse(call):
            return False
        if trap is not None and trap.phase == "before":
            self._spring(trap)
            return False
        far.sendall(head)
        _copy_body(head, rest, near, far)
        answer, rest = _read_head(far)
        if not answer:
            return False
        status = int(answer.split(b" ", 2)[1])
        if status < 300:
            with self._lock:
                self.accepted.append(call)
        if trap is not None:
            self._spring(trap)
            return False
        near.sendall(answer)
        if method != b"HEAD" and status not in (204, 304):
            _copy_body(answer, rest, far, near)
        return b"connection: close" not in (head + answer).lower()

    def _note(self, call: Call) -> Trap | None:
        with self._lock:
            number = self._seen_by_label.get(call.label, 0)
            self._seen_by_label[call.label] = number + 1
            self.calls.append(call)
            trap = self._trap
            if trap is None or (trap.label, trap.number) != (call.label, number):
                return None
            self._trap = None
            return trap

    @staticmethod
    def _spring(trap: Trap) -> None:
        # The client may hear of it before ``spring`` is over.
        trap.sprung = True
        trap.spring()


@contextmanager
def tapped_storage(gateway: Gateway) -> Iterator[StorageTap]:
    """Yield a tap in front of the storage of a running gateway; it dials once per connection."""
    path = gateway.state_dir / "run" / "storage" / SOCKET_NAME
    tap = StorageTap(path, path.with_name("real.sock"))
    tap.open()
    try:
        # The connections that a container has kept from before would pass it by.
        kill_containers(gateway.process.pid)
        yield tap
    finally:
        tap.close()


def _read_head(source: socket.socket) -> tuple[bytes, bytes]:
    received = b""
    while HEAD_END not in received:
        chunk = source.recv(READ_BYTES)
        if not chunk:
            return b"", b""
        received += chunk
    head, _, rest = received.partition(HEAD_END)
    return head + HEAD_END, rest


def _copy_body(head: bytes, rest: bytes, source: socket.socket, target: socket.socket) -> None:
    lowered = head.lower()
    length = re.search(rb"\r\ncontent-length: *(\d+)", lowered)
    if length is not None:
        left = int(length[1]) - len(rest)
        target.sendall(rest)
        while left > 0:
            chunk = source.recv(min(READ_BYTES, left))
            if not chunk:
                raise ConnectionError
            target.sendall(chunk)
            left -= len(chunk)
    elif b"transfer-encoding: chunked" in lowered:
        target.sendall(rest)
        while not rest.endswith(b"0\r\n\r\n"):
            chunk = source.recv(READ_BYTES)
            if not chunk:
                raise ConnectionError
            target.sendall(chunk)
            rest = rest[-5:] + chunk


def _splice(near: socket.socket, far: socket.socket) -> None:
    back = threading.Thread(target=_pump, args=(far, near), daemon=True)
    back.start()
    _pump(near, far)
    back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := source.recv(READ_BYTES):
            target.sendall(chunk)
        target.shutdown(socket.SHUT_WR)
