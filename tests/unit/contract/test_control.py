"""Control objects: who has not the key of the invocation reads nothing and orders nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambda_kernel.contract import control
from lambda_kernel.contract.control import BadControl
from lambda_kernel.contract.frames import invocation_key

REQUEST = "a" * 32
OTHER_REQUEST = "b" * 32
NONCE = "c" * 32
KEY = invocation_key(b"k" * 32, REQUEST, NONCE)
SECRET = {"value": "correct horse battery staple"}

values = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text())


@given(values, st.binary(min_size=32, max_size=32))
def test_what_was_sealed_comes_back_at_its_place(data: dict[str, Any], key: bytes) -> None:
    sealed = control.seal(key, REQUEST, "input-1", data)
    assert control.unseal(key, REQUEST, "input-1", sealed) == data


def test_a_control_object_shows_neither_text_nor_length_and_never_repeats() -> None:
    objects = [
        control.seal(KEY, REQUEST, "input-1", data)
        for data in (SECRET, SECRET, {"value": ""}, {"order": "kill"})
    ]
    assert len({len(sealed) for sealed in objects}) == 1
    assert len({sealed[1:17] for sealed in objects}) == len(objects)
    assert not any(b"horse" in sealed or b"value" in sealed for sealed in objects)


@pytest.mark.parametrize(
    ("key", "request_id", "name"),
    [
        (invocation_key(b"k" * 32, REQUEST, "d" * 32), REQUEST, "input-1"),
        (invocation_key(b"x" * 32, REQUEST, NONCE), REQUEST, "input-1"),
        (KEY, OTHER_REQUEST, "input-1"),
        (KEY, REQUEST, "input-2"),
        (KEY, REQUEST, "input-11"),
        (KEY, REQUEST, "interrupt"),
    ],
)
def test_an_object_of_another_key_request_or_place_is_refused(
    key: bytes, request_id: str, name: str
) -> None:
    sealed = control.seal(KEY, REQUEST, "input-1", SECRET)
    with pytest.raises(BadControl, match="not authentic"):
        control.unseal(key, request_id, name, sealed)


def test_every_changed_byte_and_every_cut_is_refused() -> None:
    sealed = control.seal(KEY, REQUEST, "interrupt", {"order": "interrupt"})
    changed = [sealed[:i] + bytes([sealed[i] ^ 1]) + sealed[i + 1 :] for i in range(len(sealed))]
    for forged in (*changed, *(sealed[:i] for i in range(len(sealed))), sealed + b"\0"):
        with pytest.raises(BadControl):
            control.unseal(KEY, REQUEST, "interrupt", forged)


@given(st.binary(max_size=400))
def test_noise_is_refused(noise: bytes) -> None:
    with pytest.raises(BadControl):
        control.unseal(KEY, REQUEST, "interrupt", noise)
