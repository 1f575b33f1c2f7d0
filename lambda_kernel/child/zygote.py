"""The zygote: a process with everything imported that forks a child for each request.

Started by exec (never forked from the serving process, whose memory holds credentials) with a clean
environment and without a HOME. It has one thread, runs no code of a user, and outlives whatever
its children do.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import select
import signal
import site
import socket
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn

from lambda_kernel.child.capture import FrameChannel
from lambda_kernel.child.cell import run_child
from lambda_kernel.child.kernel import CellKernel, build_kernel
from lambda_kernel.child.warm_up import make_fresh, preload_module, run_warm_up, warm_up
from lambda_kernel.contract.cell_protocol import (
    FAILED_STATUS,
    Exited,
    Forked,
    PendingRequest,
    Prepared,
    Ready,
    Refused,
    ZygoteAnswer,
    encode_answer,
    receive_request,
)
from lambda_kernel.contract.schema import InvalidField

logger = logging.getLogger(__name__)

HAND_OVER_S = 0.5
"""How long a prepared child may take to accept a request before a new one is forked."""

_TAKEN = b"taken"
STAND_BY_CELL = "1 + 1"


class Zygote:
    """Imports, forks, reaps, reports.

    Args:
        sock: the SOCK_SEQPACKET socket to the serving process.
        kernel: warm and fresh.
        preload: modules to import while nothing is asked for.
        hidden: our own folder on ``sys.path``.
    """

    def __init__(
        self, sock: socket.socket, kernel: CellKernel, preload: Sequence[str], hidden: str | None
    ) -> None:
        self._sock = sock
        self._kernel = kernel
        self._preload = list(preload)
        self._hidden = hidden
        self._children: set[int] = set()
        self._standby: tuple[int, socket.socket] | None = None
        self._wake_read, self._wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self) -> None:
        """Answer requests until the serving process is gone."""
        signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _note_child)
        _freeze()
        self._send(Ready(pid=os.getpid()))
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        poll.register(self._wake_read, select.POLLIN)
        try:
            while True:
                for descriptor, _ in poll.poll(0 if self._preload else None):
                    if descriptor == self._wake_read:
                        self._reap()
                    else:
                        self._accept()
                        break
                else:
                    self._preload_next()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            self._end_children()

    def _accept(self) -> None:
        try:
            pending = receive_request(self._sock)
        except InvalidField as error:
            self._send(Refused(refused=str(error)))
            return
        if pending is None:
            self._prepare()
            return
        try:
            pid = self._hand_over(pending) or self._fork(pending)
        except OSError as error:
            self._send(Refused(refused=f"fork failed: {error.strerror}"))
        else:
            self._children.add(pid)
            self._send(Forked(forked=pid))
        finally:
            pending.close()

    def _fork(self, pending: PendingRequest) -> int:
        pid = _fork_process()
        if pid == 0:
            self._run(pending)
        return pid

    def _run(self, pending: PendingRequest) -> NoReturn:
        try:
            request = pending.read()
        except BaseException:  # noqa: BLE001  (the process ends here; nothing of a user has run)
            os._exit(FAILED_STATUS)
        run_child(request, pending.descriptors, self._kernel, self._hidden)

    def _prepare(self) -> None:
        if self._standby is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            pid = _fork_process()
            if pid == 0:
                ours.close()
                self._sock.close()
                self._stand_by(theirs)
            theirs.close()
            self._standby = (pid, ours)
        self._send(Prepared(prepared=self._standby[0]))

    def _stand_by(self, sock: socket.socket) -> NoReturn:
        try:
            # Touch what a cell touches, so that these pages are this process's own already.
            run_warm_up(self._kernel, STAND_BY_CELL)
            make_fresh(self._kernel)
            pending = receive_request(sock)
            sock.send(_TAKEN)
        except BaseException:  # noqa: BLE001  (no request came: nobody misses this process)
            os._exit(0)
        if pending is None:
            os._exit(0)
        self._run(pending)

    def _hand_over(self, pending: PendingRequest) -> int | None:
        if self._standby is None:
            return None
        pid, sock = self._standby
        self._standby = None
        with sock:
            sock.settimeout(HAND_OVER_S)
            try:
                pending.forward(sock)
                taken = sock.recv(len(_TAKEN)) == _TAKEN
            except OSError:
                taken = False
        if taken:
            return pid
        # It was killed or stopped meanwhile; it may not wake up with the request in its hands.
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        return None

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        while self._children or self._standby is not None:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if self._standby is not None and pid == self._standby[0]:
                self._standby[1].close()
                self._standby = None
                continue
            if pid not in self._children:
                continue
            self._children.discard(pid)
            self._send(Exited(exited=pid, status=status))

    def _preload_next(self) -> None:
        if not self._preload:
            return
        preload_module(self._preload.pop(0))
        _freeze()

    def _end_children(self) -> None:
        for pid in self._children:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)

    def _send(self, answer: ZygoteAnswer) -> None:
        self._sock.send(encode_answer(answer))


def _fork_process() -> int:
    with warnings.catch_warnings():
        # Libraries such as OpenBLAS keep threads that are safe to fork (pthread_atfork).
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class JsonFormatter(logging.Formatter):
    """One JSON line a record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as a JSON object."""
        data = {
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            "module_name": getattr(record, "module_name", None),
            "reason": getattr(record, "reason", None),
        }
        return json.dumps({key: value for key, value in data.items() if value is not None})


def main(argv: Sequence[str]) -> int:
    """Run the zygote; returns its exit status."""
    parser = argparse.ArgumentParser(prog="lambda_kernel.child.zygote")
    parser.add_argument("--fd", type=int, required=True)
    parser.add_argument("--preload", default="")
    args = parser.parse_args(argv)
    gc.disable()
    _log_to_stderr()
    sock = socket.socket(fileno=args.fd)
    sock.set_inheritable(False)
    hidden = own_path_entry()
    # For the start of this process only: where our package and libpython are.
    os.environ.pop("PYTHONPATH", None)
    os.environ.pop("LD_LIBRARY_PATH", None)
    kernel = build_kernel(FrameChannel())
    warm_up(kernel)
    preload = [name for name in args.preload.split(",") if name]
    Zygote(sock, kernel, preload, hidden).serve()
    return 0


def own_path_entry() -> str | None:
    """Return the entry of ``sys.path`` (folder or archive) that holds our package.

    None where it is installed beside the user's packages. ``-m`` has put the current directory
    first; the serving process's is ``/``, which nobody imports from.
    """
    if sys.path and sys.path[0] == "/":
        del sys.path[0]
    entry = str(Path(__file__).parents[2])
    return None if entry in site.getsitepackages() else entry


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.__stderr__)
    handler.setFormatter(JsonFormatter())
    own = logging.getLogger("lambda_kernel")
    own.addHandler(handler)
    own.setLevel(logging.WARNING)
    own.propagate = False


def _freeze() -> None:
    gc.collect()
    # Objects that are never touched again keep their pages shared with every child.
    gc.freeze()


def _note_child(number: int, frame: FrameType | None) -> None:
    """Do nothing: the signal has written to the wake-up pipe."""


if __name__ == "__main__":
    # The kernel takes over the name __main__; this module lives on under its own.
    from lambda_kernel.child import zygote

    sys.exit(zygote.main(sys.argv[1:]))
