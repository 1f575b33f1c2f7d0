"""A pytest plugin for jupyter_server's own tests: every kernel of their servers is a lambda kernel.

It stands apart from our packages, for the suite has a package ``tests`` too. One local service with
real containers serves the whole run; each server of a test opens a registry of its own on it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from jupyter_server.serverapp import ServerApp

from kernel_gateway.config import Deployment
from kernel_gateway.dispatch.lambda_invoker import LambdaInvoker
from kernel_gateway.environments.environment import Environment
from kernel_gateway.extension.embedded import EMBEDDED
from kernel_gateway.extension.managers import MixedKernelManager, MixedKernelSpecManager
from kernel_gateway.extension.websocket import MixedWebsocketConnection
from kernel_gateway.kernels.registry import KernelRegistry
from kernel_gateway.local.service import LocalService, LocalSettings
from kernel_gateway.objects import S3ObjectStore
from kernel_gateway.web.kernelspecs import DEFAULT_NAME, LambdaKernelSpecManager
from lambda_kernel.contract.keys import Stack

ENVIRONMENT = Environment()
ENVIRONMENTS = {DEFAULT_NAME: ENVIRONMENT}


class ServiceThread:
    """The local service of the run, on an event loop of its own."""

    def __init__(self, state_dir: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        (state_dir / "run").mkdir(parents=True, exist_ok=True)
        settings = LocalSettings(
            state_dir=str(state_dir),
            stack=Stack(),
            environments=(ENVIRONMENT,),
            max_containers=2,
            log_level="WARNING",
            warm_count=1,
            idle_container_s=600,
        )
        self._service = self._run(LocalService.start(settings))

    @property
    def deployment(self) -> Deployment:
        """Where its parts are."""
        found: Deployment = self._service.deployment
        return found

    def stop(self) -> None:
        """End it and everything it started."""
        self._run(self._service.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


class OneServersGateway:
    """What an EmbeddedGateway is to a server, over the service of the whole run."""

    settings = SimpleNamespace(environments=ENVIRONMENTS)

    def __init__(self, service: ServiceThread) -> None:
        self._service = service
        self.gateway: Any = None

    async def start(self) -> Any:
        """Open the registry."""
        if self.gateway is None:
            deployment = self._service.deployment
            self._store = S3ObjectStore.create(deployment)
            registry = await KernelRegistry.open(
                stack=deployment.stack,
                handler_digest=deployment.handler_digest,
                store=self._store,
                invoker=LambdaInvoker.create(deployment, timeouts_s={float(ENVIRONMENT.timeout_s)}),
                environments=ENVIRONMENTS,
            )
            self.gateway = SimpleNamespace(registry=registry)
        return self.gateway

    async def stop(self) -> None:
        """End all kernels, for the next test begins with none."""
        gateway, self.gateway = self.gateway, None
        if gateway is not None:
            for kernel in gateway.registry.all():
                await gateway.registry.shutdown(kernel.kernel_id)
            await gateway.registry.close()
            self._store.close()


class SpecsWithAliases(MixedKernelSpecManager):
    """What the tests ask for as ``python3`` is ours."""

    def _lambda_specs_default(self) -> LambdaKernelSpecManager:
        return LambdaKernelSpecManager(environments=ENVIRONMENTS, with_aliases=True)

    def find_kernel_specs(self) -> dict[str, str]:
        """Return the specs of the suite, and python3."""
        found = super().find_kernel_specs()
        return {
            name: place for name, place in found.items() if name not in {DEFAULT_NAME, "python"}
        }


@pytest.fixture(scope="session")
def lambda_service() -> Any:
    """The local service, started once."""
    service = ServiceThread(Path(os.environ["CONFORMANCE_STATE_DIR"]))
    yield service
    service.stop()


@pytest.fixture(autouse=True)
def _lambda_kernels(lambda_service: ServiceThread, monkeypatch: pytest.MonkeyPatch) -> None:
    stock = ServerApp.init_configurables

    def with_lambda_kernels(server: ServerApp) -> None:
        gateway = OneServersGateway(lambda_service)
        server.tornado_settings = {**server.tornado_settings, EMBEDDED: gateway}
        server.kernel_manager_class = MixedKernelManager
        server.kernel_spec_manager_class = SpecsWithAliases
        server.kernel_websocket_connection_class = MixedWebsocketConnection  # type: ignore[assignment]
        stock(server)

    monkeypatch.setattr(ServerApp, "init_configurables", with_lambda_kernels)
