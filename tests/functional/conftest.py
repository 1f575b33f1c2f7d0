"""One local service (SeaweedFS, Lambda, containers) for a whole test session."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import boto3
import pytest
from botocore.config import Config

from kernel_gateway.config import Deployment
from kernel_gateway.environments.environment import Environment
from kernel_gateway.environments.handler_archive import zip_files
from kernel_gateway.local.service import LocalService, LocalSettings

T = TypeVar("T")

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


def wait_until(condition: Callable[[], T], timeout_s: float = 20.0) -> T:
    """Return the first true value of ``condition``."""
    deadline = time.monotonic() + timeout_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError("it did not happen in time")
        threading.Event().wait(0.02)
    return value
