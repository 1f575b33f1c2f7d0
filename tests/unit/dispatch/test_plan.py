"""From request and facts to an invocation."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gateway.dispatch.failures import CellRefused
from kernel_gateway.dispatch.plan import CellFacts, limits_for, plan_cell
from lambda_kernel.contract.invocation import Head, Invocation
from lambda_kernel.contract.scope import Scope

FACTS = CellFacts(
    kernel_id="01234567-89ab-cdef-0123-456789abcdef",
    epoch=2,
    seq=7,
    head=Head(seq=5, digest="a" * 64),
    manifest="AAAA",
    scope=Scope(user="u1", agent="a1"),
    workspace="w",
    projects=("p",),
    run=None,
    write_prefix="users/u1/w/",
    workdir_name="0" * 32,
    execution_count=9,
    limits=limits_for(
        timeout_s=10, memory_bytes=1, output_bytes=1, snapshot_bytes=1, input_timeout_s=1
    ),
)
ANY_TEXT = st.text(st.characters(exclude_categories=()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner),
    max_leaves=8,
)


def planned(header: dict[str, Any], content: dict[str, Any]) -> Invocation:
    return plan_cell(header, content, FACTS, request_id="1" * 32, nonce="2" * 32)


def test_facts_and_request_are_all_there() -> None:
    invocation = planned(
        {"msg_id": "m", "msg_type": "execute_request", "secret": "x"},
        {"code": "1", "silent": False, "unknown": 1},
    )

    assert invocation.seq == 7
    assert invocation.parent_head == FACTS.head
    assert invocation.epoch == 2
    assert invocation.msg.header == {"msg_id": "m", "msg_type": "execute_request"}
    assert invocation.msg.content == {"code": "1", "silent": False}


@given(st.dictionaries(ANY_TEXT | st.just("session"), JSON), ANY_TEXT, JSON)
def test_an_invocation_survives_the_wire_or_is_refused(
    header: dict[str, Any], code: str, expressions: Any
) -> None:
    try:
        invocation = planned(header, {"code": code, "user_expressions": expressions})
    except CellRefused:
        return
    text = json.dumps(invocation.to_dict(), ensure_ascii=False)
    assert Invocation.from_dict(json.loads(text.encode())) == invocation
    assert invocation.msg.content["code"] == code


@pytest.mark.parametrize("code", ["\ud800", "ok \udfff", None, 3, b"x"])
def test_what_is_not_unicode_text_is_refused(code: Any) -> None:
    with pytest.raises(CellRefused) as refused:
        planned({}, {"code": code})
    assert refused.value.failure.ename == "InvalidCode"


@given(st.integers(1, 1800))
def test_the_commit_grace_fits_every_timeout(timeout_s: int) -> None:
    limits = limits_for(
        timeout_s=float(timeout_s),
        memory_bytes=1,
        output_bytes=1,
        snapshot_bytes=1,
        input_timeout_s=600,
    )
    assert 0 < limits.commit_grace_s <= 45
    assert limits.commit_grace_s == pytest.approx(min(45, timeout_s / 10))
    assert limits.commit_grace_s < timeout_s
