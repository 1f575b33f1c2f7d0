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

from lambda_kernel.child import process
from lambda_kernel.child.capture import FrameChannel
from lambda_kernel.child.cell import run_child
from lambda_kernel.child.confined import Confined, fork_confined
from lambda_kernel.child.giving_way import done_unless_wanted
from lambda_kernel.child.kernel import CellKernel, build_kernel
from lambda_kernel.child.randomness import salt_svg
from lambda_kernel.child.stand_by import TAKEN, StandBy
from lambda_kernel.child.warm_up import (
    Rehearsal,
    preload_module,
    rehearsals,
    warm_stand_by,
    warm_up,
)
from lambda_kernel.contract.cell_protocol import FAILED_STATUS, PendingRequest, receive_request
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.zygote_answers import (
    Exited,
    Forked,
    Prepared,
    Ready,
    Refused,
    ZygoteAnswer,
    encode_answer,
)
from lambda_kernel.isolation import linux
from lambda_kernel.isolation.namespaces import NoNamespaces, Room

logger = logging.getLogger(__name__)

HAND_OVER_S = 0.5
"""How long a prepared child may take to accept a request before a new one is forked."""
FRESH_HAND_OVER_S = 30.0
"""The same for a child that was forked for this very request."""


class Zygote:
    """Imports, forks, reaps, reports.

    Args:
        sock: the SOCK_SEQPACKET socket to the serving process.
        kernel: warm and fresh.
        preload: modules to import while nothing is asked for.
        hidden: our own folder on ``sys.path``.
        room: what each cell may store in namespaces of its own; None = it gets none.
    """

    def __init__(
        self,
        sock: socket.socket,
        kernel: CellKernel,
        preload: Sequence[str],
        hidden: str | None,
        room: Room | None = None,
    ) -> None:
        self._sock = sock
        self._kernel = kernel
        self._preload = list(preload)
        self._rehearsals = rehearsals(kernel, preload)
        self._hidden = hidden
        # Nothing is imported while a process of a user's may live: it could change what is read.
        self._quiet = True
        self._room = room
        # A confined child's own pid 1 tells how it ended.
        self._children: dict[int, Confined | None] = {}
        self._standby: StandBy | None = None
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
                for descriptor, _ in poll.poll(0 if self._has_work else None):
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
        self._quiet = pending is None
        if pending is None:
            self._prepare()
            return
        try:
            pid, confined = self._start(pending)
        except (OSError, NoNamespaces) as error:
            what = "fork failed" if isinstance(error, OSError) else "no namespaces"
            self._send(Refused(refused=f"{what}: {error}"))
        else:
            self._children[pid] = confined
            self._send(Forked(forked=pid))
        finally:
            pending.close()

    def _start(self, pending: PendingRequest) -> tuple[int, Confined | None]:
        ahead, self._standby = self._standby, None
        # Nothing that a cell left can stop or kill a process beside its namespaces.
        patience_s = HAND_OVER_S if self._room is None else FRESH_HAND_OVER_S
        if ahead is not None and ahead.hand_over(pending, patience_s):
            return ahead.pid, ahead.confined
        if self._room is None:
            return self._fork(pending), None
        fresh = self._fork_ahead(is_warm=False)
        if not fresh.hand_over(pending, FRESH_HAND_OVER_S):
            raise NoNamespaces("their first process did not answer")
        return fresh.pid, fresh.confined

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
        confined = self._room is not None
        run_child(request, pending.descriptors, self._kernel, self._hidden, confined=confined)

    def _prepare(self) -> None:
        if self._standby is None:
            try:
                self._standby = self._fork_ahead(is_warm=True)
            except (OSError, NoNamespaces):
                # The request that comes will be told why.
                return
        self._send(Prepared(prepared=self._standby.pid))

    def _fork_ahead(self, *, is_warm: bool) -> StandBy:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

        def become() -> NoReturn:
            ours.close()
            self._sock.close()
            self._stand_by(theirs, is_warm=is_warm)

        with theirs:
            if self._room is not None:
                confined = fork_confined(_fork_process, self._room, become)
                return StandBy(pid=confined.pid, channel=ours, confined=confined)
            pid = _fork_process()
            if pid == 0:
                become()
            return StandBy(pid=pid, channel=ours)

    def _stand_by(self, sock: socket.socket, *, is_warm: bool) -> NoReturn:
        try:
            if is_warm:
                warm_stand_by(self._kernel)
            pending = receive_request(sock)
            sock.send(TAKEN)
        except BaseException:  # noqa: BLE001  (no request came: nobody misses this process)
            os._exit(0)
        if pending is None:
            os._exit(0)
        self._run(pending)

    def _reap(self) -> None:
        with suppress(BlockingIOError):
            os.read(self._wake_read, 4096)
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if process.stopped_itself(pid, status):
                continue
            if self._standby is not None and pid == self._standby.pid:
                self._standby.close()
                self._standby = None
                continue
            if pid not in self._children:
                continue
            confined = self._children.pop(pid)
            if confined is not None:
                status = confined.final_status(status)
            self._send(Exited(exited=pid, status=status))

    @property
    def _has_work(self) -> bool:
        return self._quiet and bool(self._preload or self._rehearsals)

    def _preload_next(self) -> None:
        if self._preload:
            # Else pandas takes itself to be in a terminal: it looks for ``get_ipython``.
            with self._kernel.cell_shell.builtin_trap:
                preload_module(self._preload.pop(0))
        elif self._rehearsals:
            if not self._rehearse(self._rehearsals[0]):
                return
            self._rehearsals.pop(0)
            if self._rehearsals:
                # By little: the whole would take so long that a cell noticed.
                _freeze()
                return
        else:
            return
        _freeze()
        if self._standby is not None:
            # It lacks what was imported just now. It ends when nobody can reach it any more.
            self._standby.close()
            self._standby = None
            with suppress(OSError, NoNamespaces):
                self._standby = self._fork_ahead(is_warm=True)

    def _rehearse(self, rehearsal: Rehearsal) -> bool:
        try:
            if rehearsal.may_stop:
                return done_unless_wanted(rehearsal.run, self._sock)
            rehearsal.run()
        except Exception as error:  # noqa: BLE001  (questions are slow then, and cells are not)
            reason = f"{type(error).__name__}: {error}"
            logger.warning("a rehearsal failed", extra={"reason": reason})
        return True

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
    parser.add_argument("--tmp-bytes", type=int, default=0)
    parser.add_argument("--shared-memory-bytes", type=int, default=0)
    args = parser.parse_args(argv)
    gc.disable()
    _log_to_stderr()
    sock = socket.socket(fileno=args.fd)
    sock.set_inheritable(False)
    hidden = own_path_entry()
    # For the start of this process only: where our package and libpython are.
    os.environ.pop("PYTHONPATH", None)
    os.environ.pop("LD_LIBRARY_PATH", None)
    if "SOURCE_DATE_EPOCH" in os.environ:
        salt_svg()
    kernel = build_kernel(FrameChannel())
    warm_up(kernel)
    preload = [name for name in args.preload.split(",") if name]
    room = None
    if args.tmp_bytes:
        room = Room(tmp_bytes=args.tmp_bytes, shared_memory_bytes=args.shared_memory_bytes)
        # The first processes of namespaces become its children when their helpers have ended.
        # Where this is refused, so are the namespaces, which is what will be told.
        with suppress(OSError):
            linux.prctl(linux.PR_SET_CHILD_SUBREAPER, 1)
    Zygote(sock, kernel, preload, hidden, room).serve()
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
