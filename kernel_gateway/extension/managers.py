"""Managers of a server that has kernels of its own and lambda kernels, told apart by kernelspec."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_core.utils import ensure_async
from tornado import web
from traitlets import Instance, default

from kernel_gateway.errors import GatewayError
from kernel_gateway.extension.embedded import EMBEDDED, EmbeddedGateway
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.options import KernelOptions
from kernel_gateway.web import cell_events
from kernel_gateway.web.culling import SteadyCulling
from kernel_gateway.web.identities import LOCAL_USER
from kernel_gateway.web.kernel_manager import LambdaKernelManager
from kernel_gateway.web.kernelspecs import LambdaKernelSpecManager
from lambda_kernel.contract import names

SERVERS_USER = Identity(user=LOCAL_USER)
"""Who uses the server: one person, whoever its token admits."""


class MixedKernelSpecManager(KernelSpecManager):
    """The installed kernelspecs, and those of the lambda kernels."""

    lambda_specs = Instance(LambdaKernelSpecManager)

    @default("lambda_specs")
    def _default_lambda_specs(self) -> LambdaKernelSpecManager:
        environments = embedded_gateway(self.parent).settings.environments
        # Never python3: that is a kernel of the server's own.
        return LambdaKernelSpecManager(environments=environments, with_aliases=False)

    def find_kernel_specs(self) -> dict[str, str]:
        """Return each name with the folder of its logos; ours go before installed ones."""
        return {**super().find_kernel_specs(), **self.lambda_specs.find_kernel_specs()}

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        """Return the kernelspec (raises NoSuchKernel)."""
        if self.is_lambda(kernel_name):
            return self.lambda_specs.get_kernel_spec(kernel_name)
        return super().get_kernel_spec(kernel_name)

    def is_lambda(self, kernel_name: str) -> bool:
        """Return whether a kernel of this name is a lambda kernel."""
        return kernel_name in self.lambda_specs.names()


class MixedKernelManager(SteadyCulling):
    """Local kernels as jupyter_server has them; lambda kernels are the embedded gateway's.

    The gateway starts with the first lambda kernel, and ends with the server. Its kernels stay in
    its state directory, and are there again when it starts the next time.
    """

    kernel_spec_manager = Instance(MixedKernelSpecManager)

    def __init__(self, **traits: Any) -> None:
        super().__init__(**traits)
        self._lambda_kernels: LambdaKernelManager | None = None

    @property
    def embedded(self) -> EmbeddedGateway:
        """The gateway, running or not."""
        return embedded_gateway(self.parent)

    @property
    def lambda_kernels(self) -> LambdaKernelManager | None:
        """The lambda kernels; None while their gateway does not run."""
        gateway = self.embedded.gateway
        if gateway is None:
            return None
        found = self._lambda_kernels
        if found is None or found.registry is not gateway.registry:
            found = self._lambda_kernels = LambdaKernelManager(
                parent=self.parent,
                registry=gateway.registry,
                kernel_spec_manager=self.kernel_spec_manager.lambda_specs,
            )
            found.publish_counts()
            cell_events.publish(gateway.registry.services.recorder, self.parent)
        return found

    def manager_of(self, kernel_id: str) -> LambdaKernelManager | None:
        """Return who has the kernel if it is a lambda kernel, else None."""
        found = self.lambda_kernels
        return found if found is not None and kernel_id in found else None

    async def start_kernel(  # type: ignore[override]
        self, *, kernel_id: str | None = None, path: Any = None, **options: Any
    ) -> str:
        """Start a kernel and return its id; where ``kernel_id`` exists, that is the kernel.

        Args:
            kernel_id: the client's choice, None for a new one.
            path: of the document; a lambda kernel works in its workspace.
            options: as jupyter_server gives them: ``kernel_name``, ``env``.

        Raises:
            HTTPError: a lambda kernel cannot start; the message says why.
        """
        if kernel_id is not None and self.manager_of(kernel_id) is not None:
            return kernel_id
        name = options.get("kernel_name") or self.default_kernel_name
        if (kernel_id or "") in self or not self.kernel_spec_manager.is_lambda(name):
            local: str = await super()._async_start_kernel(
                kernel_id=kernel_id, path=path, **options
            )
            return local
        with _as_http_errors():
            return await self._start_lambda_kernel(name, kernel_id, options.get("env"))

    _async_start_kernel = start_kernel

    async def _start_lambda_kernel(
        self, name: str, kernel_id: str | None, env: dict[str, str] | None
    ) -> str:
        options, _ = KernelOptions.from_env(dict(os.environ) if env is None else env)
        await self.embedded.start()
        manager = self.lambda_kernels
        assert manager is not None  # noqa: S101  (it has just started)
        if not self._initialized_culler:
            self.initialize_culler()
        return await manager.start_kernel(
            owner=SERVERS_USER,
            kernel_name=name,
            # Any text may come here, as from clients of the sessions' first API.
            kernel_id=kernel_id if names.is_kernel_id(kernel_id or "") else None,
            options=options,
        )

    async def shutdown_kernel(  # type: ignore[override]
        self, kernel_id: str, now: bool = False, restart: bool = False
    ) -> None:
        """End the kernel (raises HTTPError)."""
        manager = self.manager_of(kernel_id)
        if manager is None:
            await super()._async_shutdown_kernel(kernel_id, now=now, restart=restart)
            return
        with _as_http_errors():
            await manager.shutdown_kernel(kernel_id)

    _async_shutdown_kernel = shutdown_kernel  # type: ignore[assignment]

    async def restart_kernel(self, kernel_id: str, now: bool = False) -> Any:  # type: ignore[override]
        """Restart the kernel: same id, empty namespace (raises HTTPError)."""
        manager = self.manager_of(kernel_id)
        if manager is None:
            return await super()._async_restart_kernel(kernel_id, now=now)
        with _as_http_errors():
            return await manager.restart_kernel(kernel_id)

    _async_restart_kernel = restart_kernel

    async def interrupt_kernel(self, kernel_id: str) -> None:  # type: ignore[override]
        """Interrupt the running cell (raises HTTPError)."""
        manager = self.manager_of(kernel_id)
        if manager is None:
            await ensure_async(super().interrupt_kernel(kernel_id))
            return
        with _as_http_errors():
            await manager.interrupt_kernel(kernel_id)

    async def shutdown_all(self, now: bool = False) -> None:  # type: ignore[override]
        """End the local kernels and the gateway; its kernels stay in its state directory."""
        await self.embedded.stop()
        await super()._async_shutdown_all(now=now)

    _async_shutdown_all = shutdown_all

    def update_env(self, *, kernel_id: str, env: dict[str, str]) -> None:
        """Change what the next restart of a local kernel sees of the environment."""
        if self.manager_of(kernel_id) is None:
            super().update_env(kernel_id=kernel_id, env=env)

    def get_kernel(self, kernel_id: str) -> Any:
        """Return the kernel (raises HTTPError 404)."""
        manager = self.manager_of(kernel_id)
        return super().get_kernel(kernel_id) if manager is None else manager.get_kernel(kernel_id)

    def kernel_model(self, kernel_id: str) -> dict[str, Any]:
        """Return the REST model of the kernel (raises HTTPError 404)."""
        manager = self.manager_of(kernel_id)
        if manager is not None:
            return manager.kernel_model(kernel_id)
        local: dict[str, Any] = super().kernel_model(kernel_id)
        return local

    def list_kernel_ids(self) -> list[str]:
        """Return the ids of all kernels."""
        manager = self.lambda_kernels
        return [*super().list_kernel_ids(), *(manager.list_kernel_ids() if manager else ())]

    def list_kernels(self) -> list[dict[str, Any]]:
        """Return the REST models of all kernels."""
        manager = self.lambda_kernels
        return [*super().list_kernels(), *(manager.list_kernels() if manager else ())]

    async def cull_kernels(self) -> None:
        """End every kernel that was idle for too long."""
        await super().cull_kernels()
        manager = self.lambda_kernels
        if manager is not None:
            await manager.cull_kernels()

    def _check_kernel_id(self, kernel_id: str) -> None:
        manager = self.lambda_kernels
        ended = None if manager is None else manager.registry.ended.find(kernel_id)
        if ended is not None:
            raise web.HTTPError(404, str(ended))
        super()._check_kernel_id(kernel_id)

    def __contains__(self, kernel_id: object) -> bool:
        return self.manager_of(str(kernel_id)) is not None or super().__contains__(str(kernel_id))

    def __len__(self) -> int:
        return len(self.list_kernel_ids())


def embedded_gateway(server: Any) -> EmbeddedGateway:
    """Return the gateway of a server's lambda kernels."""
    found: EmbeddedGateway = server.tornado_settings[EMBEDDED]
    return found


@contextmanager
def _as_http_errors() -> Iterator[None]:
    """Raise our errors as jupyter_server's handlers show them: with status and message."""
    try:
        yield
    except GatewayError as problem:
        # tornado formats the message with arguments that there are not.
        raise web.HTTPError(problem.http_status, str(problem).replace("%", "%%")) from problem
