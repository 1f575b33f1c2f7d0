"""Secrets Manager of the local service, as boto3 sees it."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kernel_gateway.config import Deployment
from kernel_gateway.local.secrets_store import SecretStore
from kernel_gateway.local.storage_config import StorageKeys
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.scope import Scope
from tests import session_tokens
from tests.functional.conftest import invocation_of
from tests.functional.test_local_lambda import run_inside

STACK = Stack()
VALUE = "a-value-that-no-log-has"


@pytest.fixture(scope="module", autouse=True)
def secrets(state_dir: Path, deployment: Deployment) -> Iterator[SecretStore]:
    store = SecretStore(state_dir)
    for agent in ("a1", "a1-x", "a10"):
        with store.changing(STACK.connector_secret(agent)) as connectors:
            connectors["gh"] = {"TOKEN": f"{VALUE}-{agent}"}
    yield store
    for name in store.names():
        with store.changing(name) as connectors:
            connectors.clear()


@pytest.fixture(scope="module")
def of_a1(client_of: Any, session_of: Any) -> Any:
    """Secrets Manager with the narrowed session of agent a1."""
    invocation = invocation_of(Scope(user="u1", agent="a1"))
    return client_of("secretsmanager", **session_of(invocation, STACK))


def code_of(call: Callable[[], Any]) -> str:
    with pytest.raises(ClientError) as refused:
        call()
    code: str = refused.value.response["Error"]["Code"]
    return code


def read(client: Any, name: str = "lkg-connector-creds-a1", **more: str) -> Any:
    return client.get_secret_value(SecretId=name, **more)


def test_an_agents_session_reads_its_own_secret(of_a1: Any) -> None:
    answer = read(of_a1)
    assert json.loads(answer["SecretString"]) == {"gh": {"TOKEN": f"{VALUE}-a1"}}
    assert answer["Name"] == "lkg-connector-creds-a1"
    assert answer["VersionStages"] == ["AWSCURRENT"]
    again = read(of_a1, answer["ARN"], VersionId=answer["VersionId"])
    assert again["SecretString"] == answer["SecretString"]


def test_an_agents_session_reads_no_others(of_a1: Any, secrets: SecretStore) -> None:
    other = secrets.get("lkg-connector-creds-a1-x")
    assert other is not None
    arn = f"arn:aws:secretsmanager:us-east-1:{STACK.account_id}:secret:"
    for name in (
        "lkg-connector-creds-a1-x",
        "lkg-connector-creds-a10",
        "lkg-connector-creds-nobody",
        f"{arn}{other.name}-{other.suffix}",
        "lkg-connector-creds-a1*",
        "../keys",
        "x" * 2048,
    ):
        assert code_of(partial(read, of_a1, name)) == "AccessDeniedException"


def test_a_secret_that_was_never_set_is_denied_by_its_name_as_on_aws(
    client_of: Any, session_of: Any
) -> None:
    invocation = invocation_of(Scope(user="u1", agent="a2"))
    client = client_of("secretsmanager", **session_of(invocation, STACK))
    with pytest.raises(ClientError, match="no session policy allows") as refused:
        read(client, "lkg-connector-creds-a2")
    assert refused.value.response["Error"]["Code"] == "AccessDeniedException"


def test_versions_and_suffixes_that_are_not_there_are_not_found(of_a1: Any) -> None:
    for more in ({"VersionStage": "AWSPREVIOUS"}, {"VersionId": "0" * 32}):
        assert code_of(partial(read, of_a1, **more)) == "ResourceNotFoundException"
    arn = read(of_a1)["ARN"][:-6] + "000000"
    assert code_of(lambda: read(of_a1, arn)) == "ResourceNotFoundException"


def test_without_an_agent_there_is_no_secret(client_of: Any, session_of: Any) -> None:
    client = client_of("secretsmanager", **session_of(invocation_of(Scope(user="u1")), STACK))
    assert code_of(lambda: read(client)) == "AccessDeniedException"


def test_neither_the_execution_role_nor_a_static_key_reads_secrets(
    client_of: Any, execution: dict[str, str], deployment: Deployment, lambda_identity: Any
) -> None:
    assert code_of(lambda: read(client_of("secretsmanager", **execution))) == (
        "AccessDeniedException"
    )
    gateway = {
        "aws_access_key_id": deployment.access_key_id,
        "aws_secret_access_key": deployment.secret_access_key,
    }
    for identity in (gateway, lambda_identity):
        client = client_of("secretsmanager", **identity)
        assert code_of(partial(read, client)) == "UnrecognizedClientException"


def test_other_operations_are_not_offered(of_a1: Any) -> None:
    assert code_of(lambda: of_a1.list_secrets()) == "UnknownOperationException"


def test_a_signature_must_be_of_the_tokens_key_for_this_service_and_region(
    client_of: Any, session_of: Any
) -> None:
    held = session_of(invocation_of(Scope(user="u1", agent="a1")), STACK)
    other = session_of(invocation_of(Scope(user="u1", agent="a10")), STACK)
    crossed = {**held, "aws_session_token": other["aws_session_token"]}
    wrong = {**held, "aws_secret_access_key": "x" * 44}
    assert code_of(lambda: read(client_of("secretsmanager", **crossed))) == (
        "UnrecognizedClientException"
    )
    assert code_of(lambda: read(client_of("secretsmanager", **wrong))) == (
        "InvalidSignatureException"
    )
    elsewhere = client_of("secretsmanager", **held, region_name="eu-west-1")
    assert code_of(lambda: read(elsewhere)) == "InvalidSignatureException"


def test_expired_forged_and_widened_sessions_are_refused_here_and_by_s3(
    client_of: Any, storage_keys: StorageKeys
) -> None:
    key = base64.b64decode(storage_keys.session_key)
    body = session_tokens.claims(nbf=int(time.time()) - 60, iat=int(time.time()) - 60)
    past = {**body, "exp": int(time.time()) - 1}
    for token_body, token_key, here in (
        (past, key, "ExpiredTokenException"),
        (body, b"guess" * 8, "UnrecognizedClientException"),
    ):
        held = session_tokens.credentials(token_body, token_key)
        secrets_client, s3 = client_of("secretsmanager", **held), client_of("s3", **held)
        assert code_of(partial(read, secrets_client)) == here
        listing = partial(s3.list_objects_v2, Bucket=STACK.workspaces, Prefix="users/u1/")
        assert code_of(listing) in {
            "InvalidAccessKeyId",
            "ExpiredToken",
            "AccessDenied",
            "InvalidToken",
        }
    control = client_of("secretsmanager", **session_tokens.credentials(body, key))
    assert VALUE in read(control)["SecretString"], "the same token reads before its end"


def test_a_container_reaches_it_at_its_own_address_and_gets_what_its_session_may(
    lambda_client: Any, session_of: Any, state_dir: Path
) -> None:
    held = session_of(invocation_of(Scope(user="u1", agent="a1")), STACK)
    code = f"""
import boto3
client = boto3.client("secretsmanager", **{held!r})
result = client.get_secret_value(SecretId="lkg-connector-creds-a1")["SecretString"]
"""
    assert VALUE in run_inside(lambda_client, code)
    record = state_dir / "logs" / "aws" / "secretsmanager" / "get-secret-value.jsonl"
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert any(line["source"].startswith("lkg-env-default/") for line in lines)
    assert VALUE not in record.read_text()


def test_what_was_set_counts_from_the_next_request(of_a1: Any, secrets: SecretStore) -> None:
    name = STACK.connector_secret("a1")
    with secrets.changing(name) as connectors:
        connectors["jira"] = {"KEY": "1"}
    assert json.loads(read(of_a1)["SecretString"])["jira"] == {"KEY": "1"}
    with secrets.changing(name) as connectors:
        del connectors["jira"]
    assert "jira" not in json.loads(read(of_a1)["SecretString"])
