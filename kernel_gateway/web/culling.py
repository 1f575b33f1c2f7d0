"""When idle kernels are looked for: regularly, whatever is done to the machine's clock.

jupyter_server does it by tornado's PeriodicCallback, which goes by the time of day: set back by a
day, it culls nothing for a day.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, cast

from jupyter_server.services.kernels.kernelmanager import AsyncMappingKernelManager

logger = logging.getLogger(__name__)


class RegularCalls:
    """Calls a kernel manager's ``cull_kernels`` again and again, one call at a time.

    Args:
        manager: whose it is.
        interval_s: between the end of a call and the next one.
    """

    def __init__(self, manager: AsyncMappingKernelManager, interval_s: float) -> None:
        self._manager = manager
        self._interval_s = interval_s
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Call after the interval."""
        self._timer = asyncio.get_running_loop().call_later(self._interval_s, self._begin)

    def stop(self) -> None:
        """Begin no call any more."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._call())

    async def _call(self) -> None:
        try:
            await self._manager.cull_kernels()
        except Exception:
            logger.exception("idle kernels could not be culled")
        if not self._is_stopped:
            self.start()


class SteadyCulling(AsyncMappingKernelManager):
    """A kernel manager whose culling goes on when the machine's clock is set."""

    _culler_callback: Any

    def initialize_culler(self) -> None:
        """Cull from now on every ``cull_interval``, where there is a ``cull_idle_timeout``."""
        cast("Any", super()).initialize_culler()
        regular = self._culler_callback
        if regular is not None and not isinstance(regular, RegularCalls):
            regular.stop()
            self._culler_callback = RegularCalls(self, float(self.cull_interval))
            self._culler_callback.start()

    def stop_culling(self) -> None:
        """Cull no more."""
        if self._culler_callback is not None:
            self._culler_callback.stop()
