"""The code of functions, asked for once per container: what it runs does not change any more."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime

from kernel_gateway.dispatch.invoker import Invoker
from kernel_gateway.errors import InvokeError
from kernel_gateway.function_code import FunctionCode
from kernel_gateway.messaging.message import utc_text

logger = logging.getLogger(__name__)

KNOWN_COUNT = 1000
TIMEOUT_S = 3.0
PAUSE_S = 300.0
"""After Lambda did not say, it is not asked again for so long: no cell is to wait for it."""


class FunctionCodes:
    """Asks Lambda, after a cell and beside its reply.

    Args:
        invoker: Lambda.
        clock: in seconds.
    """

    def __init__(self, invoker: Invoker, clock: Callable[[], float] = time.monotonic) -> None:
        self._invoker = invoker
        self._clock = clock
        self._known: dict[tuple[str, str, str], asyncio.Task[FunctionCode]] = {}
        self._failed: dict[str, tuple[float, str]] = {}

    def of(self, function: str, version: str, container_id: str) -> asyncio.Task[FunctionCode]:
        """Return the code of a container, maybe not yet; never fails, see FunctionCode.problem.

        Args:
            function: its name.
            version: that Lambda said it executed.
            container_id: as the serving process says; "" where it said nothing.
        """
        key = (function, version, container_id)
        found = self._known.get(key)
        if found is None or not container_id:
            asking = self._ask(key)
            found = self._known[key] = asyncio.get_running_loop().create_task(asking)
            if len(self._known) > KNOWN_COUNT:
                del self._known[next(iter(self._known))]
        return found

    async def _ask(self, key: tuple[str, str, str]) -> FunctionCode:
        function, version, _ = key
        failed = self._failed.get(function)
        if failed is not None and self._clock() - failed[0] < PAUSE_S:
            self._known.pop(key, None)
            return FunctionCode(version=version, problem=failed[1])
        asked = utc_text(datetime.now(UTC))
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await self._invoker.code_of(function, version, asked=asked)
        except (InvokeError, TimeoutError) as problem:
            text = str(problem) or f"Lambda did not answer within {TIMEOUT_S:g} s"
            logger.warning("Lambda does not say which code a function has", exc_info=True)
            self._failed[function] = (self._clock(), text)
            self._known.pop(key, None)
            return FunctionCode(version=version, asked=asked, problem=text)
