"""What a forked child changes about itself before any of the user's code runs."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import site
import sys
from contextlib import suppress
from pathlib import Path

from lambda_kernel.contract.cell_protocol import CellDescriptors, CellLimits, CellRequest

_libc = ctypes.CDLL(None)

FIRST_OWN_DESCRIPTOR = 900
"""Code that closes or counts low descriptors does not meet ours."""


def take_descriptors(descriptors: CellDescriptors) -> CellDescriptors:
    """Make the cell's pipes 0, 1 and 2, close everything else; returns our own, moved up."""
    null = os.open(os.devnull, os.O_RDONLY)
    highest = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    target = max(16, min(FIRST_OWN_DESCRIPTOR, highest - 16))
    moved = []
    for offset, descriptor in enumerate(
        (descriptors.frames, descriptors.snapshot_in, descriptors.snapshot_out, descriptors.pager)
    ):
        os.dup2(descriptor, target + offset, inheritable=False)
        moved.append(target + offset)
    # Above the standard three first: one of the pipes may stand below them.
    pipes = [os.dup(fd) for fd in (null, descriptors.stdout, descriptors.stderr)]
    for descriptor, pipe in enumerate(pipes):
        os.dup2(pipe, descriptor, inheritable=True)
    os.closerange(3, target)
    os.closerange(target + len(moved), max(highest, target + len(moved)))
    frames, snapshot_in, snapshot_out, pager = moved
    return CellDescriptors(
        frames=frames,
        stdout=1,
        stderr=2,
        snapshot_in=snapshot_in,
        snapshot_out=snapshot_out,
        pager=pager,
    )


def close_all_but(descriptor: int) -> None:
    """Close every descriptor of this process except one."""
    highest = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.closerange(0, descriptor)
    os.closerange(descriptor + 1, max(highest, descriptor + 1))


def reset_signals() -> None:
    """Give every signal the disposition of a fresh Python process."""
    signal.set_wakeup_fd(-1)
    # An interrupt means the user's code: it is held back until that begins.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    fresh = (signal.SIGCHLD, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
    for number in (*fresh, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


_BASH = "/bin/bash"


class Interrupts:
    """Interrupts of this process: held back, let in while the user's code runs, then ignored."""

    def __init__(self) -> None:
        self._is_held = False

    def hold(self) -> None:
        """Keep one that comes for later."""
        signal.signal(signal.SIGINT, self._note)

    def let_in(self) -> None:
        """Let them interrupt what runs (raises KeyboardInterrupt where one was held)."""
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._is_held:
            raise KeyboardInterrupt

    @staticmethod
    def ignore() -> None:
        """Let nothing be interrupted any more."""
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _note(self, number: int, frame: object) -> None:
        self._is_held = True


def stopped_itself(pid: int, status: int) -> bool:
    """Kill a child that asked to be traced (PTRACE_TRACEME); False where it has ended.

    Nobody traces it: it would stop for ever at its next signal, with a wait status that is no end.
    """
    if not os.WIFSTOPPED(status):
        return False
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    return True


def limit(limits: CellLimits) -> None:
    """Set the resource limits; none is ever raised above the process's own hard limit."""
    _set_limit(resource.RLIMIT_CORE, 0, hard=True)
    # Descriptors under way in sockets count for all of a user's processes, whatever their
    # container: at their own limit others could not pass one any more, the serving process's
    # requests to its zygote included. So a cell's limit is below theirs, and stays there.
    _set_limit(resource.RLIMIT_NOFILE, limits.open_files, hard=True)
    _set_limit(resource.RLIMIT_NPROC, limits.processes, hard=True)


def set_environment(request: CellRequest) -> None:
    """Set the environment that the request asks for, with its HOME."""
    os.environ.update(request.environment)
    local_bin = os.path.join(request.home, ".local", "bin")
    # `!pip` and `!python3` are this interpreter's, whatever else the image holds.
    own_bin = str(Path(sys.executable).parent)
    path = [local_bin, own_bin, os.environ.get("PATH", os.defpath)]
    os.environ["PATH"] = os.pathsep.join(path)
    os.environ["HOME"] = request.home
    os.environ["PWD"] = request.workdir
    if os.access(_BASH, os.X_OK):
        # What ``!command`` is run by, as where people log in.
        os.environ.setdefault("SHELL", _BASH)


def add_user_site(hidden: str | None) -> None:
    """Do for this HOME what ``site`` does at start: user site, ``.pth`` files, usercustomize.

    Args:
        hidden: a folder that user code does not see on ``sys.path``: that of our own package.
    """
    sys.path[:] = ["", *(entry for entry in sys.path if entry not in ("", hidden))]
    if sys.flags.no_user_site:
        return
    site.USER_BASE = site.USER_SITE = None
    site.ENABLE_USER_SITE = True
    known = {site.makepath(entry)[1] for entry in sys.path if entry}
    count = len(sys.path)
    try:
        if not Path(site.getusersitepackages()).is_dir():
            return
        site.addusersitepackages(known)
        # The user's packages come before those of the image, as in any Python.
        added = sys.path[count:]
        del sys.path[count:]
        position = _first_site_position()
        sys.path[position:position] = added
        site.execusercustomize()
    except BaseException as error:  # noqa: BLE001  (.pth files and usercustomize are user code)
        sys.stderr.write(
            f"[site] {type(error).__name__} while {site.USER_SITE} was set up: {error}\n"
        )


def flush_descriptors() -> None:
    """Write out what libraries and ``sys.__stdout__`` still hold for descriptors 1 and 2."""
    for stream in (sys.__stdout__, sys.__stderr__):
        with suppress(OSError, ValueError):
            if stream is not None:
                stream.flush()
    _libc.fflush(None)


def enter(workdir: str) -> None:
    """Make ``workdir`` the current directory; imports see it first."""
    os.chdir(workdir)
    sys.path_importer_cache.pop(workdir, None)


def _first_site_position() -> int:
    folders = set(site.getsitepackages())
    for position, entry in enumerate(sys.path):
        if entry in folders or Path(entry).name in ("site-packages", "dist-packages"):
            return position
    return len(sys.path)


def _set_limit(which: int, value: int, *, hard: bool) -> None:
    _, maximum = resource.getrlimit(which)
    if maximum != resource.RLIM_INFINITY:
        value = min(value, maximum)
    with suppress(OSError, ValueError):
        resource.setrlimit(which, (value, value if hard else maximum))
