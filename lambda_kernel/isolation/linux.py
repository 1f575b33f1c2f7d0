"""System calls that Python 3.11 has no function for; each raises OSError naming itself."""

from __future__ import annotations

import ctypes
import os
import platform
from pathlib import Path
from typing import Any

_LIBC = ctypes.CDLL(None, use_errno=True)

PR_SET_DUMPABLE = 4
PR_CAPBSET_DROP = 24
PR_SET_CHILD_SUBREAPER = 36
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT = 47
PR_CAP_AMBIENT_CLEAR_ALL = 4

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_BIND = 4096
MS_REC = 16384
MS_PRIVATE = 1 << 18
MNT_DETACH = 2

_CAPABILITY_VERSION_3 = 0x20080522
_CAPABILITIES_AT_MOST = 64
_SYS_KEYCTL = {"x86_64": 250, "aarch64": 219}
_KEYCTL_JOIN_SESSION_KEYRING = 1


def unshare(flags: int) -> None:
    """Move this process (for pids: its children) into new namespaces."""
    _call("unshare", flags)


def prctl(option: int, first: int = 0, second: int = 0) -> None:
    """Change an attribute of this process."""
    zero = ctypes.c_ulong(0)
    _call("prctl", option, ctypes.c_ulong(first), ctypes.c_ulong(second), zero, zero)


def mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str | None = None
) -> None:
    """Mount, bind or change a mount."""
    texts = [None if text is None else os.fsencode(text) for text in (source, target, kind)]
    data = None if options is None else options.encode()
    _call("mount", *texts, ctypes.c_ulong(flags), data, about=target)


def unmount(target: str) -> None:
    """Take a mount away, also while it is in use."""
    _call("umount2", os.fsencode(target), MNT_DETACH, about=target)


def pivot_root(new_root: str, put_old: str) -> None:
    """Make ``new_root`` this mount namespace's root; the old one then stands at ``put_old``."""
    _call("pivot_root", os.fsencode(new_root), os.fsencode(put_old))


def drop_capabilities() -> None:
    """Give up every capability for good, this process's and those an exec could bring."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
    for capability in range(_CAPABILITIES_AT_MOST):
        try:
            prctl(PR_CAPBSET_DROP, capability)
        except OSError:
            # One that this kernel does not know: there is none after it.
            break
    prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    _call("capset", header, (ctypes.c_uint32 * 6)())


def has_capabilities() -> bool:
    """Return whether this process may do anything that its user may not."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return any(line.startswith("CapPrm") and int(line.split()[1], 16) for line in lines)


def join_new_keyring() -> None:
    """Leave the session keyring that was inherited, where this kernel has keyrings."""
    number = _SYS_KEYCTL.get(platform.machine())
    if number is not None:
        _LIBC.syscall(number, _KEYCTL_JOIN_SESSION_KEYRING, None)


def _call(name: str, *arguments: Any, about: str = "") -> None:
    if getattr(_LIBC, name)(*arguments) < 0:
        number = ctypes.get_errno()
        what = f"{name} {about}" if about else name
        raise OSError(number, f"{what}: {os.strerror(number)}")
