"""The zygotes of a container: processes without secrets that fork a child per cell."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass

from lambda_kernel.contract import cell_protocol
from lambda_kernel.isolation import code, interpreter
from lambda_kernel.isolation.namespaces import Room
from lambda_kernel.serving.standing import Standing
from lambda_kernel.serving.sweep import Sweeper

logger = logging.getLogger(__name__)

CHANNEL_FD = 200
CODE_FD = 201
NO_HOME = "/nonexistent"
"""HOME of a zygote: it must not find a user site, and must not switch user sites off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZygoteLaunch:
    """How a zygote is started.

    Attributes:
        exec_only: it runs from an execute-only copy of the interpreter, made for it alone.
        code_fd: the sealed archive of our package.
        environment: its whole environment.
        preload: modules that it imports while it is idle.
        room: what each cell may store in namespaces of its own; None = it gets none.
        module: what runs.
    """

    exec_only: bool
    code_fd: int
    environment: Mapping[str, str]
    preload: tuple[str, ...] = ()
    room: Room | None = None
    module: str = "lambda_kernel.child.zygote"


@dataclass(frozen=True, slots=True, kw_only=True)
class Zygote:
    """A started zygote and the channel to it."""

    pid: int
    channel: socket.socket
    standing: Standing

    @classmethod
    def start(cls, launch: ZygoteLaunch, *, bare: bool) -> Zygote:
        """Start a zygote; it answers requests once it has imported ipykernel."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        arguments = ["-m", launch.module, "--fd", str(CHANNEL_FD)]
        arguments += ["--preload", "" if bare else ",".join(launch.preload)]
        if launch.room is not None:
            arguments += ["--tmp-bytes", str(launch.room.tmp_bytes)]
            arguments += ["--shared-memory-bytes", str(launch.room.shared_memory_bytes)]
        environment = {
            **launch.environment,
            "HOME": NO_HOME,
            "PYTHONPATH": code.import_path(CODE_FD),
        }
        passed = {CHANNEL_FD: theirs.fileno(), CODE_FD: launch.code_fd}
        copy = interpreter.copy_exec_only(sys.executable) if launch.exec_only else None
        try:
            pid = interpreter.spawn(copy, arguments, environment, passed)
        finally:
            theirs.close()
            if copy is not None:
                os.close(copy)
        logger.info("a zygote was started", extra={"pid": pid, "bare": bare})
        return cls(pid=pid, channel=ours, standing=Standing.of(pid))

    def wake(self) -> None:
        """Let it go on where a cell has stopped it."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """End the zygote; its children become orphans that the sweep kills."""
        self.channel.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)


class Zygotes:
    """At most two zygotes: one that has the optional modules, one *bare* without them.

    The bare one serves HOMEs that hold another version of what the first has already imported.
    """

    def __init__(self, launch: ZygoteLaunch, sweeper: Sweeper) -> None:
        self._launch = launch
        self._sweeper = sweeper
        self._started: dict[bool, Zygote] = {}

    def get(self, *, bare: bool) -> Zygote:
        """Return a zygote, started now where there is none."""
        found = self._started.get(bare)
        if found is None:
            found = self._started[bare] = Zygote.start(self._launch, bare=bare)
            self._sweeper.adopt(found.pid)
        return found

    def prepare(self) -> None:
        """Let a child stand by for the next request; it warms while S3 and STS are asked.

        It becomes the cell's process, or is a stranger to the next sweep: nothing is lost then.
        """
        with contextlib.suppress(OSError):
            cell_protocol.send_prepare(self.get(bare=False).channel)

    def verify(self) -> None:
        """After a sweep: wake what the cell stopped, replace what it changed."""
        for zygote in list(self._started.values()):
            try:
                os.kill(zygote.pid, signal.SIGCONT)
                changed = Standing.of(zygote.pid) != zygote.standing
            except OSError:
                changed = True
            if changed:
                logger.warning("a cell changed or ended a zygote", extra={"pid": zygote.pid})
                self.replace(zygote)

    def replace(self, zygote: Zygote) -> None:
        """End ``zygote``; the next ``get`` starts another."""
        for bare, found in list(self._started.items()):
            if found is zygote:
                del self._started[bare]
        self._sweeper.forget(zygote.pid)
        zygote.kill()

    def close(self) -> None:
        """End all of them."""
        for zygote in list(self._started.values()):
            self.replace(zygote)
