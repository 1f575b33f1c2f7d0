"""The kernels that this gateway knows, brought up to what the records of all gateways say."""

from __future__ import annotations

import asyncio
import logging
import time
import weakref
from collections.abc import Awaitable, Callable, Iterator, Mapping

from kernel_gateway.environments.environment import Environment
from kernel_gateway.errors import GatewayError, NotFound, StorageError
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.kernels.lineage import Lineage
from kernel_gateway.kernels.record import KernelRecord
from kernel_gateway.kernels.services import KernelServices
from lambda_kernel.contract import names
from lambda_kernel.contract.schema import InvalidField

logger = logging.getLogger(__name__)

RECORDS_AT_ONCE = 8
"""Half of the connections to S3: while thousands are read, kernels that are used need some too."""
FRESH_S = 3.0
"""A listing of all kernels is at most so much older than what other gateways did."""


class Directory:
    """Kernels by id.

    Of a kernel that is held here, what stands here is the truth. Of the others only the record is
    known, which another gateway may change or delete at any time.
    """

    def __init__(self, services: KernelServices, environments: Mapping[str, Environment]) -> None:
        self.kernels: dict[str, LambdaKernel] = {}
        self._services = services
        self._environments = environments
        self._locks: weakref.WeakValueDictionary[str, asyncio.Lock] = weakref.WeakValueDictionary()
        self._left_out: dict[str, str] = {}
        self._listed_s: float | None = None
        self._listing = asyncio.Lock()
        self._reading: asyncio.Task[None] | None = None

    def begin(self, then: Callable[[], Awaitable[None]]) -> None:
        """Read all records from now on; who asks for one kernel meanwhile gets it by `find`.

        Args:
            then: called once they are known.
        """
        self._reading = asyncio.get_running_loop().create_task(self._read(then))

    async def close(self) -> None:
        """Read no more."""
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])

    def add(
        self, record: KernelRecord, etag: str, environment: Environment, *, is_new: bool
    ) -> LambdaKernel:
        """Return the kernel of a record, which stands here from now on."""
        lineage = Lineage(record, etag, self._services, is_new=is_new)
        kernel = LambdaKernel(lineage, environment=environment, services=self._services)
        self.kernels[record.kernel_id] = kernel
        return kernel

    def held_under(self, lease_id: str | None) -> list[LambdaKernel]:
        """Return the kernels that a lease of this gateway holds."""
        return [kernel for kernel in self.kernels.values() if kernel.record.holder == lease_id]

    def lock(self, kernel_id: str) -> asyncio.Lock:
        """Return the lock under which a kernel changes hands."""
        return self._locks.setdefault(kernel_id, asyncio.Lock())

    async def find(self, kernel_id: str) -> LambdaKernel:
        """Return the kernel as it is now, whichever gateway started it.

        Raises:
            NotFound: there is none.
            StorageError: S3 does not answer.
        """
        kernel = self.kernels.get(kernel_id)
        if kernel is not None and kernel.is_held:
            return kernel
        try:
            names.check_kernel_id(kernel_id)
        except InvalidField as problem:
            raise NotFound(f"there is no kernel {kernel_id}") from problem
        async with self.lock(kernel_id):
            await self._bring(kernel_id)
        try:
            return self.kernels[kernel_id]
        except KeyError:
            raise NotFound(f"there is no kernel {kernel_id}") from None

    async def complete(self) -> None:
        """Wait until every record that was there at the start is known.

        Raises:
            StorageError: S3 does not answer.
        """
        if self._listed_s is None:
            await self.refresh()

    async def refresh(self) -> None:
        """Bring in what other gateways did; done a moment ago, it is not done again.

        Raises:
            StorageError: S3 does not answer.
        """
        async with self._listing:
            began_s = time.monotonic()
            if self._listed_s is not None and began_s - self._listed_s < FRESH_S:
                return
            await self._services.replica.check()
            stored = await self._services.records.etags()
            known = self._left_out | {k.kernel_id: k.etag for k in self.kernels.values()}
            changed = iter(
                [
                    kernel_id
                    for kernel_id in stored.keys() | known.keys()
                    if stored.get(kernel_id) != known.get(kernel_id)
                ]
            )
            async with asyncio.TaskGroup() as group:
                for _ in range(RECORDS_AT_ONCE):
                    group.create_task(self._bring_all(changed, stored))
            # New ones come in any order, and are shown in that of their start.
            ordered = sorted(self.kernels.values(), key=lambda kernel: kernel.record.created)
            self.kernels = {kernel.kernel_id: kernel for kernel in ordered}
            self._listed_s = began_s

    async def _read(self, then: Callable[[], Awaitable[None]]) -> None:
        try:
            await self.refresh()
            await then()
        except GatewayError:
            logger.warning("the kernels are not known yet: S3 does not answer", exc_info=True)

    async def _bring_all(self, kernel_ids: Iterator[str], stored: Mapping[str, str]) -> None:
        for kernel_id in kernel_ids:
            async with self.lock(kernel_id):
                try:
                    await self._bring(kernel_id)
                except StorageError:
                    logger.exception("a kernel record was left out")
                    self._left_out[kernel_id] = stored.get(kernel_id, "")

    async def _bring(self, kernel_id: str) -> None:
        try:
            found = await self._services.records.read(kernel_id)
        except NotFound:
            found = None
        # Only now: it may have become ours, or ended, meanwhile.
        kernel = self.kernels.get(kernel_id)
        if kernel is not None and kernel.is_held:
            return
        if found is None:
            self.kernels.pop(kernel_id, None)
            self._left_out.pop(kernel_id, None)
            self._services.forget(kernel_id)
            return
        record, etag = found
        if kernel is not None and kernel.etag == etag:
            return
        environment = self._environments.get(record.spec_name)
        if environment is None:
            logger.warning(
                "a kernel's environment is not configured any more: it is left out",
                extra={"kernel_id": kernel_id},
            )
            self._left_out[kernel_id] = etag
            return
        self.add(record, etag, environment, is_new=False)
