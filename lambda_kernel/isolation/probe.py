"""The capability probe: what isolation a container really has, measured by attacking it.

Every attack runs in a fork of its own: on AWS Lambda some calls end the process with SIGSYS, and
such an attack counts as refused.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

REFUSED = "refused"
_PTRACE_SEIZE = 0x4206
_SYS_PIDFD_OPEN = 434
_SYS_PIDFD_GETFD = 438
_SYS_KCMP = {"x86_64": 312, "aarch64": 272}
_KCMP_VM = 1
_CORE_PATTERN = "/proc/sys/kernel/core_pattern"
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
        refused: per attack, whether every target withstood it.
        reasons: per attack that was not refused, which targets it reached.
    """

    refused: dict[str, bool]
    reasons: dict[str, str]

    @property
    def non_dumpable(self) -> bool:
        """Whether every attack on every target was refused."""
        return bool(self.refused) and all(self.refused.values())


def attack_all(targets: Iterable[int]) -> ProbeResult:
    """Attack each process of ``targets`` in every way known and return what succeeded."""
    pids = tuple(targets)
    reasons = {}
    for name, attack in ATTACKS.items():
        found = [f"pid {pid}: {said}" for pid in pids if (said := _in_fork(attack, pid)) != REFUSED]
        if found or not pids:
            reasons[name] = "; ".join(found) or "there was nothing to attack"
    return ProbeResult(refused={name: name not in reasons for name in ATTACKS}, reasons=reasons)


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


def _read_descriptors(pid: int) -> None:
    # Root sees the numbers of a non-dumpable process, and no more.
    for number in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
        os.readlink(f"/proc/{pid}/fd/{number}")  # noqa: PTH115


def _read_tasks(pid: int) -> None:
    for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
        for name in ("environ", "maps", "mem"):
            try:
                os.close(os.open(f"/proc/{pid}/task/{thread}/{name}", os.O_RDONLY))
            except (PermissionError, FileNotFoundError):
                continue
            return
    raise PermissionError


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


def _kcmp(pid: int) -> None:
    number = _SYS_KCMP.get(platform.machine())
    if number is None:
        raise PermissionError
    _checked(_LIBC.syscall(number, os.getpid(), pid, _KCMP_VM, 0, 0))


def _core_dump(pid: int) -> None:
    # Without killing it: what would have to hold for a signal to leave a readable core.
    try:
        os.close(os.open(_CORE_PATTERN, os.O_WRONLY))
    except OSError:
        if resource.prlimit(pid, resource.RLIMIT_CORE) == (0, 0):
            # Nor may it be dumpable: a handler that core_pattern names gets cores of any size.
            _read_environ(pid)


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
    "fd": _read_descriptors,
    "task": _read_tasks,
    "ptrace": _ptrace,
    "process_vm_readv": _process_vm_readv,
    "pidfd_getfd": _pidfd_getfd,
    "kcmp": _kcmp,
    "core_dump": _core_dump,
}
