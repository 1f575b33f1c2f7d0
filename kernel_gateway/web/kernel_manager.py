"""jupyter_server's kernel manager as a thin adapter over the registry: no ZMQ, no process."""

from __future__ import annotations

import functools
import logging
from collections.abc import Awaitable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from jupyter_client.kernelspec import NoSuchKernel
from jupyter_server.prometheus.metrics import KERNEL_CURRENTLY_RUNNING_TOTAL
from tornado import web
from traitlets import Bool, Instance, default

from kernel_gateway.errors import GatewayError, HeldElsewhere, NotFound
from kernel_gateway.kernels.identity import Identity
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.kernels.options import KernelOptions
from kernel_gateway.kernels.registry import KernelRegistry
from kernel_gateway.messaging.caller import Actor
from kernel_gateway.messaging.message import utc_text
from kernel_gateway.web.culling import SteadyCulling
from kernel_gateway.web.kernelspecs import DEFAULT_NAME, LambdaKernelSpecManager

logger = logging.getLogger(__name__)

KERNEL_ACTIONS = "https://events.jupyter.org/jupyter_server/kernel_actions/v1"
SERVER = Actor(door="jupyter_server")
"""Whose handlers name nobody."""


class LambdaKernelManager(SteadyCulling):
    """Kernels of the registry under jupyter_server's method names.

    It does not ask who calls: the handlers check ownership before they call it.
    """

    shared_context = Bool(False)
    registry = Instance(KernelRegistry)
    kernel_spec_manager = Instance(LambdaKernelSpecManager)

    @default("registry")
    def _default_registry(self) -> KernelRegistry:
        server: Any = self.parent
        found: KernelRegistry = server.registry
        return found

    @default("default_kernel_name")
    def _default_kernel_name_default(self) -> str:
        return DEFAULT_NAME

    def begin(self) -> None:
        """Publish how many kernels there are, and cull from now on where that is configured.

        To be called outside of any request: what is begun here keeps the context it began in.
        """
        self.publish_counts()
        self.initialize_culler()

    def publish_counts(self) -> None:
        """Have Prometheus count the kernels whenever it asks."""
        for name in self.kernel_spec_manager.environments:
            gauge = KERNEL_CURRENTLY_RUNNING_TOTAL.labels(type=name)
            gauge.set_function(functools.partial(_count, self.registry, name))

    async def start_kernel(  # type: ignore[override]
        self,
        *,
        owner: Identity,
        kernel_name: str | None = None,
        kernel_id: str | None = None,
        options: KernelOptions | None = None,
        actor: Actor = SERVER,
    ) -> str:
        """Start a kernel and return its id; where ``kernel_id`` exists, that is the kernel.

        Args:
            owner: whom it belongs to and runs as.
            kernel_name: a kernelspec or an alias, None for the default.
            kernel_id: the client's choice, None for a new one.
            options: workspace and what else the client chose.
            actor: who starts it, for the journal.

        Raises:
            NotFound: there is no such kernelspec.
            GatewayError: as KernelRegistry.start.
        """
        options = options or KernelOptions()
        if options.source is not None:
            with suppress(NotFound):
                await self.registry.find(options.source.kernel_id)
        source = self.registry.source_of(owner, options)
        name = kernel_name or (source.spec_name if source else self.default_kernel_name)
        try:
            spec_name = self.kernel_spec_manager.resolve(name)
        except NoSuchKernel:
            there = ", ".join(self.kernel_spec_manager.names())
            raise NotFound(f"Kernel spec not found: {name}; there are {there}") from None
        try:
            kernel = await self.registry.start(
                owner, spec_name=spec_name, options=options, kernel_id=kernel_id, actor=actor
            )
        except GatewayError as problem:
            self._emit("start", None, spec_name, problem)
            raise
        self._emit("start", kernel.kernel_id, spec_name)
        logger.info("a kernel was started", extra={"kernel_id": kernel.kernel_id})
        return kernel.kernel_id

    _async_start_kernel = start_kernel  # type: ignore[assignment]

    async def shutdown_kernel(  # type: ignore[override]
        self,
        kernel_id: str,
        now: bool = False,
        restart: bool = False,
        actor: Actor = SERVER,
    ) -> None:
        """End the kernel, for ``actor`` (raises HTTPError 404)."""
        kernel = self.get_kernel(kernel_id)
        await self._end(kernel, self.registry.shutdown(kernel_id, actor=actor))

    _async_shutdown_kernel = shutdown_kernel  # type: ignore[assignment]

    async def restart_kernel(  # type: ignore[override]
        self, kernel_id: str, now: bool = False, actor: Actor = SERVER
    ) -> None:
        """Restart the kernel: same id, empty namespace (raises HTTPError 404)."""
        kernel = self.get_kernel(kernel_id)
        await self._act("restart", kernel, self.registry.restart(kernel_id, actor))

    _async_restart_kernel = restart_kernel

    async def interrupt_kernel(  # type: ignore[override]
        self, kernel_id: str, actor: Actor = SERVER
    ) -> None:
        """Interrupt the running cell (raises HTTPError 404)."""
        kernel = self.get_kernel(kernel_id)
        await self._act("interrupt", kernel, self.registry.interrupt(kernel_id, actor))

    async def shutdown_all(self, now: bool = False) -> None:  # type: ignore[override]
        """Leave the kernels as they are: their records outlive this gateway."""

    def update_env(self, *, kernel_id: str, env: dict[str, str]) -> None:
        """Ignore the environment that jupyter_server's sessions hand on: it is the gateway's."""

    def get_kernel(self, kernel_id: str) -> LambdaKernel:  # type: ignore[override]
        """Return the kernel (raises HTTPError 404)."""
        try:
            return self.registry.get(kernel_id)
        except NotFound as problem:
            raise web.HTTPError(404, f"Kernel does not exist: {kernel_id}") from problem

    def owner_of(self, kernel_id: str) -> Identity | None:
        """Return whose the kernel is, or was if it ended lately."""
        try:
            return self.registry.get(kernel_id).owner
        except NotFound:
            ended = self.registry.ended.find(kernel_id)
            return None if ended is None else ended.owner

    def kernel_model(self, kernel_id: str) -> dict[str, Any]:
        """Return the REST model of the kernel (raises HTTPError 404)."""
        return kernel_model(self.get_kernel(kernel_id))

    def list_kernel_ids(self) -> list[str]:
        """Return the ids of all kernels."""
        return [kernel.kernel_id for kernel in self.registry.all()]

    def list_kernels(self) -> list[dict[str, Any]]:
        """Return the REST models of all kernels, of every owner."""
        return [kernel_model(kernel) for kernel in self.registry.all()]

    async def cull_kernel_if_idle(self, kernel_id: str) -> None:
        """End the kernel if it was idle for ``cull_idle_timeout`` and nobody is connected."""
        try:
            found = await self.registry.find(kernel_id)
            kernel = await self.registry.reach(found, takes=False)
        except HeldElsewhere:
            # That gateway knows how long it has been idle; counted here from when it lets go.
            self.get_kernel(kernel_id).note_activity()
            return
        idle_s = int(kernel.idle_s)
        if (
            idle_s > self.cull_idle_timeout
            and (self.cull_busy or kernel.execution_state != "busy")
            and (self.cull_connected or not kernel.connections)
        ):
            logger.warning(
                "an idle kernel is culled", extra={"kernel_id": kernel_id, "idle_s": idle_s}
            )
            reason = f"culled: nobody used it for {idle_s} s"
            shutdown = self.registry.shutdown(kernel_id, reason, Actor(door="culler"))
            await self._end(kernel, shutdown)

    async def cull_kernels(self) -> None:
        """End every kernel that was idle for too long."""
        for kernel_id in self.list_kernel_ids():
            try:
                await self.cull_kernel_if_idle(kernel_id)
            except (GatewayError, web.HTTPError):
                logger.exception("a kernel could not be culled", extra={"kernel_id": kernel_id})

    def __contains__(self, kernel_id: object) -> bool:
        try:
            self.registry.get(str(kernel_id))
        except NotFound:
            return False
        return True

    def __len__(self) -> int:
        return len(self.registry.all())

    def __iter__(self) -> Iterator[str]:
        return iter(self.list_kernel_ids())

    async def _end(self, kernel: LambdaKernel, shutdown: Awaitable[None]) -> None:
        await self._act("shutdown", kernel, shutdown)
        self.last_kernel_activity = datetime.now(UTC)

    async def _act(self, action: str, kernel: LambdaKernel, done: Awaitable[None]) -> None:
        try:
            await done
        except GatewayError as problem:
            self._emit(action, kernel.kernel_id, kernel.spec_name, problem)
            raise
        self._emit(action, kernel.kernel_id, kernel.spec_name)

    def _emit(
        self,
        action: str,
        kernel_id: str | None,
        kernel_name: str,
        problem: GatewayError | None = None,
    ) -> None:
        """Publish a ``kernel_actions`` event, as jupyter_server's own kernels do."""
        data: dict[str, Any] = {
            "action": action,
            "kernel_name": kernel_name,
            "status": "error" if problem else "success",
            "msg": str(problem) if problem else f"Kernel {kernel_id}: {action} succeeded.",
        }
        if kernel_id is not None:
            data["kernel_id"] = kernel_id
        if problem is not None:
            data["status_code"] = problem.http_status
        server: Any = self.parent
        server.event_logger.emit(schema_id=KERNEL_ACTIONS, data=data)


def _count(registry: KernelRegistry, spec_name: str) -> int:
    return sum(kernel.spec_name == spec_name for kernel in registry.all())


def forked_from(kernel: LambdaKernel) -> str | None:
    """Return where a kernel was forked, as ``<kernel id>@<cell>``."""
    origin = kernel.record.origin
    return None if origin is None else f"{origin.kernel_id}@{origin.execution_count}"


def kernel_model(kernel: LambdaKernel) -> dict[str, Any]:
    """Return what the REST API says of a kernel.

    Source: Jupyter Server REST API, ``Kernel``; ``lambda_kernel`` is ours.
    """
    model: dict[str, Any] = {
        "id": kernel.kernel_id,
        "name": kernel.spec_name,
        "last_activity": utc_text(kernel.last_activity),
        "execution_state": str(kernel.execution_state),
        "connections": kernel.connections,
        "lambda_kernel": {
            "user": kernel.owner.user,
            "agent": kernel.owner.agent,
            "environment": kernel.environment.id,
            "workspace": kernel.options.workspace,
            "projects": list(kernel.options.projects),
            "run": kernel.options.run,
            "scope": kernel.options.scope,
            "forked_from": forked_from(kernel),
            "execution_count": kernel.execution_count,
            "probe": kernel.probe,
            "timings_ms": kernel.last_timings_ms,
        },
    }
    if kernel.reason:
        model["reason"] = kernel.reason
    return model
