import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambda_kernel.contract.invocation import CellMessage, Head, Invocation, Limits
from lambda_kernel.contract.outcome import FileChange, LostName, Outcome, Probe, Status
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.scope import Scope

KERNEL_ID = "01234567-89ab-cdef-0123-456789abcdef"


def an_invocation(**changes: Any) -> Invocation:
    values: dict[str, Any] = {
        "request_id": "a" * 32,
        "kernel_id": KERNEL_ID,
        "seq": 4,
        "parent_head": Head(seq=3, digest="d" * 64),
        "scope": Scope(user="u1", agent="a1"),
        "projects": ("data", "models/first"),
        "workdir_name": "b" * 32,
        "msg": CellMessage(header={"msg_id": "m"}, content={"code": "1+1"}),
        "execution_count": 4,
        "write_prefix": "users/u1/default/",
        "nonce": "c" * 32,
    }
    return Invocation(**(values | changes))


def test_an_invocation_survives_the_wire() -> None:
    invocation = an_invocation()
    assert Invocation.from_dict(invocation.to_dict()) == invocation


def test_an_outcome_survives_the_wire() -> None:
    outcome = Outcome(
        status=Status.ERROR,
        started=True,
        committed=True,
        head=Head(seq=4, digest="e" * 64),
        files=(FileChange(path="x", change="deleted", key="users/u1/default/x"),),
        lost=(LostName(name="g", type="generator", why="it is running"),),
        probe=Probe(
            tier="process", clean_environment=True, non_dumpable=True, memory_limit="sampled"
        ),
        timings_ms={"run": 1.5},
        nonce="c" * 32,
    )
    assert Outcome.from_dict(outcome.to_dict()) == outcome


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"schema": 99}, "invocation.schema"),
        ({"schema": "1"}, "invocation.schema"),
        ({"unheard_of": 1}, "invocation.unheard_of"),
        ({"seq": True}, "invocation.seq"),
        ({"seq": -1}, "invocation.seq"),
        ({"kind": "drop"}, "invocation.kind"),
        ({"request_id": "A" * 32}, "invocation.request_id"),
        ({"kernel_id": "../" + KERNEL_ID[3:]}, "invocation.kernel_id"),
        ({"workspace": ".hidden"}, "invocation.workspace"),
        ({"workspace": ".."}, "invocation.workspace"),
        ({"projects": "data"}, "invocation.projects"),
        ({"projects": ["ok", "../other"]}, "invocation.projects[1]"),
        ({"projects": ["a/.git"]}, "invocation.projects[0]"),
        ({"run": "a/b"}, "invocation.run"),
        ({"limits": {"timeout_s": 0}}, "invocation.limits.timeout_s"),
        ({"limits": {"timeout_s": 10, "commit_grace_s": 10}}, "invocation.limits.commit_grace_s"),
        ({"limits": {"timeout": 3}}, "invocation.limits.timeout"),
        ({"scope": {"user": "u1*"}}, "scope.user"),
        ({"scope": {"agent": "a1"}}, "invocation.scope.user"),
        ({"parent_head": {"seq": 4, "digest": "d"}}, "invocation.parent_head.seq"),
        ({"write_prefix": "users/u10/default/"}, "invocation.write_prefix"),
        ({"seeds": {"numpy": "1"}}, "invocation.seeds.numpy"),
    ],
)
def test_a_bad_invocation_names_its_field(change: dict[str, Any], path: str) -> None:
    with pytest.raises(InvalidField) as raised:
        Invocation.from_dict(an_invocation().to_dict() | change)
    assert raised.value.path == path


def test_a_missing_field_is_named() -> None:
    data = an_invocation().to_dict()
    del data["nonce"]
    with pytest.raises(InvalidField, match=r"invocation\.nonce: is missing"):
        Invocation.from_dict(data)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=5))
def test_anything_else_is_refused_and_never_crashes(data: object) -> None:
    with pytest.raises(InvalidField):
        Invocation.from_dict(data)


@given(
    st.sampled_from([f.name for f in dataclasses.fields(Invocation)]),
    st.none() | st.text() | st.integers() | st.floats() | st.lists(st.integers()),
)
def test_a_field_of_any_value_is_taken_or_refused_by_name(name: str, value: object) -> None:
    data = an_invocation().to_dict() | {name: value}
    try:
        Invocation.from_dict(data)
    except InvalidField as problem:
        assert name in problem.path or problem.path.startswith("scope")  # noqa: PT017


def test_a_role_session_name_fits_into_sts() -> None:
    name = an_invocation(seq=10**9).role_session_name
    assert 2 <= len(name) <= 64
    assert all(c.isalnum() or c in "+=,.@-_" for c in name)


def test_limits_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidField):
        Limits(timeout_s=3, commit_grace_s=5)
