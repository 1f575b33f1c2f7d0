"""The rendered notebooks that stand beside the journals, for who reads the bucket itself."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kernel_gateway.audit.chain import SessionClosed
from kernel_gateway.audit.journal import Journal
from kernel_gateway.audit.later_events import ContentRemoved
from kernel_gateway.audit.trail import trail_chunks
from kernel_gateway.errors import GatewayError
from kernel_gateway.objects import ObjectStore
from lambda_kernel.contract import keys

logger = logging.getLogger(__name__)

QUIET_S = 10.0
"""From a change of a journal until its notebook is rendered: cells seldom come alone."""
SHARE = 20
"""A rendering waits this many times as long as the last one of that kernel took."""
CLOSING_S = 5.0
"""What the end of a gateway waits for notebooks that are not rendered yet."""


class TrailShelf:
    """Renders the trail of each kernel whose journal changed, one at a time, some time after.

    A notebook is a view: one that is behind says up to which entry it goes, and the next change of
    its journal brings it up to date.

    Args:
        store: S3.
        bucket: the records bucket.
        quiet_s: from a change until it is rendered, at least.
    """

    def __init__(self, store: ObjectStore, bucket: str, quiet_s: float = QUIET_S) -> None:
        self._store = store
        self._bucket = bucket
        self._quiet_s = quiet_s
        self._waiting: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._took_s: dict[str, float] = {}
        self._one = asyncio.Semaphore(1)

    @property
    def slow_kernels(self) -> set[str]:
        """The kernels whose next rendering waits longer, because the last one took long."""
        return set(self._took_s)

    def changed(self, kernel_id: str) -> None:
        """Have the notebook of a kernel rendered, unless it is about to be."""
        if kernel_id not in self._waiting:
            delay_s = max(self._quiet_s, SHARE * self._took_s.get(kernel_id, 0.0))
            loop = asyncio.get_running_loop()
            self._waiting[kernel_id] = loop.call_later(delay_s, self._start, kernel_id)

    async def render(self, kernel_id: str) -> bool:
        """Store the notebook of a kernel's journal as it is now, whole or not at all.

        Return whether it ends with what comes after a kernel's last cell.

        Raises:
            GatewayError: S3 does not answer, or the journal cannot be read.
        """
        journal = Journal(self._store, self._bucket, kernel_id, is_new=False)
        with tempfile.NamedTemporaryFile(prefix="lkg-trail-", suffix=".ipynb") as file:
            async for chunk in trail_chunks(journal):
                file.write(chunk.encode("ascii"))
            file.flush()
            key = keys.rendered_trail_key(kernel_id)
            await self._store.put_file(self._bucket, key, Path(file.name))
        number = await journal.open()
        last = (await journal.signed(number)).entry.event if number else None
        return isinstance(last, SessionClosed | ContentRemoved)

    @asynccontextmanager
    async def without(self, kernel_id: str) -> AsyncIterator[None]:
        """Have no notebook of a kernel while what it shows is removed; render it anew after that.

        Raises:
            StorageError: the notebook cannot be deleted, or S3 does not answer.
        """
        # No rendering that has read it already may store it after that.
        async with self._one:
            await self._store.erase(self._bucket, keys.rendered_trail_key(kernel_id))
            try:
                yield
            finally:
                self.changed(kernel_id)

    async def close(self) -> None:
        """Render what waits, as far as there is time."""
        for kernel_id in list(self._waiting):
            self._start(kernel_id)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=CLOSING_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    def _start(self, kernel_id: str) -> None:
        # What changes from here on may be missing in the notebook, and has it rendered again.
        self._waiting.pop(kernel_id).cancel()
        task = asyncio.get_running_loop().create_task(self._render_in_turn(kernel_id))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _render_in_turn(self, kernel_id: str) -> None:
        async with self._one:
            began_s, is_over = time.monotonic(), False
            try:
                is_over = await self.render(kernel_id)
            except (GatewayError, OSError):
                logger.warning(
                    "a trail could not be rendered", extra={"kernel_id": kernel_id}, exc_info=True
                )
            took_s = time.monotonic() - began_s
        if took_s * SHARE > self._quiet_s and not is_over:
            self._took_s[kernel_id] = took_s
        else:
            self._took_s.pop(kernel_id, None)
