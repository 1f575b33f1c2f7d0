"""Keeps the index of journals up to date, some time after cells have ended."""

from __future__ import annotations

import asyncio
import logging

from kernel_gateway.audit.trail_index import TrailIndex
from kernel_gateway.errors import GatewayError

logger = logging.getLogger(__name__)


class Indexing:
    """Has journals indexed that have grown, many entries at a time.

    What is not done when the gateway ends, the next search does.

    Args:
        index: what is written.
        pause_s: how long more entries are waited for; None = nothing is done here.

    Attributes:
        index: that of the gateway's journals.
    """

    def __init__(self, index: TrailIndex, *, pause_s: float | None) -> None:
        self.index = index
        self._pause_s = pause_s
        self._grown: set[str] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def note(self, kernel_id: str) -> None:
        """Have a journal indexed after the pause."""
        if self._pause_s is None:
            return
        self._grown.add(kernel_id)
        self._schedule()

    def close(self) -> None:
        """Do nothing any more."""
        self._pause_s = None
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _schedule(self) -> None:
        if self._pause_s is not None and self._timer is None and self._task is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._pause_s, self._begin)

    def _begin(self) -> None:
        self._timer = None
        self._task = asyncio.get_running_loop().create_task(self._catch_up())

    async def _catch_up(self) -> None:
        grown, self._grown = self._grown, set()
        try:
            for kernel_id in grown:
                await self.index.catch_up(kernel_id)
        except GatewayError:
            logger.warning("journals are not indexed yet; a search will do it", exc_info=True)
        finally:
            self._task = None
            if self._grown:
                self._schedule()
