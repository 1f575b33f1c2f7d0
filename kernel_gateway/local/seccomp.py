"""Which system calls a container refuses: a classic BPF program for ``bwrap --seccomp`` (x86_64).

Namespaces hide files, processes and networks; what has no namespace, such as keyrings, and what
no cell needs but much of the kernel hides behind, is refused here.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from kernel_gateway.environments.environment import Environment

SURFACE_CALLS = {
    "syslog": 103,
    "acct": 163,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "iopl": 172,
    "ioperm": 173,
    "init_module": 175,
    "delete_module": 176,
    "quotactl": 179,
    "kexec_load": 246,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "perf_event_open": 298,
    "open_by_handle_at": 304,
    "finit_module": 313,
    "kexec_file_load": 320,
    "bpf": 321,
    "userfaultfd": 323,
    "io_uring_setup": 425,
}
"""Refused in every container. The keys of a user and session are the host's, shared by scopes."""

NAMESPACE_CALLS = {
    "pivot_root": 155,
    "chroot": 161,
    "mount": 165,
    "umount2": 166,
    "unshare": 272,
    "setns": 308,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "mount_setattr": 442,
}
"""Refused where cells get no namespaces of their own, and clone(2) with a flag for one."""

LAMBDA_CALLS = {"ptrace": 101, "prctl": 157, "seccomp": 317}
"""What AWS Lambda is reported to refuse besides. Source: isolation.md, "What Lambda allows"."""

_CLONE, _CLONE3 = 56, 435
_NAMESPACE_FLAGS = 0x7E020000
_ARCH_X86_64 = 0xC000003E
_X32_BIT = 0x40000000
_EPERM, _ENOSYS = 1, 38

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000


def filter_for(environment: Environment) -> bytes:
    """Return the filter of an environment's containers."""
    calls = dict(SURFACE_CALLS)
    own_namespaces = environment.tier == "namespaces"
    if not own_namespaces:
        calls |= NAMESPACE_CALLS
    if environment.lambda_strict:
        calls |= LAMBDA_CALLS
    return program(calls, refuse_namespaces=not own_namespaces)


def program(calls: Mapping[str, int], *, refuse_namespaces: bool) -> bytes:
    """Return a filter: other architectures end the process, the refused calls answer EPERM.

    Args:
        calls: what is refused, by name.
        refuse_namespaces: clone(2) with a flag for a new namespace is refused, and clone3, whose
            flags cannot be seen, answers ENOSYS; the C library then calls clone.
    """
    clone: list[bytes] = []
    if refuse_namespaces:
        clone = [
            _one(_EQUAL, _CLONE3, skip_else=1),
            _one(_RETURN, _ERRNO | _ENOSYS),
            _one(_EQUAL, _CLONE, skip_else=3),
            _one(_LOAD, _FIRST_ARGUMENT_AT),
            _one(_ANY_BIT, _NAMESPACE_FLAGS, skip_if=len(calls) + 2),
            _one(_RETURN, _ALLOW),
        ]
    # Jumps count the instructions that they skip; the last instruction refuses.
    return b"".join(
        [
            _one(_LOAD, _ARCH_AT),
            _one(_EQUAL, _ARCH_X86_64, skip_if=1),
            _one(_RETURN, _KILL),
            _one(_LOAD, _NUMBER_AT),
            _one(_AT_LEAST, _X32_BIT, skip_else=1),
            _one(_RETURN, _KILL),
            *clone,
            *(
                _one(_EQUAL, number, skip_if=len(calls) - position)
                for position, number in enumerate(calls.values())
            ),
            _one(_RETURN, _ALLOW),
            _one(_RETURN, _ERRNO | _EPERM),
        ]
    )


def _one(code: int, value: int, *, skip_if: int = 0, skip_else: int = 0) -> bytes:
    return struct.pack("=HBBI", code, skip_if, skip_else, value)
