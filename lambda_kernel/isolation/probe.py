"""The capability probe: what isolation a container really has, measured by attacking it.

Every attack runs in a fork of its own: on AWS Lambda some calls end the process with SIGSYS, and
such an attack counts as refused.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

REFUSED = "refused"
_PTRACE_SEIZE = 0x4206
_SYS_PIDFD_OPEN = 434
_SYS_PIDFD_GETFD = 438
_WORD_BYTES = 16
_EXIT_REFUSED, _EXIT_SUCCEEDED, _EXIT_UNCLEAR = 0, 1, 2
_REFUSALS = (errno.EPERM, errno.EACCES, errno.ENOSYS)

_LIBC = ctypes.CDLL(None, use_errno=True)
_TARGET = b"what an attacker would like to read"

Attack = Callable[[int], None]
"""Attacks a process; returns where it succeeded, raises PermissionError where it was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """What the attacks achieved.

    Attributes:
        non_dumpable: every attack on every target was refused.
        details: one entry per attack: ``refused`` or what succeeded.
    """

    non_dumpable: bool
    details: dict[str, str]


def attack_all(targets: Iterable[int]) -> ProbeResult:
    """Attack each process of ``targets`` in every way known and return what succeeded."""
    pids = tuple(targets)
    details = {}
    for name, attack in ATTACKS.items():
        found = [f"pid {pid}: {said}" for pid in pids if (said := _in_fork(attack, pid)) != REFUSED]
        details[name] = "; ".join(found) or REFUSED
    return ProbeResult(
        non_dumpable=bool(pids) and all(said == REFUSED for said in details.values()),
        details=details,
    )


def visible_processes() -> tuple[int, ...]:
    """Return the pids in ``/proc`` that run under this user id."""
    own = os.geteuid()
    pids = (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdecimal())
    return tuple(sorted(pid for pid in pids if _runs_as(pid, own)))


def _runs_as(pid: int, uid: int) -> bool:
    # The owner of /proc/<pid> is root for a non-dumpable process; its status tells the truth.
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    return any(line.startswith("Uid:") and int(line.split()[1]) == uid for line in lines)


def _in_fork(attack: Attack, target: int) -> str:
    pid = os.fork()
    if pid == 0:
        os._exit(_attempt(attack, target))
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    if code < 0 or code == _EXIT_REFUSED:
        return REFUSED
    return "succeeded" if code == _EXIT_SUCCEEDED else "unclear"


def _attempt(attack: Attack, target: int) -> int:
    try:
        os.setsid()
        attack(target)
    except (PermissionError, ProcessLookupError, FileNotFoundError):
        # In namespaces of one's own most others do not even exist.
        return _EXIT_REFUSED
    except OSError as error:
        return _EXIT_REFUSED if error.errno in _REFUSALS else _EXIT_UNCLEAR
    except BaseException:  # noqa: BLE001  (a fork must never return into its parent's code)
        return _EXIT_UNCLEAR
    return _EXIT_SUCCEEDED


def _read_environ(pid: int) -> None:
    _read(f"/proc/{pid}/environ")


def _read_maps(pid: int) -> None:
    _read(f"/proc/{pid}/maps")


def _open_mem(pid: int) -> None:
    os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY))


def _list_descriptors(pid: int) -> None:
    os.scandir(f"/proc/{pid}/fd").close()


def _read_task_environ(pid: int) -> None:
    _read(f"/proc/{pid}/task/{pid}/environ")


def _ptrace(pid: int) -> None:
    _LIBC.ptrace.restype = ctypes.c_long
    _checked(_LIBC.ptrace(ctypes.c_long(_PTRACE_SEIZE), ctypes.c_long(pid), None, None))


def _process_vm_readv(pid: int) -> None:
    # A fork has the addresses of its parent: this object lies at the same place there. In another
    # process the address may be unmapped (EFAULT), which is no refusal.
    buffer = ctypes.create_string_buffer(_WORD_BYTES)
    local = (ctypes.c_void_p * 2)(ctypes.addressof(buffer), _WORD_BYTES)
    remote = (ctypes.c_void_p * 2)(id(_TARGET), _WORD_BYTES)
    one = ctypes.c_ulong(1)
    try:
        _checked(_LIBC.process_vm_readv(pid, local, one, remote, one, ctypes.c_ulong(0)))
    except OSError as error:
        if error.errno != errno.EFAULT:
            raise


def _pidfd_getfd(pid: int) -> None:
    pidfd = _LIBC.syscall(_SYS_PIDFD_OPEN, pid, 0)
    _checked(pidfd)
    _checked(_LIBC.syscall(_SYS_PIDFD_GETFD, pidfd, 0, 0))


def _read(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    os.read(descriptor, 1)
    os.close(descriptor)


def _checked(result: int) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


ATTACKS: dict[str, Attack] = {
    "environ": _read_environ,
    "maps": _read_maps,
    "mem": _open_mem,
    "fd": _list_descriptors,
    "task": _read_task_environ,
    "ptrace": _ptrace,
    "process_vm_readv": _process_vm_readv,
    "pidfd_getfd": _pidfd_getfd,
}
