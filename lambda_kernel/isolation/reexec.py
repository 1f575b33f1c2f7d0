"""Re-execution with a clean environment: stage 1 holds the credentials, stage 2 serves.

What stage 1 read travels to stage 2 through a pipe, never in arguments or environment, which stay
readable in ``/proc`` for as long as a process lives.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import resource
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lambda_kernel.isolation import code, environment, interpreter, linux

logger = logging.getLogger(__name__)

LOG_LINE = "credential isolation: re-executing with a clean environment"
"""Source: product.md 3."""

STAGE_2 = "--stage-2"
_MAX_STATE_BYTES = 1024 * 1024


class StageMismatch(RuntimeError):
    """Stage 2 is not what stage 1 started; the container must not serve."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage2:
    """What stage 1 hands over.

    Attributes:
        platform: the function's whole environment, credentials included.
        environment: the clean environment that stage 2 itself and its children have.
        handler_dir: the folder that stage 1 ran from.
        code_fd: the sealed archive of our package.
        degraded: why there is no execute-only interpreter; empty where there is one.
    """

    platform: Mapping[str, str]
    environment: Mapping[str, str]
    handler_dir: str
    code_fd: int
    degraded: str


def is_stage_2(arguments: Sequence[str]) -> bool:
    """Return whether this process was started by ``enter_stage_2``."""
    return len(arguments) > 1 and arguments[1] == STAGE_2


def enter_stage_2() -> None:
    """Replace this process by stage 2; comes back only by an exception."""
    package = Path(__file__).resolve().parent.parent
    degraded = ""
    interpreter_fd: int | None = None
    try:
        _give_up_privileges()
        interpreter_fd = interpreter.open_exec_only()
    except (interpreter.NoExecOnlyInterpreter, OSError) as error:
        degraded = str(error)
        logger.error("credential isolation: no execute-only interpreter", extra={"why": degraded})  # noqa: TRY400
    code_fd = code.sealed_package(package)
    kept = environment.clean(os.environ)
    state = {
        "platform": dict(os.environ),
        "environment": kept,
        "handler_dir": os.getcwd(),  # noqa: PTH109
        "degraded": degraded,
        "version": sys.version,
        "prefix": sys.prefix,
    }
    reader = _state_pipe(json.dumps(state).encode())
    passed = (reader, code_fd)
    for descriptor in passed:
        os.set_inheritable(descriptor, True)
    # The folder of the handler is writable by user code: nothing may be imported from it again.
    os.chdir("/")
    arguments = [sys.executable, "-s", "-m", "lambda_kernel", STAGE_2, *map(str, passed)]
    clean = {**kept, **interpreter.loader_environment(), "PYTHONPATH": code.import_path(code_fd)}
    logger.info(LOG_LINE)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(  # noqa: S606
        sys.executable if interpreter_fd is None else interpreter_fd, arguments, clean
    )


def read_stage_2(arguments: Sequence[str]) -> Stage2:
    """Return what stage 1 handed over, after checking that this process is what it meant.

    Raises:
        StageMismatch: another Python came up, or a secret is still in the environment.
    """
    descriptors = [int(text) for text in arguments[2:]]
    state = _read_all(descriptors[0])
    for descriptor in descriptors[1:]:
        os.set_inheritable(descriptor, False)
    if (state["version"], state["prefix"]) != (sys.version, sys.prefix):
        raise StageMismatch(f"stage 2 is another Python: {sys.version} in {sys.prefix}")
    left = environment.secrets_left(os.environ)
    if left:
        raise StageMismatch(f"stage 2 still has {', '.join(left)} in its environment")
    for name in ("PYTHONPATH", "LD_LIBRARY_PATH"):
        os.environ.pop(name, None)
    return Stage2(
        platform=state["platform"],
        environment=state["environment"],
        handler_dir=state["handler_dir"],
        code_fd=descriptors[1],
        degraded=state["degraded"],
    )


def _give_up_privileges() -> None:
    # With CAP_DAC_OVERRIDE or CAP_DAC_READ_SEARCH an execute-only file is as good as readable. The
    # probe finds out where they stay.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if linux.has_capabilities():
        linux.drop_capabilities()


def _state_pipe(body: bytes) -> int:
    reader, writer = os.pipe()
    if len(body) > _MAX_STATE_BYTES:
        raise StageMismatch(f"an environment of {len(body)} bytes is too large to hand over")
    if len(body) > fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ):
        fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, _MAX_STATE_BYTES)
    os.write(writer, body)
    os.close(writer)
    return reader


def _read_all(reader: int) -> dict[str, Any]:
    with open(reader, "rb") as source:
        state: dict[str, Any] = json.loads(source.read())
    return state
