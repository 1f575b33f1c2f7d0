"""What the gateway tells the local service, and the lock on the state directory."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from kernel_gateway.environments.environment import Environment
from kernel_gateway.errors import StartError
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.session_policy import MAX_DURATION_S

logger = logging.getLogger(__name__)

REGION = "us-east-1"

RECYCLE_AGE_S = 45 * 60
"""The execution role's credentials last an hour; a container is replaced well before."""

ORPHAN_WAIT_S = 10.0
"""How long the local service of a gateway that was killed may take to end."""
ORPHAN_PAUSE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalSettings:
    """The settings of one local service; JSON on the wire.

    Attributes:
        state_dir: absolute path of everything that is kept.
        stack: names of buckets, roles and functions.
        environments: each is a function; the first is kept warm.
        max_containers: all functions together.
        warm_count: containers kept ready for the first environment.
        idle_container_s: other idle containers are ended after this long.
        session_s: no STS session lives longer than this.
        recycle_age_s: an older container is replaced; well below ``session_s``, as its
            credentials are those of one session.
        log_level: of the service process.
        bootstrap: another bootstrap file, for tests.
        handler_archive: another handler zip, for tests.
        locks_records: the records bucket is made so that it can hold Object Lock.
    """

    state_dir: str
    stack: Stack = field(default_factory=Stack)
    environments: tuple[Environment, ...] = (Environment(),)
    max_containers: int = 4
    warm_count: int = 1
    idle_container_s: float = 600.0
    session_s: int = MAX_DURATION_S
    recycle_age_s: float = RECYCLE_AGE_S
    log_level: str = "WARNING"
    bootstrap: str | None = None
    handler_archive: str | None = None
    locks_records: bool = False


@contextlib.contextmanager
def state_lock(state_dir: Path) -> Iterator[None]:
    """Hold the state directory for this process; the lock ends with the process at the latest.

    A local service whose gateway is gone is about to end: it is waited for.

    Raises:
        StartError: the service of a living gateway holds it, or it cannot be made.
    """
    try:
        state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
        fd = os.open(state_dir / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StartError(f"the state directory {state_dir} cannot be used: {error}") from error
    try:
        _lock(fd, state_dir)
        os.ftruncate(fd, 0)
        # With its gateway's, by which the next service sees whether this one is an orphan.
        os.pwrite(fd, f"{os.getpid()} {os.getppid()}\n".encode(), 0)
        yield
    finally:
        os.close(fd)


def _lock(fd: int, state_dir: Path) -> None:
    give_up: float | None = None
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder, _, gateway = os.pread(fd, 64, 0).decode(errors="replace").strip().partition(" ")
            if give_up is None:
                give_up = time.monotonic() + ORPHAN_WAIT_S
                if not _has_parent(holder, gateway):
                    logger.warning(
                        "waiting for the local service of a gateway that was killed",
                        extra={"pid": holder},
                    )
            if _has_parent(holder, gateway) or time.monotonic() > give_up:
                raise StartError(
                    f"the state directory {state_dir} is in use by another kernel-gateway "
                    f"(process {holder or 'unknown'}); stop it, or give another --state-dir"
                ) from None
            time.sleep(ORPHAN_PAUSE_S)
        else:
            return


def _has_parent(pid: str, parent: str) -> bool:
    """Return whether process ``pid`` still is a child of ``parent``; an orphan is another's."""
    try:
        stat = Path("/proc", pid or "-", "stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[1] == parent
