"""``run/gateway.json``: where a running gateway is, and the lock that says it still runs."""

from __future__ import annotations

import asyncio
import fcntl
import functools
import json
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

import platformdirs

from kernel_gateway.config import Deployment
from kernel_gateway.errors import ConfigError, StartError
from lambda_kernel.contract.schema import encode

APP_NAME = "lambda-kernel-gateway"
RUN_FOLDER = "run"
LOCK_NAME = "gateway.lock"
FILE_NAME = "gateway.json"
DEPLOYMENT_NAME = "deployment.json"
REPLICA_NAME = "replica-id"
LOCK_ATTEMPTS_COUNT = 4
LOCK_PAUSE_S = 0.05
START_TIMEOUT_S = 30.0
POLL_PAUSE_S = 0.1
ROOT_UID = 0
"""Who can read and write everything anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFile:
    """What every command finds about the gateway of a state directory.

    Attributes:
        url: where it serves.
        token: of the local user; None where identities are configured.
        pid: its process.
    """

    url: str
    token: str | None = field(repr=False)
    pid: int

    def write(self, state_dir: Path) -> None:
        """Store it, readable by the owner only, all at once."""
        path = state_dir / RUN_FOLDER / FILE_NAME
        _write_private(path, json.dumps({"url": self.url, "token": self.token, "pid": self.pid}))

    @classmethod
    def read(cls, state_dir: Path) -> RunFile | None:
        """Return what is stored, None where there is nothing that can be read.

        Raises:
            ConfigError: somebody else has written it: who believed it would send its token there.
        """
        path = state_dir / RUN_FOLDER / FILE_NAME
        try:
            with path.open() as file:
                _check_owner(path, os.fstat(file.fileno()))
                facts = json.load(file)
            return cls(url=facts["url"], token=facts["token"], pid=facts["pid"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @staticmethod
    def remove(state_dir: Path) -> None:
        """Remove it; nothing happens where there is none."""
        (state_dir / RUN_FOLDER / FILE_NAME).unlink(missing_ok=True)


def default_state_dir() -> Path:
    """Return where state stands unless told otherwise: the platform's user data directory."""
    return Path(platformdirs.user_data_dir(APP_NAME, appauthor=False))


class StateLock:
    """The state directory is ours until this is released, or the process ends however it ends."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file

    @classmethod
    def acquire(cls, state_dir: Path) -> StateLock:
        """Take the state directory; what a gateway that was killed left there is removed.

        Raises:
            StartError: another gateway has it; the message names process and URL.
            ConfigError: it cannot be made or written.
        """
        try:
            (state_dir / RUN_FOLDER).mkdir(mode=0o700, parents=True, exist_ok=True)
            state_dir.chmod(0o700)
            # No link to a file of ours that somebody could put there before it was closed to them.
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
            file = os.fdopen(os.open(state_dir / RUN_FOLDER / LOCK_NAME, flags, 0o600), "a+")
        except OSError as problem:
            raise ConfigError(f"--state-dir {state_dir}: {problem.strerror}") from problem
        if not _lock(file):
            file.close()
            raise StartError(_in_use(state_dir))
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        RunFile.remove(state_dir)
        return cls(file)

    def release(self) -> None:
        """Give the state directory up."""
        self._file.close()


def own_replica_id(state_dir: Path) -> str:
    """Return the id of the gateway of a state directory, which is ours: drawn once, then the same.

    So a gateway that starts again need not wait until the lease of the one before has expired.
    """
    path = state_dir / REPLICA_NAME
    if not path.exists():
        _write_private(path, uuid.uuid4().hex + "\n")
    return path.read_text().strip()


def tell_deployment(state_dir: Path, deployment: Deployment) -> Callable[[], None]:
    """Write ``run/deployment.json`` for further gateways; return what removes it.

    It holds the gateway's own key: only the owner can read it.
    """
    path = state_dir / RUN_FOLDER / DEPLOYMENT_NAME
    _write_private(path, json.dumps(encode(deployment)) + "\n")
    return functools.partial(path.unlink, missing_ok=True)


def _check_owner(path: Path, found: os.stat_result) -> None:
    if found.st_uid not in {os.getuid(), ROOT_UID}:
        raise ConfigError(
            f"{path} is another user's (uid {found.st_uid}): use a --state-dir of your own"
        )


def _write_private(path: Path, text: str) -> None:
    new = path.with_suffix(f".{os.getpid()}")
    new.unlink(missing_ok=True)
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    new.replace(path)


async def started_gateway(state_dir: Path) -> RunFile | None:
    """Return the gateway that runs on ``state_dir``, or None; one that is starting is waited for.

    Raises:
        StartError: it takes too long.
    """
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            while is_in_use(state_dir):
                found = RunFile.read(state_dir)
                if found is not None:
                    return found
                await asyncio.sleep(POLL_PAUSE_S)
    except TimeoutError:
        raise StartError(_in_use(state_dir)) from None
    return None


def is_in_use(state_dir: Path) -> bool:
    """Return whether a gateway runs on ``state_dir``, or is starting."""
    try:
        file = (state_dir / RUN_FOLDER / LOCK_NAME).open("r")
    except OSError:
        return False
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
        return False


def _lock(file: IO[str]) -> bool:
    # A command that looks whether a gateway runs holds the lock for a moment: so more than once.
    for _ in range(LOCK_ATTEMPTS_COUNT):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            time.sleep(LOCK_PAUSE_S)
        else:
            return True
    return False


def _in_use(state_dir: Path) -> str:
    found = RunFile.read(state_dir)
    try:
        pid = (state_dir / RUN_FOLDER / LOCK_NAME).read_text().strip()
    except OSError:
        pid = ""
    where = f" at {found.url}" if found else " which is just starting"
    return (
        f"the state directory {state_dir} is in use by the gateway with process id "
        f"{pid or 'unknown'}{where}; use that one, stop it, or choose another with --state-dir"
    )
