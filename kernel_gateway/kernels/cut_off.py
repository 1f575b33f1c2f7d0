"""Replays that ended with their gateway: what is left of them serves nobody, and is deleted."""

from __future__ import annotations

import asyncio
import json
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernel_gateway.errors import GatewayError, HeldElsewhere, NotFound
from kernel_gateway.kernels.services import KernelServices
from lambda_kernel.contract import keys
from lambda_kernel.contract.schema import decode, encode
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


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardedReplay:
    """A replay whose files nobody wants to keep, noted until they are deleted.

    Attributes:
        user, replay_id: whose, and which.
        lease_id: of the gateway that replays.
    """

    user: str
    replay_id: str
    lease_id: str

    @property
    def key(self) -> str:
        """Where it is noted in the records bucket."""
        return keys.discarded_replay_key(self.replay_id)

    @classmethod
    async def begin(cls, services: KernelServices, user: str, replay_id: str) -> DiscardedReplay:
        """Note a replay before it has any file (raises StorageError)."""
        lease_id = await services.replica.ready()
        noted = cls(user=user, replay_id=replay_id, lease_id=lease_id)
        body = json.dumps(encode(noted)).encode()
        await services.store.put(services.stack.records, noted.key, body)
        return noted

    async def end(self, services: KernelServices) -> None:
        """Delete its files (raises StorageError)."""
        prefix = keys.replay_prefix(self.user, self.replay_id)
        await _delete_all(services, services.stack.workspaces, prefix)
        await services.store.delete(services.stack.records, self.key)


async def sweep(registry: KernelRegistry) -> None:
    """Delete what replays of gateways that are gone have left. Never raises a GatewayError."""
    try:
        await _end_discarded(registry.services)
    except (GatewayError, ValueError):
        logger.warning("files of replays that are over stay for now", exc_info=True)
    await end_all(registry)


async def end_all(registry: KernelRegistry) -> None:
    """End kernels of replays of gateways that are gone. Never raises a GatewayError."""
    for kernel in filter(is_cut_off, registry.all()):
        try:
            await registry.reach(await registry.find(kernel.kernel_id), takes=True)
        except (HeldElsewhere, NotFound):
            continue
        except GatewayError:
            logger.warning("what is left of a replay stays for now", exc_info=True)


async def delete_state(services: KernelServices, scope: Scope) -> None:
    """Delete the variables of a replay (raises StorageError)."""
    await _delete_all(services, services.stack.state, keys.scope_prefix(scope))


async def _end_discarded(services: KernelServices) -> None:
    bucket = services.stack.records
    for key in [key async for key in services.store.list(bucket, keys.discarded_replay_key())]:
        try:
            stored = json.loads((await services.store.get(bucket, key)).body)
        except NotFound:
            continue
        noted = decode(DiscardedReplay, stored, "replay")
        is_ours = noted.lease_id == services.replica.lease_id
        if not is_ours and not await services.replica.sight(noted.lease_id):
            await noted.end(services)


async def _delete_all(services: KernelServices, bucket: str, prefix: str) -> None:
    found = [key async for key in services.store.list(bucket, prefix)]
    for start in range(0, len(found), DELETES_AT_ONCE):
        batch = found[start : start + DELETES_AT_ONCE]
        await asyncio.gather(*(services.store.delete(bucket, key) for key in batch))
