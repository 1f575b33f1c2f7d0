"""A whole gateway inside the process of another Jupyter server."""

from __future__ import annotations

import asyncio
import logging

from kernel_gateway.app import Gateway, running
from kernel_gateway.errors import StartError
from kernel_gateway.settings import Settings

logger = logging.getLogger(__name__)

EMBEDDED = "lambda_embedded_gateway"
"""The server's setting under which it stands."""


class EmbeddedGateway:
    """The gateway that serves the lambda kernels of a server, started by the first of them.

    Attributes:
        settings: what was configured.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self._serving: asyncio.Task[None] | None = None
        self._started: asyncio.Future[Gateway] | None = None

    @property
    def gateway(self) -> Gateway | None:
        """The running one; None before its start and after its end."""
        started = self._started
        if started is None or not started.done() or started.cancelled() or started.exception():
            return None
        return started.result()

    async def start(self) -> Gateway:
        """Return the gateway; who comes while it starts waits for the same one.

        Raises:
            StartError: a part cannot start here; the message says which, why and what to do.
            ConfigError: the state directory cannot be used.
        """
        if self._started is None:
            self._started = asyncio.get_running_loop().create_future()
            self._serving = asyncio.create_task(self._serve(self._started))
        return await asyncio.shield(self._started)

    async def stop(self) -> None:
        """Stop what was started; the kernels' records stay, the next gateway finds them."""
        serving, self._serving = self._serving, None
        if serving is not None:
            serving.cancel()
            await asyncio.wait([serving])

    async def _serve(self, started: asyncio.Future[Gateway]) -> None:
        try:
            async with running(self.settings) as gateway:
                # What asks for kernels by jupyter_server's own managers cannot wait for a record.
                await gateway.registry.complete()
                started.set_result(gateway)
                why = await gateway.ended
            logger.error("the lambda kernels' gateway ended: %s", why)
        except asyncio.CancelledError:
            if not started.done():
                started.set_exception(StartError("the server stops"))
            raise
        except Exception as problem:  # it is whoever waits for the start who is told
            logger.exception("the lambda kernels' gateway failed")
            if not started.done():
                started.set_exception(problem)
        finally:
            # The next kernel tries again.
            self._started = None
