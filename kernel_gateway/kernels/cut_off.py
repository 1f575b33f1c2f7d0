"""Replays that ended with their gateway: what is left of them serves nobody, and is deleted."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from kernel_gateway.errors import GatewayError, HeldElsewhere, NotFound
from kernel_gateway.kernels.services import KernelServices
from lambda_kernel.contract import keys
from lambda_kernel.contract.scope import Scope

if TYPE_CHECKING:
    from kernel_gateway.kernels.kernel import LambdaKernel
    from kernel_gateway.kernels.registry import KernelRegistry

logger = logging.getLogger(__name__)

REASON = "cut off: the gateway that replayed has ended"
DELETES_AT_ONCE = 16


def is_cut_off(kernel: LambdaKernel) -> bool:
    """Return whether it is a replay's, unless another gateway serves it."""
    return kernel.record.options.replay is not None and not kernel.is_held


async def end_all(registry: KernelRegistry) -> None:
    """End what replays of gateways that are gone have left. Never raises a GatewayError."""
    for kernel in filter(is_cut_off, registry.all()):
        try:
            await registry.reach(await registry.find(kernel.kernel_id), takes=True)
        except (HeldElsewhere, NotFound):
            continue
        except GatewayError:
            logger.warning("what is left of a replay stays for now", exc_info=True)


async def delete_state(services: KernelServices, scope: Scope) -> None:
    """Delete the variables of a replay (raises StorageError)."""
    bucket = services.stack.state
    found = [key async for key in services.store.list(bucket, keys.scope_prefix(scope))]
    for start in range(0, len(found), DELETES_AT_ONCE):
        batch = found[start : start + DELETES_AT_ONCE]
        await asyncio.gather(*(services.store.delete(bucket, key) for key in batch))
