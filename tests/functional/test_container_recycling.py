"""Past the end of a container's own credentials: the next invoke has another container."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from kernel_gateway.environments.environment import Environment
from kernel_gateway.local.service import LocalService, LocalSettings
from lambda_kernel.contract.keys import Stack
from lambda_kernel.serving.credentials import StsRoleAssumer
from lambda_kernel.serving.errors import CredentialsExpired
from tests.functional.conftest import LoopThread, aws_client, wait_until
from tests.functional.test_local_lambda import invoke_patiently

STACK = Stack()
SESSION_S = 6
RECYCLE_AGE_S = 3.0
WHO = """
import boto3, os
session = boto3.Session()
role = session.client("sts").assume_role(
    RoleArn={role!r}, RoleSessionName="cell", DurationSeconds=900)
held = session.get_credentials()
result = [os.environ["AWS_LAMBDA_LOG_STREAM_NAME"], role["Credentials"]["AccessKeyId"][:4],
          [held.access_key, held.secret_key, held.token]]
"""


def test_a_container_is_replaced_before_its_credentials_run_out(
    loop_thread: LoopThread, tmp_path: Path, test_runtime: dict[str, Any]
) -> None:
    settings = LocalSettings(
        state_dir=str(tmp_path / "state"),
        environments=(Environment(preload=()),),
        session_s=SESSION_S,
        recycle_age_s=RECYCLE_AGE_S,
        **test_runtime,
    )
    service = loop_thread.run(LocalService.start(settings))
    deployment = service.deployment
    client = aws_client("lambda", **deployment.client_arguments("lambda"))
    code = WHO.format(role=STACK.role_arn(STACK.scoped_role))

    def ask() -> Any:
        return json.loads(invoke_patiently(client, {"do": "run", "code": code})["Body"])

    try:
        first, works, held = ask()
        assert works == "ASIA"
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")
        own = dict(zip(names, held, strict=True), region_name=deployment.region)
        s3 = aws_client("s3", endpoint_url=deployment.s3_endpoint, **own)
        sts = aws_client("sts", endpoint_url=deployment.lambda_endpoint, **own)
        key = f"handler/{deployment.handler_digest}/frame-key"
        fetch = partial(s3.get_object, Bucket=STACK.overflow, Key=key)
        assert fetch()["ContentLength"] == 32

        def expired() -> str:
            try:
                fetch()
            except ClientError as error:
                return str(error.response["Error"]["Code"])
            return ""

        assert wait_until(expired) in {"InvalidAccessKeyId", "ExpiredToken"}
        assumer = StsRoleAssumer(sts, STACK.role_arn(STACK.scoped_role))
        with pytest.raises(CredentialsExpired):
            assumer.assume("cell", json.dumps({"Version": "2012-10-17", "Statement": []}), 900)
        second, works, _ = ask()
        assert works == "ASIA", "the next container has credentials that work"
        assert second != first
        s3.close()
        sts.close()
    finally:
        client.close()
        loop_thread.run(service.stop())


def test_no_session_lives_longer_than_an_hour(
    client_of: Any, lambda_identity: dict[str, str]
) -> None:
    sts = client_of("sts", **lambda_identity)
    arguments = {"RoleArn": STACK.role_arn(STACK.execution_role), "RoleSessionName": "test"}
    with pytest.raises(ClientError, match="900 and 3600"):
        sts.assume_role(**arguments, DurationSeconds=3601)
