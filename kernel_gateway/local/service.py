"""The gateway's side of the local service process: start it, keep its lifeline, stop it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import sys
from collections.abc import Callable

from kernel_gateway.config import Deployment
from kernel_gateway.errors import StartError
from kernel_gateway.local.settings import LocalSettings
from lambda_kernel.contract.schema import InvalidField, decode, encode

__all__ = ["LocalService", "LocalSettings"]

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 5.0
LINE_BYTES = 1024 * 1024


class LocalService:
    """The running local service: S3, STS and Lambda on 127.0.0.1.

    Attributes:
        deployment: where its parts are, and the gateway's key.
    """

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        deployment: Deployment,
        on_exit: Callable[[int], None] | None,
    ) -> None:
        self._process = process
        self._on_exit = on_exit
        self._stopping = False
        self.deployment = deployment
        self._watcher = asyncio.ensure_future(self._watch())

    @classmethod
    async def start(
        cls, settings: LocalSettings, on_exit: Callable[[int], None] | None = None
    ) -> LocalService:
        """Return the service once S3, STS and Lambda answer; containers may still be warming.

        Args:
            settings: what is wanted.
            on_exit: called with the exit status if the service ends without having been stopped.

        Raises:
            StartError: it cannot start; the message says why and what to do.
        """
        # A session of its own: Ctrl-C in a terminal reaches only the gateway, which then stops it.
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            # Not the current folder first: a `random.py` of the user's there must not be imported
            # by the process that holds the keys of storage.
            "-P",
            "-m",
            "kernel_gateway.local",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=LINE_BYTES,
        )
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                deployment = await _handshake(process, settings)
        except TimeoutError:
            await _end(process)
            raise StartError(
                f"the local service was not ready after {START_TIMEOUT_S:.0f} s"
            ) from None
        except BaseException:
            await _end(process)
            raise
        return cls(process, deployment, on_exit)

    @property
    def pid(self) -> int:
        """The service's process id."""
        return self._process.pid

    async def stop(self) -> None:
        """End the service and everything it started, within seconds."""
        self._stopping = True
        await _end(self._process)
        await self._watcher

    async def _watch(self) -> None:
        status = await self._process.wait()
        if not self._stopping:
            logger.error("the local service has ended", extra={"status": status})
            if self._on_exit is not None:
                self._on_exit(status)


async def _handshake(process: asyncio.subprocess.Process, settings: LocalSettings) -> Deployment:
    assert process.stdin is not None  # noqa: S101  (both were asked for)
    assert process.stdout is not None  # noqa: S101
    with contextlib.suppress(ConnectionError):
        process.stdin.write(json.dumps(encode(settings)).encode() + b"\n")
        await process.stdin.drain()
    line = await process.stdout.readline()
    try:
        answer = json.loads(line)
        if "error" in answer:
            raise StartError(str(answer["error"]))
        return decode(Deployment, answer, "deployment")
    except (ValueError, InvalidField) as error:
        raise StartError(
            "the local service ended before it was ready; its messages stand above"
        ) from error


async def _end(process: asyncio.subprocess.Process) -> None:
    assert process.stdin is not None  # noqa: S101  (it was asked for)
    process.stdin.close()  # the lifeline
    try:
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT_S)
    except TimeoutError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
