"""``/api/kernels``: start, list, look at, end, interrupt and restart one's own kernels."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from typing import Any

from kernel_gateway.errors import BadRequest, NotFound, StorageError
from kernel_gateway.kernels.identity import may_see
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.kernels.options import ENV_NAMES, KernelOptions
from kernel_gateway.messaging.caller import Actor
from kernel_gateway.web.base import GatewayHandler, endpoint
from kernel_gateway.web.forwarding import was_forwarded
from kernel_gateway.web.kernel_manager import LambdaKernelManager, kernel_model

logger = logging.getLogger(__name__)

NOTICE_HEADER = "Lambda-Kernel-Notice"
SHOWN_NAMES_COUNT = 20
SHOWN_NAME_CHARACTERS = 64


class KernelsAPIHandler(GatewayHandler):
    """Base of the kernel handlers."""

    auth_resource = "kernels"

    @property
    def manager(self) -> LambdaKernelManager:
        """The kernel manager, which asks no one who calls."""
        found: LambdaKernelManager = self.settings["kernel_manager"]
        return found


class KernelsHandler(KernelsAPIHandler):
    """All kernels that the caller may see."""

    @endpoint
    async def get(self) -> None:
        """List them, those of other gateways too."""
        if was_forwarded(self.request):
            kernels = [kernel for kernel in self._visible() if kernel.is_held]
            elsewhere = {}
        else:
            try:
                await self.registry.refresh()
            except StorageError:
                logger.warning("kernels of other gateways may be missing", exc_info=True)
            kernels = self._visible()
            elsewhere = await self.forwarder.models(self, kernels)
        models = [kernel_model(k) | elsewhere.get(k.kernel_id, {}) for k in kernels]
        self.finish(json.dumps(models))

    def _visible(self) -> list[LambdaKernel]:
        return [k for k in self.registry.all() if may_see(self.identity, k.owner)]

    @endpoint
    async def post(self) -> None:
        """Start one: ``name`` and ``env`` with the LAMBDA_KERNEL_… names; an ``id`` names one.

        Nobody chooses an id: whether one is taken would tell of kernels that are not the caller's.
        """
        body = self.json_object()
        options, ignored = KernelOptions.from_env(_object(body, "env"))
        kernel_id = await self._start(body, options)
        model = self.manager.kernel_model(kernel_id)
        if ignored:
            notice = ignored_notice(ignored)
            model["notice"] = notice
            self.set_header(NOTICE_HEADER, notice.encode("ascii", "replace").decode())
            logger.info("env names were ignored", extra={"kernel_id": kernel_id})
        self.set_header("Location", f"{self.base_url}api/kernels/{kernel_id}")
        self.set_status(201)
        self.finish(json.dumps(model))

    async def _start(self, body: dict[str, Any], options: KernelOptions) -> str:
        kernel_id = _text(body, "kernel_id") or _text(body, "id")
        if kernel_id is not None:
            with suppress(NotFound):
                await self.registry.find(kernel_id)
            return self.own_kernel(kernel_id).kernel_id
        return await self.manager.start_kernel(
            owner=self.identity.as_owner,
            kernel_name=_text(body, "name"),
            options=options,
            actor=Actor.of(self.caller),
        )


class KernelHandler(KernelsAPIHandler):
    """One kernel."""

    @endpoint
    async def get(self, kernel_id: str) -> None:
        """Say how it is."""
        kernel = self.visible_kernel(kernel_id)
        try:
            await kernel.learn_count()
        except StorageError:
            logger.warning("how many cells a kernel has run is not known", exc_info=True)
        self.finish(json.dumps(kernel_model(kernel)))

    @endpoint
    async def delete(self, kernel_id: str) -> None:
        """End it; an admin may end anybody's."""
        self.visible_kernel(kernel_id)
        await self.manager.shutdown_kernel(kernel_id, actor=Actor.of(self.caller))
        self.set_status(204)
        self.finish()


class KernelActionHandler(KernelsAPIHandler):
    """What is done to one kernel."""

    @endpoint
    async def post(self, kernel_id: str, action: str) -> None:
        """Interrupt or restart it."""
        self.own_kernel(kernel_id)
        if action == "interrupt":
            await self.manager.interrupt_kernel(kernel_id, Actor.of(self.caller))
            self.set_status(204)
            self.finish()
        else:
            await self.manager.restart_kernel(kernel_id, actor=Actor.of(self.caller))
            self.finish(json.dumps(self.manager.kernel_model(kernel_id)))


def ignored_notice(names: tuple[str, ...]) -> str:
    """Return a sentence that says which names of ``env`` had no effect."""
    shown = [name[:SHOWN_NAME_CHARACTERS] for name in names[:SHOWN_NAMES_COUNT]]
    readable = [name if name.isprintable() else repr(name) for name in shown]
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    known = ", ".join(ENV_NAMES)
    return f"ignored in env: {', '.join(readable)}{more}; read are {known}"


def _object(body: dict[str, Any], name: str) -> dict[str, Any]:
    value = body.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise BadRequest(f"{name}: must be an object")
    return value


def _text(body: dict[str, Any], name: str) -> str | None:
    value = body.get(name)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise BadRequest(f"{name}: must be text")
    return value
