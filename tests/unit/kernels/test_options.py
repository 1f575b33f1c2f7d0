"""What a client may choose, and who may do what."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gateway.errors import BadRequest
from kernel_gateway.kernels.identity import Identity, may_execute, may_see, may_shut_down
from kernel_gateway.kernels.options import ENV_NAMES, KernelOptions

KERNEL_ID = "01234567-89ab-cdef-0123-456789abcdef"


def test_options_come_from_the_environment_and_other_names_are_returned() -> None:
    options, ignored = KernelOptions.from_env(
        {
            "LAMBDA_KERNEL_WORKSPACE": "w1",
            "LAMBDA_KERNEL_PROJECTS": "a, b/c,a",
            "LAMBDA_KERNEL_RUN": "r1",
            "LAMBDA_KERNEL_SCOPE": "execution",
            "PATH": "/bin",
            "KERNEL_USERNAME": "root",
        }
    )

    assert options == KernelOptions(
        workspace="w1", projects=("a", "b/c"), run="r1", scope="execution"
    )
    assert ignored == ("KERNEL_USERNAME", "PATH")


def test_nothing_and_empty_values_mean_the_defaults() -> None:
    assert KernelOptions.from_env({}) == (KernelOptions(), ())
    assert KernelOptions.from_env(dict.fromkeys(ENV_NAMES, "")) == (KernelOptions(), ())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("LAMBDA_KERNEL_WORKSPACE", ".."),
        ("LAMBDA_KERNEL_WORKSPACE", "../u2"),
        ("LAMBDA_KERNEL_WORKSPACE", ".replays"),
        ("LAMBDA_KERNEL_WORKSPACE", "a/b"),
        ("LAMBDA_KERNEL_WORKSPACE", "a*"),
        ("LAMBDA_KERNEL_WORKSPACE", 7),
        ("LAMBDA_KERNEL_WORKSPACE", ["w"]),
        ("LAMBDA_KERNEL_WORKSPACE", False),
        ("LAMBDA_KERNEL_FROM", {}),
        ("LAMBDA_KERNEL_PROJECTS", "a,../b"),
        ("LAMBDA_KERNEL_PROJECTS", "a,,b"),
        ("LAMBDA_KERNEL_PROJECTS", "/a"),
        ("LAMBDA_KERNEL_PROJECTS", ".hidden"),
        ("LAMBDA_KERNEL_PROJECTS", ",".join(f"p{n}" for n in range(101))),
        ("LAMBDA_KERNEL_RUN", "r/../.."),
        ("LAMBDA_KERNEL_SCOPE", "user"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(BadRequest, match=name):
        KernelOptions.from_env({name: value})


@pytest.mark.parametrize("value", ["a,,b", "a,", ",", " ,a"])
def test_an_empty_item_of_a_list_is_said_to_be_that(value: str) -> None:
    with pytest.raises(BadRequest, match="LAMBDA_KERNEL_PROJECTS: has an empty item"):
        KernelOptions.from_env({"LAMBDA_KERNEL_PROJECTS": value})


@given(st.dictionaries(st.sampled_from(ENV_NAMES), st.text() | st.integers() | st.none()))
def test_whatever_is_accepted_stays_below_the_users_prefix(env: dict[str, Any]) -> None:
    try:
        options, _ = KernelOptions.from_env(env)
    except BadRequest:
        return
    prefix = options.prefix(Identity(user="u1"))
    assert prefix.startswith("users/u1/")
    assert not any(part in {"", ".", ".."} for part in prefix.rstrip("/").split("/"))


def test_the_scope_is_the_agent_else_the_user_else_one_kernel() -> None:
    agent, user = Identity(user="u1", agent="a1"), Identity(user="u1")

    hashes = {
        KernelOptions().scope_of(agent, KERNEL_ID).hash,
        KernelOptions().scope_of(user, KERNEL_ID).hash,
        KernelOptions(scope="execution").scope_of(agent, KERNEL_ID).hash,
    }

    assert len(hashes) == 3
    assert not KernelOptions(scope="execution").scope_of(agent, KERNEL_ID).home_is_kept


@pytest.mark.parametrize(
    ("identity", "owner", "sees", "executes"),
    [
        (Identity(user="u1"), Identity(user="u1"), True, True),
        (Identity(user="u1"), Identity(user="u1", agent="a1"), True, True),
        (Identity(user="u1", agent="a1"), Identity(user="u1", agent="a1"), True, True),
        (Identity(user="u1", agent="a1"), Identity(user="u1", agent="a2"), False, False),
        (Identity(user="u1", agent="a1"), Identity(user="u1"), False, False),
        (Identity(user="u1"), Identity(user="u2"), False, False),
        (Identity(user="u1"), Identity(user="u2", agent="u1"), False, False),
        (Identity(user="u2", agent="a1"), Identity(user="u1", agent="a1"), False, False),
        (Identity(user="root", admin=True), Identity(user="u1"), True, False),
        (Identity(user="root", admin=True), Identity(user="root", agent="a"), True, True),
        (Identity(user="u1", agent="a1", admin=True), Identity(user="u1"), True, False),
    ],
)
def test_who_sees_and_who_executes(
    identity: Identity, owner: Identity, sees: bool, executes: bool
) -> None:
    assert may_see(identity, owner) is sees
    assert may_shut_down(identity, owner) is sees
    assert may_execute(identity, owner) is executes
