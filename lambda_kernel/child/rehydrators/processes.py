"""Processes that have ended."""

from __future__ import annotations

import subprocess
from typing import Any

from lambda_kernel.child.rehydrators.registry import NotCarried

_PIPES = ("stdin", "stdout", "stderr")


def reduce_popen(process: Any) -> Any:
    """Carry how it ended."""
    if process.poll() is None:
        raise NotCarried(
            "a process ends with the cell that started it",
            "use subprocess.run() and keep its output",
        )
    for name in ("stdout", "stderr"):
        pipe = getattr(process, name)
        if pipe is not None and not pipe.closed:
            raise NotCarried(
                f"its {name} was not read to the end", f"keep it: output = {{name}}.{name}.read()"
            )
    state = {k: v for k, v in vars(process).items() if k not in (*_PIPES, "_fileobj2output")}
    return make_popen, (type(process),), state


def make_popen(cls: type[subprocess.Popen[Any]]) -> Any:
    """Return a process that has ended."""
    process: Any = cls.__new__(cls)
    process._child_created = False
    vars(process).update(dict.fromkeys(_PIPES))
    return process
