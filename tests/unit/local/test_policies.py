"""Policy documents: deny by default, wildcards as IAM has them, nothing gained by what is odd."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_gateway.local.policies import allows

READ = "secretsmanager:GetSecretValue"
ARN = "arn:aws:secretsmanager:us-east-1:000000000000:secret:lkg-connector-creds-"


def document(**statement: Any) -> dict[str, Any]:
    return {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", **statement}]}


@pytest.mark.parametrize(
    ("action", "resource", "asked", "expected"),
    [
        (READ, f"{ARN}a1-??????", f"{ARN}a1-AbCdEf", True),
        (READ, f"{ARN}a1-??????", f"{ARN}a1", False),
        (READ, f"{ARN}a1-??????", f"{ARN}a1-AbCdEfG", False),
        (READ, f"{ARN}a1-??????", f"{ARN}a1-x-AbCdEf", False),
        (READ, f"{ARN}a1-??????", f"{ARN}a10-AbCdEf", False),
        (READ, f"{ARN}a1-??????", f"{ARN}a1-AbCdE\n", True),
        ([READ], [f"{ARN}b-??????", f"{ARN}a1-*"], f"{ARN}a1-AbCdEf", True),
        ("secretsmanager:*", "*", f"{ARN}a1-AbCdEf", True),
        ("SECRETSMANAGER:getsecretvalue", "*", f"{ARN}a1-AbCdEf", True),
        ("secretsmanager:ListSecrets", "*", f"{ARN}a1-AbCdEf", False),
        (READ, f"{ARN.upper()}*", f"{ARN}a1-AbCdEf", False),
        (READ, f"{ARN}[a-z]1-*", f"{ARN}a1-AbCdEf", False),
        (READ, [], f"{ARN}a1-AbCdEf", False),
        ([], "*", f"{ARN}a1-AbCdEf", False),
    ],
)
def test_a_statement_allows_what_both_patterns_match(
    action: Any, resource: Any, asked: str, expected: bool
) -> None:
    assert allows([document(Action=action, Resource=resource)], READ, asked) is expected


def test_nothing_allows_nothing() -> None:
    assert not allows([], READ, ARN)
    assert not allows([{}], READ, ARN)
    assert not allows([{"Statement": "x"}], READ, ARN)


def test_a_denial_in_any_document_counts() -> None:
    allow, deny = document(Action="*", Resource="*"), document(Action=READ, Resource="*")
    deny["Statement"][0]["Effect"] = "Deny"
    assert not allows([allow, deny], READ, ARN)
    assert not allows([deny, allow], READ, ARN)


@pytest.mark.parametrize(
    "odd",
    [{"Condition": {}}, {"NotAction": "x"}, {"NotResource": "x"}, {"Principal": "*"}, {"New": 1}],
    ids=str,
)
def test_what_is_not_understood_takes_rights_and_gives_none(odd: dict[str, Any]) -> None:
    everything = document(Action="*", Resource="*")
    assert not allows([document(Action="*", Resource="*", **odd)], READ, ARN)
    denying = document(Action="s3:Nothing", Resource="x", **odd)
    denying["Statement"][0]["Effect"] = "Deny"
    assert not allows([everything, denying], READ, ARN)


@given(text=st.text(min_size=1))
def test_a_pattern_without_wildcards_matches_itself_only(text: str) -> None:
    plain = text.replace("*", "+").replace("?", "!")
    policy = [document(Action=READ, Resource=plain)]
    assert allows(policy, READ, plain)
    assert not allows(policy, READ, plain + "x")
