"""One local service (SeaweedFS, Lambda, containers) for a whole test session."""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from kernel_gateway.config import Deployment
from kernel_gateway.environments.environment import Environment
from kernel_gateway.environments.handler_archive import zip_files
from kernel_gateway.local.service import LocalService, LocalSettings
from kernel_gateway.local.storage_config import StorageKeys
from lambda_kernel.contract import keys
from lambda_kernel.contract.invocation import CellMessage, Invocation
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.scope import Scope
from lambda_kernel.contract.session_policy import duration_s, session_policy

T = TypeVar("T")

GOVERNED = "shared/reference/"
RUNTIME = Path(__file__).with_name("runtime_for_tests.py")
RIC_HANDLER = b"""
def handler(event, context):
    if event == "fail":
        raise RuntimeError("as asked")
    return {"event": event, "tenant": getattr(context, "tenant_id", None),
            "left": context.get_remaining_time_in_millis() > 0, "arn": context.invoked_function_arn}
"""


class LoopThread:
    """An event loop in a thread, for tests that call boto3 beside it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Return the coroutine's result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(60)

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture(scope="session")
def loop_thread() -> Iterator[LoopThread]:
    thread = LoopThread()
    yield thread
    thread.close()


@pytest.fixture(scope="session")
def test_runtime(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Settings that put the test runtime in the bootstrap's place."""
    archive = tmp_path_factory.mktemp("handler") / "handler.zip"
    archive.write_bytes(zip_files({"handler.py": RIC_HANDLER}))
    return {"bootstrap": str(RUNTIME), "handler_archive": str(archive)}


@pytest.fixture(scope="session")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="session")
def local_service(
    loop_thread: LoopThread, state_dir: Path, test_runtime: dict[str, Any]
) -> Iterator[LocalService]:
    settings = LocalSettings(
        state_dir=str(state_dir),
        stack=Stack(governed_read_prefix=GOVERNED),
        environments=(
            Environment(preload=()),
            Environment(id="hasty", timeout_s=1, preload=()),
            Environment(id="ric", preload=()),
            Environment(id="broken", preload=()),
        ),
        max_containers=2,
        **test_runtime,
    )
    service = loop_thread.run(LocalService.start(settings))
    yield service
    loop_thread.run(service.stop())


@pytest.fixture(scope="session")
def deployment(local_service: LocalService) -> Deployment:
    return local_service.deployment


def aws_client(service: str, **arguments: Any) -> Any:
    """Return a client that never retries."""
    config = Config(
        signature_version="s3v4" if service == "s3" else None,
        s3={"addressing_style": "path"},
        retries={"total_max_attempts": 1},
        max_pool_connections=20,
    )
    return boto3.client(service, config=config, **arguments)


@pytest.fixture(scope="session")
def lambda_client(deployment: Deployment) -> Iterator[Any]:
    client = aws_client("lambda", **deployment.client_arguments("lambda"))
    yield client
    client.close()


@pytest.fixture(scope="session")
def s3_client(deployment: Deployment) -> Iterator[Any]:
    client = aws_client("s3", **deployment.client_arguments("s3"))
    yield client
    client.close()


REFUSALS = {"AccessDenied", "403", "InvalidRequest", "400"}
"""SeaweedFS calls a key with ``..`` in it an invalid request."""


def refused(call: Callable[[], Any]) -> bool:
    """Whether S3 or STS says AccessDenied."""
    try:
        call()
    except ClientError as error:
        return error.response["Error"]["Code"] in REFUSALS
    return False


def credentials_of(answer: dict[str, Any]) -> dict[str, str]:
    """Return what STS answered as boto3's arguments."""
    credentials = answer["Credentials"]
    return {
        "aws_access_key_id": credentials["AccessKeyId"],
        "aws_secret_access_key": credentials["SecretAccessKey"],
        "aws_session_token": credentials["SessionToken"],
    }


def invocation_of(scope: Scope, request_id: str = "ab" * 16, **fields: Any) -> Invocation:
    """Return an invocation of a cell of ``scope``."""
    facts: dict[str, Any] = {
        "request_id": request_id,
        "kernel_id": str(uuid.UUID(int=1)),
        "seq": 1,
        "scope": scope,
        "workdir_name": "0" * 32,
        "msg": CellMessage(header={}, content={}),
        "execution_count": 1,
        "write_prefix": keys.workspace_prefix(scope.user, "default"),
        "nonce": "0" * 32,
    }
    return Invocation(**facts | fields)


@pytest.fixture(scope="session")
def client_of(deployment: Deployment) -> Iterator[Callable[..., Any]]:
    """Makes clients of the service that are closed at the end."""
    clients = []

    def make(service: str, **arguments: str) -> Any:
        endpoint = deployment.s3_endpoint if service == "s3" else deployment.lambda_endpoint
        given = {"endpoint_url": endpoint, "region_name": deployment.region}
        client = aws_client(service, **given | arguments)
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


@pytest.fixture(scope="session")
def storage_keys(state_dir: Path, deployment: Deployment) -> StorageKeys:
    return StorageKeys.load_or_create(state_dir / "keys.json")


@pytest.fixture(scope="session")
def lambda_identity(storage_keys: StorageKeys) -> dict[str, str]:
    pair = storage_keys.lambda_service
    return {
        "aws_access_key_id": pair.access_key_id,
        "aws_secret_access_key": pair.secret_access_key,
    }


@pytest.fixture(scope="session")
def execution(client_of: Any, lambda_identity: dict[str, str]) -> dict[str, str]:
    """Credentials of the execution role."""
    answer = client_of("sts", **lambda_identity).assume_role(
        RoleArn=Stack().role_arn(Stack().execution_role), RoleSessionName="test"
    )
    return credentials_of(answer)


@pytest.fixture(scope="session")
def session_of(client_of: Any, execution: dict[str, str]) -> Callable[..., dict[str, str]]:
    """Makes the credentials that an invocation narrows itself to."""
    sts = client_of("sts", **execution)

    def make(invocation: Invocation, stack: Stack) -> dict[str, str]:
        answer = sts.assume_role(
            RoleArn=stack.role_arn(stack.scoped_role),
            RoleSessionName=invocation.role_session_name,
            DurationSeconds=duration_s(invocation.limits.timeout_s),
            Policy=session_policy(invocation, stack),
        )
        return credentials_of(answer)

    return make


def wait_until(condition: Callable[[], T], timeout_s: float = 20.0) -> T:
    """Return the first true value of ``condition``."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen in time")
        threading.Event().wait(0.02)
    return value
