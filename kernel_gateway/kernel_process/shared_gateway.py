"""The one gateway that all kernel processes of a state directory share, started by the first."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from kernel_gateway.client.endpoint import Endpoint
from kernel_gateway.errors import ConfigError, StartError
from kernel_gateway.lifelines import Lifelines
from kernel_gateway.run_file import RUN_FOLDER, RunFile, started_gateway
from kernel_gateway.settings import environment_token

GRACE_S = 10
"""A gateway that nobody uses goes on for so long: the next notebook need not wait for a start."""

START_TIMEOUT_S = 60.0
POLL_PAUSE_S = 0.05
LOG_NAME = "shared-gateway.log"
SHOWN_LOG_CHARACTERS = 2000
STARTER = "import subprocess, sys; print(subprocess.Popen(sys.argv[1:], stdout=-3).pid)"
"""Starts a process, names it and ends: what it started is no descendant of ours."""

NOT_ITS_OWN = ("JUPYTER_TOKEN", "JUPYTER_TOKEN_FILE")
"""Of whoever started the kernel; a shared gateway draws a token for its user."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedGateway:
    """How to find the gateway, and how to start it.

    Attributes:
        state_dir: whose gateway.
        config: its configuration file where it is started here, None for the usual places.
        environ: of whoever starts the kernel; a token may stand there.
    """

    state_dir: Path
    config: str | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)

    @property
    def lifelines(self) -> Lifelines:
        """The locks that keep it running, and its kernels."""
        return Lifelines(self.state_dir / RUN_FOLDER)

    async def find(self) -> Endpoint:
        """Return where it is; it is started where it does not run.

        Call it while `Lifelines.use` is held.

        Raises:
            StartError: it cannot start; the message says why.
            ConfigError: it has identities, and there is no token.
        """
        found = await started_gateway(self.state_dir)
        if found is None:
            with await self.lifelines.starting():
                found = await started_gateway(self.state_dir) or await self._start()
        token = found.token or environment_token(self.environ)
        if token is None:
            raise ConfigError(
                f"the gateway at {found.url} has identities: put one's token into JUPYTER_TOKEN"
            )
        return Endpoint(url=found.url, token=token)

    async def _start(self) -> RunFile:
        log = self.state_dir / "logs" / LOG_NAME
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        begin_bytes = log.stat().st_size if log.exists() else 0
        pid = self._launch(log)
        with suppress(ProcessLookupError), _watched(pid) as ends:
            try:
                async with asyncio.timeout(START_TIMEOUT_S):
                    while not ends.poll(0):
                        found = RunFile.read(self.state_dir)
                        if found is not None and found.pid == pid:
                            return found
                        await asyncio.sleep(POLL_PAUSE_S)
            except TimeoutError:
                os.kill(pid, signal.SIGTERM)
        said = log.read_bytes()[begin_bytes:].decode(errors="replace")[-SHOWN_LOG_CHARACTERS:]
        raise StartError(f"no gateway could be started on {self.state_dir}; it says:\n{said}")

    def _launch(self, log: Path) -> int:
        with log.open("ab") as stderr:
            # Its own session and folder, and no descendant: it outlives this process, and no signal
            # of a terminal or of whoever ends this process with all below it (VS Code) reaches it.
            starter = subprocess.run(
                [sys.executable, "-I", "-S", "-c", STARTER, *self._command()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                cwd=self.state_dir,
                env={k: v for k, v in self.environ.items() if k not in NOT_ITS_OWN},
                start_new_session=True,
                check=True,
            )
        return int(starter.stdout)

    def _command(self) -> list[str]:
        options = ["--port", "0", "--state-dir", str(self.state_dir), "--log-level", "WARNING"]
        if self.config is not None:
            options += ["--config", self.config]
        unused = ["--end-when-unused", str(GRACE_S)]
        # Not the current folder first, see `LocalService.start`.
        return [sys.executable, "-P", "-m", "kernel_gateway", *options, *unused]


@contextmanager
def _watched(pid: int) -> Iterator[select.poll]:
    """Yield what says whether a process has ended (raises ProcessLookupError: long ago)."""
    handle = os.pidfd_open(pid)
    try:
        ends = select.poll()
        ends.register(handle, select.POLLIN)
        yield ends
    finally:
        os.close(handle)
