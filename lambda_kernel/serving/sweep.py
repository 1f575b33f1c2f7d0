"""After a cell: no process and no file of it is left, and nobody can come back.

Works without prctl, cgroups or privileges: strangers are stopped until no new one appears, killed,
and the container counts as clean only if nobody forked while it was looked at.
"""

from __future__ import annotations

import logging
import os
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from lambda_kernel.serving import ipc, trees

logger = logging.getLogger(__name__)

GIVE_UP_S = 2.0
PLACES = ("/tmp", "/dev/shm", "/dev/mqueue", "/var/tmp", "/run", "/run/lock", "/opt", "/dev", "/")  # noqa: S108
"""Where a process of ours could write, if the container let it."""


class NotAlone(RuntimeError):
    """This process is not the first of a container of its own: sweeping would kill strangers."""


class Sweeper:
    """Knows what belongs to the serving process; everything else is a stranger.

    Attributes:
        places: writable folders, each with the names in it that stay.

    Args:
        own: pids that stay.
        places: see there.
        visible: lists the pids that may be strangers; None = every process there is, which is
            right only in a container of its own.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        own: Iterable[int],
        places: dict[str, set[str]],
        visible: Callable[[], list[int]] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._own = set(own)
        self.places = places
        self._alone = visible is None
        self._visible = visible or _pids
        self._clock = clock

    @classmethod
    def create(cls, *, lambda_machine: bool, emptied: Iterable[str] = ()) -> Sweeper:
        """Return a sweeper that keeps what is there now.

        Args:
            lambda_machine: this is a Lambda micro-VM, where this process need not be pid 1.
            emptied: folders of which nothing is kept.

        Raises:
            NotAlone: neither that nor pid 1.
        """
        if os.getpid() != 1 and not lambda_machine:
            raise NotAlone("the serving process must be pid 1 of its container")
        places = {
            place: {entry.name for entry in os.scandir(place)}
            for place in PLACES
            if os.access(place, os.W_OK | os.X_OK) and not os.path.islink(place)  # noqa: PTH114
        }
        for place in emptied:
            if os.access(place, os.W_OK | os.X_OK):
                places[place] = set()
        return cls(_pids(), places)

    def adopt(self, pid: int) -> None:
        """Count ``pid`` (a zygote) among our own."""
        self._own.add(pid)

    def forget(self, pid: int) -> None:
        """No longer count ``pid`` among our own."""
        self._own.discard(pid)

    def strangers(self) -> list[int]:
        """Return the pids of living processes that are not ours."""
        return [
            pid
            for pid in self._visible()
            if pid not in self._own and _state(pid) not in {"Z", "X", ""}
        ]

    def sweep_processes(self) -> bool:
        """Kill every stranger; False where some are left or new ones keep coming."""
        give_up = self._clock() + GIVE_UP_S
        while True:
            before = self._last_pid()
            found = self._stop_all()
            for pid in found:
                _signal(pid, signal.SIGKILL)
            self._reap()
            if not found and not self.strangers() and self._last_pid() == before:
                return True
            if self._clock() > give_up:
                logger.error("the sweep gave up", extra={"count": len(self.strangers())})
                return False

    def sweep_files(self, keep: Iterable[str] = ()) -> bool:
        """Remove everything in the writable places that is not ours.

        Args:
            keep: absolute paths that stay, such as the current HOME.

        Returns:
            False where something could not be removed.
        """
        kept = set(keep)
        clean = ipc.remove_all() if self._alone else True
        for place, own in self.places.items():
            try:
                found = os.listdir(place)  # noqa: PTH208
            except OSError:
                clean = False
                continue
            for name in found:
                path = os.path.join(place, name)
                if name not in own and path not in kept:
                    clean = _removed(path) and clean
        return clean

    def _last_pid(self) -> int:
        # An empty scan alone misses a process that forks on while it is looked for.
        if not self._alone:
            return 0
        return int(Path("/proc/loadavg").read_text().rsplit(None, 1)[1])

    def _stop_all(self) -> set[int]:
        stopped: set[int] = set()
        while True:
            fresh = set(self.strangers()) - stopped
            if not fresh:
                return stopped
            for pid in fresh:
                _signal(pid, signal.SIGSTOP)
            stopped |= fresh

    def _reap(self) -> None:
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return


def is_alive(pid: int) -> bool:
    """Return whether ``pid`` runs; a zombie does not."""
    return _state(pid) not in {"Z", "X", ""}


def _removed(path: str) -> bool:
    try:
        trees.remove(path)
    except OSError as error:
        logger.warning("a file that a cell left cannot be removed", extra={"errno": error.errno})
        return False
    return True


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208


def _state(pid: int) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]


def _signal(pid: int, number: signal.Signals) -> None:
    try:
        os.kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return
