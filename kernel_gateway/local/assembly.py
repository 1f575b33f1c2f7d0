"""Puts the local service together: storage, buckets, handler, Lambda, in the fastest order."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from botocore.config import Config

from kernel_gateway import aws
from kernel_gateway.config import Deployment
from kernel_gateway.environments.handler_archive import (
    HandlerArchive,
    bootstrap_path,
    build_handler_archive,
)
from kernel_gateway.local.aws_api import LambdaAccess, serve_host
from kernel_gateway.local.aws_root import AwsFront
from kernel_gateway.local.buckets import prepare_buckets, sweep_overflow
from kernel_gateway.local.execution_role import ExecutionRole
from kernel_gateway.local.interpreter import find_interpreter
from kernel_gateway.local.lambda_service import Capacity, LambdaService
from kernel_gateway.local.launcher import ContainerLauncher, Runtime
from kernel_gateway.local.relay import Relay, UnixAddress, loopback_listener
from kernel_gateway.local.secrets_api import SecretsApi, SecretsAuthority
from kernel_gateway.local.secrets_store import SecretStore
from kernel_gateway.local.settings import REGION, LocalSettings
from kernel_gateway.local.staging import stage_handler
from kernel_gateway.local.storage import StorageProcess
from kernel_gateway.local.storage_config import KeyPair, StorageKeys, role_policies
from kernel_gateway.local.sts_front import StsFront
from kernel_gateway.local.warm_container import Function

logger = logging.getLogger(__name__)

SWEEP_INTERVAL_S = 3600.0
ENDPOINTS_NAME = "aws.json"


async def assemble(
    settings: LocalSettings,
    storage: StorageProcess,
    keys: StorageKeys,
    closing: contextlib.AsyncExitStack,
) -> Deployment:
    """Return the deployment once S3, STS and Lambda answer and the first container is starting.

    Args:
        settings: what is wanted.
        storage: SeaweedFS, spawned.
        keys: its secrets.
        closing: what has to be undone, filled as parts come up.

    Raises:
        StartError: a part does not come up.
    """
    preparing = asyncio.gather(
        asyncio.to_thread(_archive, settings), runtimes_of(settings), storage.ready()
    )
    s3_listener, aws_listener = loopback_listener(), loopback_listener()
    s3_endpoint, aws_endpoint = (
        f"http://127.0.0.1:{listener.getsockname()[1]}" for listener in (s3_listener, aws_listener)
    )
    client = _client("s3", s3_endpoint, keys.gateway)
    sts = _client("sts", aws_endpoint, keys.lambda_service)
    closing.callback(client.close)
    closing.callback(sts.close)
    archive, runtimes, address = await preparing
    closing.callback(address.close)
    relay = await Relay.open(s3_listener, address)
    closing.push_async_callback(relay.close)
    await prepare_buckets(client, settings.stack, locks_records=settings.locks_records)
    handler_uri = await asyncio.to_thread(_stage, client, settings, archive)
    front = _front(settings, keys, address)
    closing.callback(front.sts.close)
    service = _service(settings, runtimes, handler_uri, sts, address, front)
    access = LambdaAccess(
        secret_keys={keys.gateway.access_key_id: keys.gateway.secret_access_key}, region=REGION
    )
    server = serve_host(service, front, access, aws_listener)
    closing.push_async_callback(server.close_all_connections)
    closing.callback(server.stop)
    closing.push_async_callback(service.stop)
    service.start()
    _sweep_regularly(client, settings, archive, closing)
    _tell_endpoints(settings, s3_endpoint, aws_endpoint, closing)
    return Deployment(
        stack=settings.stack,
        region=REGION,
        handler_digest=archive.digest,
        s3_endpoint=s3_endpoint,
        lambda_endpoint=aws_endpoint,
        access_key_id=keys.gateway.access_key_id,
        secret_access_key=keys.gateway.secret_access_key,
    )


async def runtimes_of(settings: LocalSettings) -> Mapping[str, Runtime]:
    """Return what each function's containers are made of (raises StartError)."""
    interpreters = await asyncio.gather(
        *(find_interpreter(environment.python) for environment in settings.environments)
    )
    return {
        settings.stack.function_name(environment.id): Runtime(
            environment=environment, interpreter=interpreter
        )
        for environment, interpreter in zip(settings.environments, interpreters, strict=True)
    }


def _front(settings: LocalSettings, keys: StorageKeys, address: UnixAddress) -> AwsFront:
    state_dir = Path(settings.state_dir)
    logs = state_dir / "logs" / "aws"
    authority = SecretsAuthority(
        signing_key=base64.b64decode(keys.session_key),
        policies=role_policies(settings.stack),
        region=REGION,
        account_id=settings.stack.account_id,
    )
    record_path = logs / "secretsmanager" / "get-secret-value.jsonl"
    return AwsFront(
        sts=StsFront.create(address, logs / "sts" / "assume-role.jsonl"),
        secrets=SecretsApi(SecretStore(state_dir), authority, record_path),
    )


def _service(
    settings: LocalSettings,
    runtimes: Mapping[str, Runtime],
    handler_uri: str,
    sts: Any,
    address: UnixAddress,
    front: AwsFront,
) -> LambdaService:
    stack = settings.stack
    launcher = ContainerLauncher(
        stack=stack,
        region=REGION,
        handler_uri=handler_uri,
        bootstrap=bootstrap_path() if settings.bootstrap is None else Path(settings.bootstrap),
        runtimes=runtimes,
        role=ExecutionRole(client=sts, stack=stack),
        storage=address,
        front=front,
        logs=Path(settings.state_dir) / "logs" / "aws" / "lambda",
    )
    functions = [
        Function(
            name=name,
            arn=f"arn:aws:lambda:{REGION}:{stack.account_id}:function:{name}",
            timeout_s=runtime.environment.timeout_s,
            environment_id=runtime.environment.id,
            memory_mb=runtime.environment.memory_mb,
            code=launcher.code,
        )
        for name, runtime in runtimes.items()
    ]
    capacity = Capacity(
        max_containers=settings.max_containers,
        warm_count=settings.warm_count,
        idle_container_s=settings.idle_container_s,
        recycle_age_s=settings.recycle_age_s,
    )
    return LambdaService(functions, launcher, capacity)


def _tell_endpoints(
    settings: LocalSettings, s3: str, aws: str, closing: contextlib.AsyncExitStack
) -> None:
    """Write ``run/aws.json`` for the owner's own S3 clients; the keys stand in ``keys.json``."""
    path = Path(settings.state_dir) / "run" / ENDPOINTS_NAME
    facts = {"s3": s3, "sts": aws, "lambda": aws, "secretsmanager": aws, "region": REGION}
    path.write_text(json.dumps(facts) + "\n")
    closing.callback(path.unlink, missing_ok=True)


def _archive(settings: LocalSettings) -> HandlerArchive:
    if settings.handler_archive is None:
        return build_handler_archive()
    return HandlerArchive.of(Path(settings.handler_archive).read_bytes())


def _stage(client: Any, settings: LocalSettings, archive: HandlerArchive) -> str:
    return stage_handler(client, settings.stack, archive)


def _client(service: str, endpoint: str, key: KeyPair) -> Any:
    config = Config(
        signature_version="s3v4" if service == "s3" else None,
        s3={"addressing_style": "path"},
        connect_timeout=5,
        read_timeout=20,
        retries={"mode": "standard", "total_max_attempts": 2},
    )
    return aws.client(
        service,
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=key.access_key_id,
        aws_secret_access_key=key.secret_access_key,
        config=config,
    )


def _sweep_regularly(
    client: Any,
    settings: LocalSettings,
    archive: HandlerArchive,
    closing: contextlib.AsyncExitStack,
) -> None:
    async def sweep() -> None:
        while True:
            await asyncio.sleep(SWEEP_INTERVAL_S)
            try:
                await asyncio.to_thread(
                    sweep_overflow,
                    client,
                    settings.stack,
                    handler_digest=archive.digest,
                    now=datetime.now(UTC),
                )
            except Exception:  # the next hour tries again
                logger.exception("the overflow bucket could not be swept")

    task = asyncio.create_task(sweep())
    closing.callback(task.cancel)
