"""Locked files that say who still needs a gateway, and which kernels still have their process.

The kernel of the operating system lets go of a lock when its holder ends, however it ends: nothing
has to be told to anybody, and nothing is left behind by what was killed.
"""

from __future__ import annotations

import asyncio
import fcntl
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kernel_gateway.errors import GatewayError, NotFound

logger = logging.getLogger(__name__)

USERS_NAME = "users.lock"
STARTING_NAME = "starting.lock"
KERNELS_FOLDER = "kernels"
RETRY_PAUSE_S = 0.05
PAUSE_S = 1.0
"""Between two looks; a look is a listing of one small folder."""


@dataclass(frozen=True, slots=True)
class Lifelines:
    """The locks of one state directory.

    Attributes:
        run_dir: where they stand.
    """

    run_dir: Path

    async def use(self) -> IO[str]:
        """Return a file that keeps the gateway running as long as it is open.

        A gateway that is just ending is waited for; the next one then has to be started.
        """
        return await self._locked(USERS_NAME, fcntl.LOCK_SH)

    async def starting(self) -> IO[str]:
        """Return a file that keeps others from starting a gateway; waits for one who does."""
        return await self._locked(STARTING_NAME, fcntl.LOCK_EX)

    async def until_unused(self, grace_s: float) -> IO[str]:
        """Return when nobody has used the gateway for ``grace_s``.

        Nobody can begin to while the file that is returned is open.
        """
        file = self._opened(USERS_NAME)
        used_s = time.monotonic()
        while True:
            if not _lock(file, fcntl.LOCK_EX):
                used_s = time.monotonic()
            elif time.monotonic() - used_s >= grace_s:
                return file
            else:
                fcntl.flock(file, fcntl.LOCK_UN)
            await asyncio.sleep(PAUSE_S)

    def hold(self, kernel_id: str) -> KernelLifeline:
        """Return what keeps a kernel as long as this process lives."""
        folder = self.run_dir / KERNELS_FOLDER
        folder.mkdir(mode=0o700, exist_ok=True)
        new, path = folder / f".{kernel_id}", folder / kernel_id
        file = new.open("w")
        fcntl.flock(file, fcntl.LOCK_EX)
        # By its name it is never seen without its lock.
        new.replace(path)
        return KernelLifeline(path, file)

    async def watch(self, shutdown: Callable[[str], Awaitable[None]]) -> None:
        """End every kernel whose process has ended without saying so; runs until cancelled.

        Args:
            shutdown: ends the kernel of an id; NotFound where there is none.
        """
        while True:
            for path in self._let_go():
                try:
                    await shutdown(path.name)
                    logger.info("a kernel's process is gone", extra={"kernel_id": path.name})
                except NotFound:
                    pass
                except GatewayError:
                    logger.warning("a kernel could not be ended", exc_info=True)
                    continue
                path.unlink(missing_ok=True)
            await asyncio.sleep(PAUSE_S)

    def _let_go(self) -> list[Path]:
        found = []
        try:
            paths = [p for p in (self.run_dir / KERNELS_FOLDER).iterdir() if p.name[0] != "."]
        except FileNotFoundError:
            return []
        for path in paths:
            try:
                with path.open("r+") as file:
                    if _lock(file, fcntl.LOCK_EX):
                        found.append(path)
            except OSError:
                # Its process ended in good order meanwhile; or it is no lock of ours.
                continue
        return found

    async def _locked(self, name: str, kind: int) -> IO[str]:
        file = self._opened(name)
        try:
            # No thread that waits for a lock: nobody could cancel it.
            while not _lock(file, kind):  # noqa: ASYNC110
                await asyncio.sleep(RETRY_PAUSE_S)
        except BaseException:
            file.close()
            raise
        return file

    def _opened(self, name: str) -> IO[str]:
        self.run_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        return (self.run_dir / name).open("a")


class KernelLifeline:
    """One kernel's process lives, until this is closed or the process ends."""

    def __init__(self, path: Path, file: IO[str]) -> None:
        self._path = path
        self._file = file

    def close(self) -> None:
        """Say that the kernel has been ended."""
        self._path.unlink(missing_ok=True)
        self._file.close()


def _lock(file: IO[str], kind: int) -> bool:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
