"""A seccomp filter that refuses what AWS Lambda is reported to refuse, to test against.

A classic BPF program as seccomp(2) takes it, for ``bwrap --seccomp``; x86_64, as the local default.
"""

from __future__ import annotations

import struct

REFUSED_CALLS = {
    "ptrace": 101,
    "pivot_root": 155,
    "prctl": 157,
    "chroot": 161,
    "mount": 165,
    "umount2": 166,
    "unshare": 272,
    "setns": 308,
    "seccomp": 317,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "mount_setattr": 442,
}
"""Numbers of the calls that answer EPERM. Source: isolation.md, "What Lambda allows"."""

_CLONE, _CLONE3 = 56, 435
_NAMESPACE_FLAGS = 0x7E020000
_ARCH_X86_64 = 0xC000003E
_X32_BIT = 0x40000000
_EPERM, _ENOSYS = 1, 38

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER_AT, _ARCH_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000


def program() -> bytes:
    """Return the filter: other architectures end the process, the refused calls answer EPERM.

    clone3 answers ENOSYS, since its flags cannot be seen; the C library then calls clone, which
    is refused with a flag for a new namespace.
    """
    calls = list(REFUSED_CALLS.values())
    # Jumps count the instructions that they skip; the last one refuses.
    body = [
        _one(_LOAD, _ARCH_AT),
        _one(_EQUAL, _ARCH_X86_64, skip_if=1),
        _one(_RETURN, _KILL),
        _one(_LOAD, _NUMBER_AT),
        _one(_AT_LEAST, _X32_BIT, skip_else=1),
        _one(_RETURN, _KILL),
        _one(_EQUAL, _CLONE3, skip_else=1),
        _one(_RETURN, _ERRNO | _ENOSYS),
    ]
    for position, number in enumerate(calls):
        left = len(calls) - position - 1
        body.append(_one(_EQUAL, number, skip_if=left + 4))
    body += [
        _one(_EQUAL, _CLONE, skip_else=2),
        _one(_LOAD, _FIRST_ARGUMENT_AT),
        _one(_ANY_BIT, _NAMESPACE_FLAGS, skip_if=1),
        _one(_RETURN, _ALLOW),
        _one(_RETURN, _ERRNO | _EPERM),
    ]
    return b"".join(body)


def _one(code: int, value: int, *, skip_if: int = 0, skip_else: int = 0) -> bytes:
    return struct.pack("=HBBI", code, skip_if, skip_else, value)
