"""Starting a program under bubblewrap: the descriptors it is given and the pid it reports."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from kernel_gateway.errors import StartError

Argv = Callable[[int, Mapping[str, int]], list[str]]
"""Makes the command line from the info descriptor and the descriptors of files by path."""


async def start_sandbox(
    argv: Argv,
    *,
    files: Mapping[str, str],
    pass_fds: Sequence[int] = (),
    environment: Mapping[str, str],
    output: int | IO[bytes],
) -> tuple[asyncio.subprocess.Process, int]:
    """Return bubblewrap's process and the host's pid of the first process in the sandbox.

    Must be called on the main thread: ``--die-with-parent`` follows the spawning thread.

    Args:
        argv: makes the command line.
        files: content by path in the sandbox; handed over without a file on the host.
        pass_fds: further descriptors that the program inherits.
        environment: all of bubblewrap's environment.
        output: where stdout and stderr go.

    Returns:
        The pid is 0 where bubblewrap ended before it made a process.

    Raises:
        StartError: bubblewrap cannot be executed.
    """
    info_read, info_write = os.pipe()
    file_fds = {path: memory_file(content.encode()) for path, content in files.items()}
    try:
        process = await asyncio.create_subprocess_exec(
            *argv(info_write, file_fds),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            pass_fds=[info_write, *file_fds.values(), *pass_fds],
            env=dict(environment),
            cwd="/",
        )
    except OSError as error:
        os.close(info_read)
        raise StartError(f"bubblewrap cannot be run: {error}") from error
    finally:
        for fd in (info_write, *file_fds.values()):
            os.close(fd)
    return process, await _first_pid(info_read)


def memory_file(content: bytes) -> int:
    """Return a descriptor of a file without a name, at its beginning."""
    fd = os.memfd_create("sandbox")
    os.write(fd, content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


async def _first_pid(info_read: int) -> int:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    transport, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(info_read, "rb", 0)
    )
    try:
        return int(json.loads(await reader.readuntil(b"}"))["child-pid"])
    except asyncio.IncompleteReadError:
        return 0
    finally:
        transport.close()
