"""The filters of system calls, as the kernel would run them."""

from __future__ import annotations

import struct

import pytest

from kernel_gateway.environments.environment import Environment
from kernel_gateway.local.seccomp import (
    LAMBDA_CALLS,
    NAMESPACE_CALLS,
    SURFACE_CALLS,
    filter_for,
)

X86_64, I386 = 0xC000003E, 0x40000003
ALLOWED, KILLED, NOT_PERMITTED, UNKNOWN = 0x7FFF0000, 0x80000000, 0x50001, 0x50026


NAMESPACES = filter_for(Environment(tier="namespaces"))
PROCESS = filter_for(Environment(tier="process"))
STRICT = filter_for(Environment(tier="process", lambda_strict=True))


def answer(program: bytes, number: int, *, architecture: int = X86_64, first: int = 0) -> int:
    """Run a filter on one call, with the few instructions that it uses."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, first, 0, 0, 0, 0, 0)
    instructions = list(struct.iter_unpack("=HBBI", program))
    at, accumulator = 0, 0
    while True:
        code, if_true, if_false, value = instructions[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif code == 0x06:
            return int(value)
        else:
            holds = {
                0x15: accumulator == value,
                0x35: accumulator >= value,
                0x45: bool(accumulator & value),
            }[code]
            at += if_true if holds else if_false


@pytest.mark.parametrize("program", [NAMESPACES, PROCESS, STRICT])
def test_what_no_cell_needs_is_refused_everywhere(program: bytes) -> None:
    assert {answer(program, number) for number in SURFACE_CALLS.values()} == {NOT_PERMITTED}
    for number in (0, 1, 59, 57, 231, 319, 437):
        assert answer(program, number) == ALLOWED


def test_namespaces_can_be_made_where_cells_get_their_own_only() -> None:
    for number in NAMESPACE_CALLS.values():
        assert answer(NAMESPACES, number) == ALLOWED
        assert answer(PROCESS, number) == NOT_PERMITTED
        assert answer(STRICT, number) == NOT_PERMITTED


def test_lambda_strict_refuses_what_lambda_refuses() -> None:
    for number in LAMBDA_CALLS.values():
        assert answer(PROCESS, number) == ALLOWED
        assert answer(STRICT, number) == NOT_PERMITTED


def test_a_clone_may_make_processes_and_threads_but_no_namespace() -> None:
    assert answer(PROCESS, 56, first=17) == ALLOWED
    assert answer(PROCESS, 56, first=0x3D0F00) == ALLOWED
    for bit in (17, 25, 26, 27, 28, 29, 30):
        assert answer(PROCESS, 56, first=1 << bit | 17) == NOT_PERMITTED
        assert answer(NAMESPACES, 56, first=1 << bit | 17) == ALLOWED
    assert answer(PROCESS, 435) == UNKNOWN
    assert answer(NAMESPACES, 435) == ALLOWED


@pytest.mark.parametrize("program", [NAMESPACES, PROCESS, STRICT])
def test_other_architectures_end_the_process(program: bytes) -> None:
    assert answer(program, 1, architecture=I386) == KILLED
    assert answer(program, 0x40000000 + 1) == KILLED
