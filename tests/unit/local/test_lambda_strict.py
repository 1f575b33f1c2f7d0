"""The filter of system calls, as the kernel would run it."""

from __future__ import annotations

import struct

import pytest

from kernel_gateway.local.lambda_strict import REFUSED_CALLS, program

X86_64, I386 = 0xC000003E, 0x40000003
ALLOWED, KILLED, NOT_PERMITTED, UNKNOWN = 0x7FFF0000, 0x80000000, 0x50001, 0x50026


def answer(number: int, *, architecture: int = X86_64, first: int = 0) -> int:
    """Run the program on one call, with the few instructions that it uses."""
    data = struct.pack("=IIQ6Q", number, architecture, 0, first, 0, 0, 0, 0, 0)
    instructions = list(struct.iter_unpack("=HBBI", program()))
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


@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_what_lambda_refuses_is_not_permitted(name: str) -> None:
    assert answer(REFUSED_CALLS[name]) == NOT_PERMITTED


@pytest.mark.parametrize("number", [0, 1, 59, 57, 231, 319, 437])
def test_other_calls_are_allowed(number: int) -> None:
    assert answer(number) == ALLOWED


def test_a_clone_may_make_processes_and_threads_but_no_namespace() -> None:
    assert answer(56, first=17) == ALLOWED
    assert answer(56, first=0x3D0F00) == ALLOWED
    for flag in (0x00020000, 0x02000000, 0x04000000, 0x08000000):
        assert answer(56, first=flag | 17) == NOT_PERMITTED
    for flag in (0x10000000, 0x20000000, 0x40000000):
        assert answer(56, first=flag | 17) == NOT_PERMITTED
    assert answer(435) == UNKNOWN


def test_other_architectures_end_the_process() -> None:
    assert answer(1, architecture=I386) == KILLED
    assert answer(0x40000000 + 1) == KILLED
