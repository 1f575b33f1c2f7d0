"""Session tokens: what SeaweedFS signed is taken, everything else is refused by its AWS name."""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gateway.local.session_token import TokenRefused, read_session
from tests.session_tokens import KEY, claims, credentials, mint

POLICY = {"Version": "2012-10-17", "Statement": []}
INVALID, EXPIRED = "UnrecognizedClientException", "ExpiredTokenException"
COLLECTED = datetime.now(UTC)
"""When the tokens of parameters were made: a long run must not be what ends them."""


def code_of(token: str, *, later: timedelta = timedelta(0)) -> str:
    with pytest.raises(TokenRefused) as refused:
        read_session(token, KEY, lambda: datetime.now(UTC) + later)
    return refused.value.code


def test_a_token_gives_the_key_that_its_holder_signs_with() -> None:
    body = claims(spol=json.dumps(POLICY))
    session = read_session(mint(body), KEY)
    held = credentials(body)
    assert session.access_key_id == held["aws_access_key_id"]
    assert session.secret_access_key == held["aws_secret_access_key"]
    assert session.session_policy == POLICY
    assert session.policies == ("scoped",)
    assert session.secret_access_key not in repr(session)


def test_a_session_without_a_policy_of_its_own_has_none() -> None:
    assert read_session(mint(claims()), KEY).session_policy is None
    assert read_session(mint(claims(spol="")), KEY).session_policy is None


def test_a_token_ends_with_its_second() -> None:
    assert code_of(mint(claims()), later=timedelta(minutes=15, seconds=1)) == EXPIRED


def swapped_policy() -> str:
    head, _, signature = mint(claims(spol=json.dumps(POLICY))).split(".")
    return f"{head}.{mint(claims()).split('.')[1]}.{signature}"


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(mint(claims(), key=b"g" * 32), id="another key"),
        pytest.param(mint(claims(), key=b""), id="no key"),
        pytest.param(mint(claims(), header={"alg": "none"}), id="alg none"),
        pytest.param(mint(claims(), header={"alg": "HS512"}), id="another algorithm"),
        pytest.param(mint(claims(), header=[]), id="no header"),
        pytest.param(mint(claims()).rpartition(".")[0] + ".", id="no signature"),
        pytest.param(swapped_policy(), id="another body under a good signature"),
        pytest.param(mint(claims(iss="somebody")), id="another issuer"),
        pytest.param(mint(claims(sid="")), id="no session id"),
        pytest.param(mint(claims(sid=None)), id="null session id"),
        pytest.param(mint(claims(exp="never")), id="no end"),
        pytest.param(mint(claims(exp=True)), id="an end that is no time"),
        pytest.param(mint(claims(pol="scoped")), id="policies that are no list"),
        pytest.param(mint(claims(spol="not JSON")), id="a policy that is none"),
        pytest.param(mint(claims(spol="[1]")), id="a policy that is no document"),
        pytest.param(mint([1]), id="no claims"),
        pytest.param("", id="empty"),
        pytest.param("a.b", id="two parts"),
        pytest.param("ä.b.c", id="not ASCII"),
        pytest.param("x" * 20_000, id="long"),
    ],
)
def test_what_was_not_signed_like_this_is_invalid(token: str) -> None:
    assert code_of(token, later=COLLECTED - datetime.now(UTC)) == INVALID


@given(token=st.text())
def test_no_text_is_a_token_by_chance(token: str) -> None:
    assert code_of(token) == INVALID


@given(
    body=st.dictionaries(
        st.sampled_from(["iss", "sid", "exp", "pol", "spol"]),
        st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()),
    )
)
def test_signed_nonsense_is_refused_or_a_session(body: dict[str, Any]) -> None:
    with suppress(TokenRefused):
        session = read_session(mint(claims() | body), KEY)
        assert session.access_key_id.startswith("ASIA")
