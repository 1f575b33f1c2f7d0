"""One gateway: local service, kernels and web server, started together and stopped together."""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import IO, TYPE_CHECKING, Any

from kernel_gateway.client.endpoint import Endpoint
from kernel_gateway.errors import ConfigError, StartError
from kernel_gateway.lifelines import Lifelines
from kernel_gateway.run_file import (
    RUN_FOLDER,
    RunFile,
    StateLock,
    own_replica_id,
    tell_deployment,
)
from kernel_gateway.settings import Settings

if TYPE_CHECKING:
    from kernel_gateway.audit.envelopes import Sealer
    from kernel_gateway.config import Deployment
    from kernel_gateway.garbage import GarbageCollector
    from kernel_gateway.kernels.registry import KernelRegistry
    from kernel_gateway.objects import ObjectStore, S3ObjectStore
    from kernel_gateway.web.server import GatewayServer

logger = logging.getLogger(__name__)

CLOSE_S = 2.5
"""What each part but the local service gets to close in; all of it ends within 5 s."""
INDEX_PAUSE_S = 10.0
"""So long after a cell the index of journals is written, for all the cells since then at once."""


class Gateway:
    """A gateway that serves.

    Attributes:
        url: for clients on this machine.
        token: the local user's; None where identities are configured.
        registry: its kernels.
        ended: set when a part that it cannot do without ended by itself; the text says which.
    """

    def __init__(
        self,
        *,
        url: str,
        token: str | None,
        registry: KernelRegistry,
        ended: asyncio.Future[str],
    ) -> None:
        self.url = url
        self.token = token
        self.registry = registry
        self.ended = ended

    @property
    def endpoint(self) -> Endpoint:
        """Where a client of the local user finds it."""
        return Endpoint(url=self.url, token=self.token)


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Gateway]:
    """Start a gateway, and stop everything it started in the end.

    Raises:
        StartError: a part cannot start here; the message says which, why and what to do.
        ConfigError: the state directory cannot be used.
    """
    async with AsyncExitStack() as stack:
        lock = StateLock.acquire(settings.state_dir)
        stack.callback(lock.release)
        # jupyter_server takes a second to import, boto3 and the parts of the local service take
        # one to start: at the same time.
        importing = asyncio.create_task(asyncio.to_thread(_import_server))
        ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        try:
            deployment = settings.deployment or await _local_service(settings, stack, ended)
        finally:
            await importing
        store = await asyncio.to_thread(_store, deployment)
        stack.callback(store.close)
        await _check_object_lock(settings, deployment, store)
        sealer = await asyncio.to_thread(_sealer, settings)
        registry = await _kernels(settings, deployment, store, sealer)
        collector = _garbage_collector(settings, store, sealer, stack)
        server = await _server(settings, deployment, registry, collector, stack)
        # First of all, while clients are still connected: they are told what became of their cells.
        stack.push_async_callback(_closed_in_time, registry.close)
        watch = asyncio.create_task(_lifelines(settings).watch(_ended_by_its_program(registry)))
        stack.callback(watch.cancel)
        gateway = Gateway(url=server.url, token=settings.token, registry=registry, ended=ended)
        # What is imported by now lives as long as the process. The collector need not look at it:
        # it takes 0.1 s each time, and seconds when the interpreter ends.
        gc.freeze()
        stack.callback(RunFile.remove, settings.state_dir)
        # No slash at the end: what a client adds begins with one, and //api is no route.
        address = gateway.url.rstrip("/")
        RunFile(url=address, token=gateway.token, pid=os.getpid()).write(settings.state_dir)
        yield gateway


async def serve(
    settings: Settings, announce: Callable[[Gateway], None], *, unused_s: float | None = None
) -> int:
    """Run a gateway until SIGINT or SIGTERM, and return the process's exit code.

    A signal ends it at once, in whatever state it is, and asks nothing; a second one does not wait
    for the end of what the first one stopped.

    Args:
        settings: what was configured.
        announce: called when a client can connect.
        unused_s: end by itself when nobody has held a lifeline for so long; None = never.

    Raises:
        StartError: a part cannot start here.
    """
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            os._exit(128 + signal.SIGINT)
        stopping.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    serving = asyncio.create_task(_serve(settings, announce, unused_s))
    signalled = asyncio.create_task(stopping.wait())
    await asyncio.wait({serving, signalled}, return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    if not serving.done():
        logger.info("a signal came: the gateway stops")
        serving.cancel()
    try:
        return await serving
    except asyncio.CancelledError:
        return 0


async def _serve(
    settings: Settings, announce: Callable[[Gateway], None], unused_s: float | None
) -> int:
    async with running(settings) as gateway:
        announce(gateway)
        if unused_s is None:
            raise StartError(await gateway.ended)
        unused: asyncio.Task[IO[str]] = asyncio.create_task(
            _lifelines(settings).until_unused(unused_s)
        )
        either: set[asyncio.Future[Any]] = {unused, gateway.ended}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if gateway.ended.done():
            unused.cancel()
            raise StartError(gateway.ended.result())
        logger.info("nobody uses the gateway: it ends")
    # Whoever comes meanwhile waits until all of it is gone.
    unused.result().close()
    return 0


def _ended_by_its_program(registry: KernelRegistry) -> Callable[[str], Awaitable[None]]:
    from kernel_gateway.messaging.caller import Actor

    return functools.partial(registry.shutdown, actor=Actor(door="client_gone"))


def _lifelines(settings: Settings) -> Lifelines:
    return Lifelines(settings.state_dir / RUN_FOLDER)


async def _local_service(
    settings: Settings, stack: AsyncExitStack, ended: asyncio.Future[str]
) -> Deployment:
    from kernel_gateway.local.service import LocalService, LocalSettings

    def on_exit(*facts: object) -> None:
        if not ended.done():
            ended.set_result("the local Lambda service ended by itself; its log says why")

    service = await LocalService.start(
        LocalSettings(
            state_dir=str(settings.state_dir),
            stack=settings.stack,
            environments=tuple(settings.environments.values()),
            max_containers=settings.max_containers,
            log_level=settings.log_level,
            warm_count=settings.warm_count,
            idle_container_s=settings.idle_container_s,
            locks_records=settings.audit.lock is not None,
        ),
        on_exit=on_exit,
    )
    stack.push_async_callback(service.stop)
    stack.callback(tell_deployment(settings.state_dir, service.deployment))
    return service.deployment


def _store(deployment: Deployment) -> S3ObjectStore:
    from kernel_gateway.objects import S3ObjectStore

    return S3ObjectStore.create(deployment)


async def _check_object_lock(
    settings: Settings, deployment: Deployment, store: S3ObjectStore
) -> None:
    bucket = deployment.stack.records
    if settings.audit.lock is not None and not await store.can_lock(bucket):
        raise ConfigError(
            f"audit.object_lock: the bucket {bucket} was not made for Object Lock. A local one "
            "gets it only where the state directory is new: start with another --state-dir (trails "
            "that are to be kept: `trail export` them from this one first), or leave the option "
            "out. On AWS, enable Object Lock for the bucket"
        )


def _sealer(settings: Settings) -> Sealer:
    from kernel_gateway.audit.key_folder import open_sealer

    return open_sealer(settings.state_dir, settings.signing_key)


def _garbage_collector(
    settings: Settings, store: ObjectStore, sealer: Sealer, stack: AsyncExitStack
) -> GarbageCollector:
    from kernel_gateway.garbage import GarbageCollector

    collector = GarbageCollector(store, settings.stack, settings.retention, sealer=sealer)
    if settings.garbage_interval_s:
        task = asyncio.create_task(collector.keep_collecting(settings.garbage_interval_s))
        stack.callback(task.cancel)
    return collector


async def _kernels(
    settings: Settings, deployment: Deployment, store: ObjectStore, sealer: Sealer
) -> KernelRegistry:
    from kernel_gateway.audit.keeping import open_keeping
    from kernel_gateway.dispatch.lambda_invoker import LambdaInvoker
    from kernel_gateway.environments.python_version import versions_of
    from kernel_gateway.kernels.lease import ReplicaSettings
    from kernel_gateway.kernels.registry import KernelRegistry
    from kernel_gateway.kernels.services import KernelSettings

    timeouts_s = {float(e.timeout_s) for e in settings.environments.values()}
    invoker = await asyncio.to_thread(LambdaInvoker.create, deployment, timeouts_s=timeouts_s)
    keeping = await asyncio.to_thread(open_keeping, settings.state_dir, settings.audit)
    return await KernelRegistry.open(
        stack=deployment.stack,
        handler_digest=deployment.handler_digest,
        store=store,
        invoker=invoker,
        environments=settings.environments,
        settings=KernelSettings(question_wait_s=settings.question_wait_s),
        pythons=await versions_of(settings.environments.values()),
        sealer=sealer,
        keeping=keeping,
        index_pause_s=INDEX_PAUSE_S,
        replica_settings=ReplicaSettings(
            replica_id=own_replica_id(settings.state_dir),
            url=settings.replica_url,
            lease_s=settings.lease_s,
        ),
    )


async def _server(
    settings: Settings,
    deployment: Deployment,
    registry: KernelRegistry,
    collector: GarbageCollector,
    stack: AsyncExitStack,
) -> GatewayServer:
    from kernel_gateway.web.server import GatewayServer
    from kernel_gateway.web.workspace_files import S3FileStore

    files = await asyncio.to_thread(S3FileStore.create, deployment)
    stack.callback(files.close)
    server = GatewayServer.create(
        config=settings.config,
        registry=registry,
        identities=settings.identities,
        environments=settings.environments,
        files=files,
        spool_dir=settings.state_dir / RUN_FOLDER,
        collector=collector,
    )
    stack.push_async_callback(_closed_in_time, server.aclose)
    return server


async def _closed_in_time(close: Callable[[], Awaitable[None]]) -> None:
    try:
        await asyncio.wait_for(close(), CLOSE_S)
    except TimeoutError:
        logger.warning("a part did not close in time", extra={"duration_ms": CLOSE_S * 1000})


def _import_server() -> None:
    for name in (
        "web.server",
        "web.handlers",
        "dispatch.lambda_invoker",
        "kernels.registry",
        "audit.key_folder",
    ):
        importlib.import_module(f"kernel_gateway.{name}")
