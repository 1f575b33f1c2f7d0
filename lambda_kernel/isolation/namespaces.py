"""A cell's own namespaces: what it sees of users, processes, files, IPC and network.

Needs no privilege: a new user namespace gives them, inside of it, and they are given up before
user code runs. In order: ``unshare_all`` (then fork: the child is the first process of the pid
namespace), ``furnish``, ``let_in``, and ``linux.drop_capabilities``.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from lambda_kernel.isolation import linux

NAMES = ("user", "pid", "mnt", "ipc", "net", "uts", "cgroup")
"""As in ``/proc/self/ns``."""

TMP = "/tmp"  # noqa: S108
SHARED_MEMORY = "/dev/shm"  # noqa: S108
MAX_FILES = 500_000
"""On each of the cell's own file systems: an inode costs about a kilobyte that nobody counts."""

_FLAGS = 0x10000000 | 0x20000000 | 0x00020000 | 0x08000000 | 0x40000000 | 0x04000000 | 0x02000000
_OWN = ("proc", "dev", "tmp")
_PLATFORMS = ("var", "run", "sys", "opt")
_OF_THE_MACHINE = ("keys", "key-users")
"""Under ``/proc``: keyrings have no namespace of their own, and these name the host user's keys."""

_OLD_ROOT = "/.old"
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1


class NoNamespaces(RuntimeError):
    """A cell's namespaces cannot be made here; the message says what was refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """How much a cell may put where nothing of it is kept.

    Attributes:
        tmp_bytes: in ``/tmp``, outside its working directory and HOME.
        shared_memory_bytes: in ``/dev/shm``.
    """

    tmp_bytes: int
    shared_memory_bytes: int


def unshare_all() -> None:
    """Make all namespaces; the next fork's child is the first process of the new pid namespace.

    Raises:
        OSError: the kernel or a policy refuses.
    """
    uid, gid = os.getuid(), os.getgid()
    linux.unshare(_FLAGS)
    # The maps of a non-dumpable process belong to root. No user code runs beside this one.
    linux.prctl(linux.PR_SET_DUMPABLE, 1)
    try:
        for name, text in (
            ("setgroups", "deny"),
            ("uid_map", f"{uid} {uid} 1"),
            ("gid_map", f"{gid} {gid} 1"),
        ):
            _write(f"/proc/self/{name}", text)
    finally:
        linux.prctl(linux.PR_SET_DUMPABLE, 0)


def furnish(room: Room) -> None:
    """As the first process of the pid namespace: make everything but the cell's own folders.

    The root is an allow-list on an empty file system: what of the container's root nobody can write
    to, read-only. The old root stays at hand for ``let_in``.

    Raises:
        OSError: a mount is refused.
    """
    linux.mount(None, "/", None, linux.MS_REC | linux.MS_PRIVATE)
    shown = [name for name in os.listdir("/") if _is_shown(name)]  # noqa: PTH208
    # A folder that stands in every container; pivot_root uncovers it again in the old root.
    root = TMP
    _temporary(root, 1024 * 1024, 0o755)
    for name in shown:
        _show(f"/{name}", f"{root}/{name}")
    for name in (*_OWN, _OLD_ROOT.strip("/")):
        os.mkdir(f"{root}/{name}", 0o755)  # noqa: PTH102
    _furnish_own(root, room)
    linux.pivot_root(root, root + _OLD_ROOT)
    os.chdir("/")
    # User code could make a user namespace of its own and have every capability in it.
    _write("/proc/sys/user/max_user_namespaces", "0")
    _raise_loopback()
    linux.join_new_keyring()


def let_in(folders: Iterable[str]) -> None:
    """Show the cell's own folders at their usual paths, then nothing else of the container.

    Raises:
        OSError: a mount is refused, or there is no such folder.
        ValueError: a folder does not lie in ``/tmp``.
    """
    for folder in folders:
        path = PurePosixPath(folder)
        if TMP not in map(str, path.parents) or ".." in path.parts:
            raise ValueError(f"{folder} does not lie in {TMP}")
        os.makedirs(folder, 0o700, exist_ok=True)  # noqa: PTH103
        linux.mount(_OLD_ROOT + folder, folder, None, linux.MS_BIND)
    linux.unmount(_OLD_ROOT)
    os.rmdir(_OLD_ROOT)  # noqa: PTH106
    read_only = linux.MS_RDONLY | linux.MS_NOSUID | linux.MS_NODEV
    linux.mount(None, "/", None, linux.MS_REMOUNT | linux.MS_BIND | read_only)


def identities() -> dict[str, str]:
    """Return which namespace of each kind this process is in."""
    return {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in NAMES}


def _show(source: str, target: str) -> None:
    path = Path(source)
    if path.is_symlink():
        Path(target).symlink_to(path.readlink())
    elif path.is_dir():
        os.mkdir(target, 0o755)  # noqa: PTH102
        linux.mount(source, target, None, linux.MS_BIND | linux.MS_REC)


def _furnish_own(root: str, room: Room) -> None:
    linux.mount("/dev", f"{root}/dev", None, linux.MS_BIND | linux.MS_REC)
    _temporary(root + SHARED_MEMORY, room.shared_memory_bytes, 0o1777)
    if Path(root, "dev/pts").is_dir():
        flags = linux.MS_NOSUID | linux.MS_NOEXEC
        options = "newinstance,ptmxmode=0666,mode=620"
        linux.mount("devpts", f"{root}/dev/pts", "devpts", flags, options)
    _temporary(f"{root}{TMP}", room.tmp_bytes, 0o1777)
    flags = linux.MS_NOSUID | linux.MS_NODEV | linux.MS_NOEXEC
    linux.mount("proc", f"{root}/proc", "proc", flags)
    for name in _OF_THE_MACHINE:
        linux.mount("/dev/null", f"{root}/proc/{name}", None, linux.MS_BIND)


def _temporary(target: str, size_bytes: int, mode: int) -> None:
    options = f"size={size_bytes},nr_inodes={MAX_FILES},mode={mode:o}"
    linux.mount("tmpfs", target, "tmpfs", linux.MS_NOSUID | linux.MS_NODEV, options)


def _raise_loopback() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", _IFF_UP)
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, request)


def _is_shown(name: str) -> bool:
    if name in _OWN or (name in _PLATFORMS and not sys.prefix.startswith(f"/{name}/")):
        return False
    return not os.access(f"/{name}", os.W_OK, effective_ids=True)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
