"""The platform's first process in a container (standard library only; runs with ``-I -S``).

It stands for what AWS Lambda does before a function's runtime starts: drops to Lambda's user (where
the host's user is root; it uncovers ``/proc`` with root's last right before that), opens
the addresses that the runtime will call, hands these listening sockets to the host, and
becomes the runtime. Bind-mounted read-only; nothing of the host's environment reaches it.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
from pathlib import Path

USER_ID = 993
GROUP_ID = 990
PORTS = (9001, 9000, 9002)
"""Runtime API, S3, STS; in the order in which the host expects the sockets."""

BOOTSTRAP = "/var/runtime/bootstrap.py"
WORKING_DIRECTORY = "/opt"
BACKLOG = 128
MNT_DETACH = 2
CAPABILITY_VERSION_3 = 0x20080522


def main() -> None:
    """Prepare the container and become the bootstrap."""
    control_fd = int(sys.argv[1])
    os.closerange(3, control_fd)
    os.closerange(control_fd + 1, 1 << 16)
    drop_to_lambda_user()
    with socket.socket(fileno=control_fd) as control:
        environment = exchange(control)
    os.umask(0o022)
    os.chdir(WORKING_DIRECTORY)
    os.execve(sys.executable, [sys.executable, BOOTSTRAP], environment)  # noqa: S606


def drop_to_lambda_user() -> None:
    """Give up root for good, where the container was started by it."""
    if os.geteuid() == 0:
        uncover_proc()
        os.setgroups([])
        os.setresgid(GROUP_ID, GROUP_ID, GROUP_ID)
        os.setresuid(USER_ID, USER_ID, USER_ID)
        # All but the inheritable set is empty by now.
        header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0)
        ctypes.CDLL(None).capset(header, (ctypes.c_uint32 * 6)())
        try:
            os.setuid(0)
        except PermissionError:
            return
        raise SystemExit("root could not be given up")


def uncover_proc() -> None:
    """Take away what bubblewrap has put over parts of ``/proc`` for a root that may write there.

    Lambda's user may not, whose user namespaces could not have a ``/proc`` of their own otherwise.
    """
    libc = ctypes.CDLL(None)
    lines = Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()
    covers = [path for line in lines if (path := line.split()[1]).startswith("/proc/")]
    for path in reversed(covers):
        libc.umount2(path.encode(), MNT_DETACH)


def exchange(control: socket.socket) -> dict[str, str]:
    """Send the listening sockets to the host and return the function's environment."""
    listeners = [listen(port) for port in PORTS]
    line = json.dumps({"ports": PORTS}).encode() + b"\n"
    socket.send_fds(control, [line], [listener.fileno() for listener in listeners])
    for listener in listeners:
        listener.close()
    with control.makefile("rb") as lines:
        answer = lines.readline()
    if not answer:
        raise SystemExit("the host has gone")
    environment: dict[str, str] = json.loads(answer)["env"]
    return environment


def listen(port: int) -> socket.socket:
    """Return a listening socket on the container's own loopback."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(BACKLOG)
    return listener


if __name__ == "__main__":
    main()
