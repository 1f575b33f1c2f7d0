"""An interpreter that may be executed but not read: its processes are non-dumpable from the start.

A process whose executable its own user may not read is non-dumpable in the kernel's eyes from its
first instruction, so that another process of the same user can open neither its ``environ`` nor
its ``mem`` or ``maps``. prctl(2), which could achieve the same later, is refused on AWS Lambda.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

logger = logging.getLogger(__name__)

EXECUTE_ONLY = 0o111
MFD_EXEC = 0x10
"""Source: memfd_create(2), Linux 6.3; older kernels answer EINVAL and need no flag."""


class NoExecOnlyInterpreter(RuntimeError):
    """No copy of the interpreter could be made that runs; the message says what was tried."""


def copy_exec_only(executable: str) -> int:
    """Return an O_PATH descriptor of a new execute-only copy, made as one that was seen to run.

    Each process that is started gets a copy of its own: a copy belongs to the user that also runs
    cells, and a child reaches that of its zygote (``/proc/self/exe``). Were it made readable, what
    is executed from it later would be open to every cell.

    Raises:
        OSError: it cannot be made.
    """
    try:
        return _copy_in_memory(executable)
    except OSError:
        return _copy_in_tmp(executable)


def open_exec_only(executable: str = "/proc/self/exe") -> int:
    """Return an O_PATH descriptor of an execute-only copy of the interpreter that runs.

    The copy has no name: it goes away with its last descriptor and process.

    Raises:
        NoExecOnlyInterpreter: neither a memfd nor an unlinked file in ``/tmp`` runs.
    """
    reasons = []
    for make in (_copy_in_memory, _copy_in_tmp):
        try:
            descriptor = make(executable)
        except OSError as error:
            reasons.append(f"{make.__name__}: {error}")
            continue
        problem = _trial_problem(descriptor)
        if problem is None:
            return descriptor
        os.close(descriptor)
        reasons.append(f"{make.__name__}: {problem}")
    raise NoExecOnlyInterpreter("; ".join(reasons))


def library_path() -> str | None:
    """Return the folder of the shared libpython this process runs, or None where it is static.

    A copy of the executable has another ``$ORIGIN``: the loader would not find its library, or
    silently find another one.
    """
    for line in Path("/proc/self/maps").read_text().splitlines():
        name = line.partition("/")[2]
        if name.rpartition("/")[2].startswith("libpython"):
            return f"/{name}".rpartition("/")[0]
    return None


def loader_environment() -> dict[str, str]:
    """Return the variables that a copy of the interpreter needs to find its library."""
    folder = library_path()
    return {} if folder is None else {"LD_LIBRARY_PATH": folder}


def spawn(
    descriptor: int | None,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    descriptors: Mapping[int, int],
) -> int:
    """Start a process of the execute-only interpreter and return its pid.

    Args:
        descriptor: from ``open_exec_only``; None runs the ordinary interpreter.
        arguments: what follows ``sys.executable``.
        environment: its whole environment.
        descriptors: number in the new process -> descriptor here; 0, 1 and 2 are inherited.
    """
    actions = [
        (os.POSIX_SPAWN_DUP2, own, number) for number, own in descriptors.items() if own != number
    ]
    kept = [own for number, own in descriptors.items() if own == number]
    for own in kept:
        os.set_inheritable(own, True)
    try:
        return os.posix_spawn(
            sys.executable if descriptor is None else f"/proc/self/fd/{descriptor}",
            [sys.executable, *arguments],
            {**environment, **loader_environment()},
            file_actions=actions,
        )
    finally:
        for own in kept:
            os.set_inheritable(own, False)


def _copy_in_memory(executable: str) -> int:
    try:
        copy = os.memfd_create("python", os.MFD_CLOEXEC | MFD_EXEC)
    except OSError:
        copy = os.memfd_create("python", os.MFD_CLOEXEC)
    return _fill(copy, executable)


def _copy_in_tmp(executable: str) -> int:
    copy, path = tempfile.mkstemp(prefix=".python-", dir="/tmp")
    try:
        return _fill(copy, executable)
    finally:
        Path(path).unlink()


def _fill(copy: int, executable: str) -> int:
    # The writer must be closed before the copy runs, else ETXTBSY.
    try:
        with open(executable, "rb") as source, open(copy, "wb", closefd=False) as target:  # noqa: PTH123
            shutil.copyfileobj(source, target, 1024 * 1024)
        os.fchmod(copy, EXECUTE_ONLY)
        return os.open(f"/proc/self/fd/{copy}", os.O_PATH | os.O_CLOEXEC)
    finally:
        os.close(copy)


def _trial_problem(descriptor: int) -> str | None:
    reader, writer = os.pipe()
    try:
        try:
            pid = spawn(
                descriptor,
                ["-I", "-S", "-c", "import os, sys; os.write(9, sys.version.encode())"],
                {},
                {9: writer},
            )
        except OSError as error:
            return str(error)
        finally:
            os.close(writer)
        said = os.read(reader, 4096).decode(errors="replace")
        _, status = os.waitpid(pid, 0)
    finally:
        os.close(reader)
    if status != 0:
        return f"the trial run ended with {os.waitstatus_to_exitcode(status)}"
    if said != sys.version:
        return f"the trial run is another Python: {said!r}"
    return None
