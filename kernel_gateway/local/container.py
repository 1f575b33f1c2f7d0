"""One container: spawned by bubblewrap, its listeners brought out, killed as a whole."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from kernel_gateway.errors import StartError
from kernel_gateway.local.bubblewrap import (
    SYNTHETIC_FILES,
    ContainerSpec,
    container_argv,
    start_problem,
)
from kernel_gateway.local.container_init import PORTS
from kernel_gateway.local.container_log import ContainerLog
from kernel_gateway.local.sandbox import memory_file, start_sandbox

logger = logging.getLogger(__name__)

START_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Listening sockets in the container's network namespace, held by the host."""

    runtime: socket.socket
    s3: socket.socket
    aws: socket.socket

    def close(self) -> None:
        """Close those that no server has taken over."""
        for listener in (self.runtime, self.s3, self.aws):
            listener.close()


class Container(Protocol):
    """A running container as the Lambda service knows it."""

    listeners: Listeners

    async def begin(self, environment: Mapping[str, str]) -> None:
        """Let the runtime start with exactly this environment (raises StartError)."""

    async def wait(self) -> int:
        """Return the exit status once nothing of the container runs any more."""

    def kill(self) -> None:
        """Kill every process in it; does nothing where it has ended."""


class BubblewrapContainer:
    """A container made by bubblewrap."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        *,
        first_pid: int,
        control: socket.socket,
        listeners: Listeners,
        followers: asyncio.Task[None],
    ) -> None:
        self._process = process
        self._first_pid = first_pid
        self._control = control
        self._followers = followers
        self.listeners = listeners

    @classmethod
    async def spawn(cls, spec: ContainerSpec, log: ContainerLog) -> BubblewrapContainer:
        """Return a container whose shim waits for the environment.

        Must be called on the main thread: ``--die-with-parent`` follows the spawning thread.

        Raises:
            StartError: bubblewrap or the shim failed; the message says what to do.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        control_fd = theirs.fileno()
        seccomp_fd = None if spec.seccomp is None else memory_file(spec.seccomp)
        try:
            process, first_pid = await start_sandbox(
                lambda info_fd, file_fds: container_argv(
                    spec,
                    control_fd=control_fd,
                    info_fd=info_fd,
                    file_fds=file_fds,
                    seccomp_fd=seccomp_fd,
                ),
                files=SYNTHETIC_FILES,
                pass_fds=[control_fd] if seccomp_fd is None else [control_fd, seccomp_fd],
                environment={},
                output=asyncio.subprocess.PIPE,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
            if seccomp_fd is not None:
                os.close(seccomp_fd)
        followers = asyncio.ensure_future(_follow(process, log))
        try:
            async with asyncio.timeout(START_TIMEOUT_S):
                listeners = await _receive_listeners(ours)
        except BaseException as error:
            ours.close()
            await _end(process, followers)
            if isinstance(error, TimeoutError | ValueError | OSError):
                raise StartError(start_problem(log.tail)) from error
            raise
        return cls(
            process,
            first_pid=first_pid,
            control=ours,
            listeners=listeners,
            followers=followers,
        )

    async def begin(self, environment: Mapping[str, str]) -> None:
        """Let the runtime start with exactly this environment (raises StartError)."""
        line = json.dumps({"env": dict(environment)}).encode() + b"\n"
        try:
            await asyncio.get_running_loop().sock_sendall(self._control, line)
        except OSError as error:
            raise StartError("the container ended before its runtime could start") from error
        finally:
            self._control.close()

    async def wait(self) -> int:
        """Return the exit status once nothing of the container runs any more."""
        status = await self._process.wait()
        await self._followers
        self._control.close()
        return status

    def kill(self) -> None:
        """Kill every process in it; does nothing where it has ended."""
        if self._process.returncode is None and self._first_pid:
            # The end of a pid namespace's first process is the end of all of them; bubblewrap,
            # its parent, then ends by itself.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._first_pid, signal.SIGKILL)


async def _end(process: asyncio.subprocess.Process, followers: asyncio.Task[None]) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    await process.wait()
    await followers


async def _follow(process: asyncio.subprocess.Process, log: ContainerLog) -> None:
    assert process.stdout is not None  # noqa: S101  (both were asked for)
    assert process.stderr is not None  # noqa: S101
    await asyncio.gather(log.follow(process.stdout, "stdout"), log.follow(process.stderr, "stderr"))


async def _receive_listeners(control: socket.socket) -> Listeners:
    control.setblocking(False)
    await _readable(control)
    line, fds, _, _ = socket.recv_fds(control, 4096, len(PORTS))
    if not line.endswith(b"\n") or len(fds) != len(PORTS):
        for fd in fds:
            os.close(fd)
        raise ValueError("the shim ended early")
    sockets = [socket.socket(fileno=fd) for fd in fds]
    for listener in sockets:
        listener.setblocking(False)
    runtime, s3, aws = sockets
    return Listeners(runtime=runtime, s3=s3, aws=aws)


async def _readable(sock: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()
    loop.add_reader(sock, _resolve, ready)
    try:
        await ready
    finally:
        loop.remove_reader(sock)


def _resolve(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)
