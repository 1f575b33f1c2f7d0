"""From an agent's secret to the variables of a cell."""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore.stub import Stubber

from lambda_kernel.serving.connectors import (
    ConnectorValues,
    SecretRefused,
    SecretsManagerReader,
    choose,
)
from lambda_kernel.serving.errors import StorageUnavailable

SECRET = "lkg-connector-creds-a1"
STORED = {"gh": {"TOKEN": "t", "USER": "u"}, "jira": {"KEY": "k"}}


def chosen(stored: Any, *wanted: str) -> ConnectorValues:
    return choose(SECRET, json.dumps(stored), wanted)


def test_all_connectors_of_the_agent_are_taken_where_none_is_named() -> None:
    values = chosen(STORED)
    assert values.variables == {"CONN_gh_TOKEN": "t", "CONN_gh_USER": "u", "CONN_jira_KEY": "k"}
    assert values.notices == ()


def test_only_named_connectors_are_taken_and_missing_ones_are_told() -> None:
    values = chosen(STORED, "jira", "slack")
    assert values.variables == {"CONN_jira_KEY": "k"}
    assert values.notices == ("connector slack is not set for this agent",)


def test_no_secret_means_no_connectors() -> None:
    assert choose(SECRET, None, ()) == ConnectorValues()


@pytest.mark.parametrize(
    "stored",
    [
        {"git-hub": {"TOKEN": "value"}},
        {"gh": {"LD-X": "value"}},
        {"gh": {"=": "value"}},
        {"gh": {"TOKEN": 1}},
        {"gh": {"TOKEN": None}},
        {"gh": {"TOKEN": "va\0lue"}},
        {"gh": {"TOKEN": "\ud800"}},
        {"": {"TOKEN": "value"}},
    ],
)
def test_what_cannot_be_a_variable_is_left_out_and_told_without_its_value(stored: Any) -> None:
    values = chosen(stored)
    assert values.variables == {}
    assert len(values.notices) == 1
    assert "value" not in values.notices[0]


def test_one_variable_of_two_connectors_is_neithers() -> None:
    values = chosen({"a": {"b_c": "1"}, "a_b": {"c": "2"}})
    assert values.variables == {}
    assert values.notices == ("CONN_a_b_c would be a value of two connectors and is left out",)


def test_a_double_that_is_not_wanted_does_not_count() -> None:
    values = chosen({"a": {"b_c": "1"}, "a_b": {"c": "2"}}, "a")
    assert values.variables == {"CONN_a_b_c": "1"}


@pytest.mark.parametrize("text", ["", "not JSON: s3cret", "[]", '{"gh": "s3cret"}', "[" * 100_000])
def test_a_secret_that_makes_no_sense_is_named_and_not_quoted(text: str) -> None:
    with pytest.raises(StorageUnavailable) as refused:
        choose(SECRET, text, ())
    assert SECRET in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_values_do_not_show_in_a_repr() -> None:
    assert "'t'" not in repr(chosen(STORED))


def reading(**error: Any) -> tuple[SecretsManagerReader, Stubber]:
    client = boto3.client(
        "secretsmanager",
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    stubber = Stubber(client)
    if error:
        stubber.add_client_error("get_secret_value", **error)
    return SecretsManagerReader(client), stubber


BY_SESSION_POLICY = "not authorized because no session policy allows the action"
"""What AWS says of a secret that does not exist, judged by its bare name."""


@pytest.mark.parametrize(
    "error",
    [
        {"service_error_code": "ResourceNotFoundException"},
        {"service_error_code": "AccessDeniedException", "service_message": BY_SESSION_POLICY},
    ],
)
def test_no_secret_is_no_connectors(error: dict[str, str]) -> None:
    reader, stubber = reading(**error)
    with stubber:
        assert reader.read(SECRET) is None


@pytest.mark.parametrize(
    "message",
    ["not authorized because no identity-based policy allows the action", "Access to KMS is not"],
)
def test_a_role_without_the_permission_is_told_apart(message: str) -> None:
    denied = {"service_error_code": "AccessDeniedException", "service_message": message}
    reader, stubber = reading(**denied)
    with stubber, pytest.raises(SecretRefused, match=SECRET):
        reader.read(SECRET)


@pytest.mark.parametrize("code", ["InternalServiceError", "ExpiredTokenException", "Throttling"])
def test_any_other_refusal_means_that_nothing_starts(code: str) -> None:
    reader, stubber = reading(service_error_code=code)
    with stubber, pytest.raises(StorageUnavailable, match=code):
        reader.read(SECRET)
