"""Which Python runs in a container, and which of the host's folders it needs."""

from __future__ import annotations

import asyncio
import json
import sys
import sysconfig
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from kernel_gateway.errors import StartError

PROBE_TIMEOUT_S = 30

_DESCRIBE = """
import json, sys, sysconfig
base = getattr(sys, "_base_executable", None) or sys.executable
print(json.dumps({
    "base_executable": base if sys.prefix != sys.base_prefix else sys.executable,
    "base_prefix": sys.base_prefix,
    "in_venv": sys.prefix != sys.base_prefix,
    "packages": [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")],
}))
"""

_OWN_SITES = "import json, site; print(json.dumps(site.getsitepackages()))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A base interpreter and the packages it shall see.

    The base interpreter runs, not a venv's: ``pip install --user`` refuses to work in a venv.

    Attributes:
        executable: absolute path, the same on the host and in the container.
        prefix: its installation.
        sites: pairs of (host folder of packages, the base's own site directory it is bound over).
    """

    executable: str
    prefix: str
    sites: tuple[tuple[str, str], ...] = ()


async def find_interpreter(python: str | None) -> Interpreter:
    """Return what a container needs to run ``python`` (None = this very interpreter).

    Raises:
        StartError: it does not run, or has no site directory that could be bound over.
    """
    if python is None or python == sys.executable:
        facts: dict[str, Any] = {
            "base_executable": getattr(sys, "_base_executable", None) or sys.executable,
            "base_prefix": sys.base_prefix,
            "in_venv": sys.prefix != sys.base_prefix,
            "packages": [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")],
        }
    else:
        facts = await _ask(python, "-I", "-c", _DESCRIBE)
    base = str(facts["base_executable"])
    sites: tuple[tuple[str, str], ...] = ()
    if facts["in_venv"]:
        own = await _ask(base, "-I", "-S", "-c", _OWN_SITES)
        sites = pair_sites(facts["packages"], _existing(own))
        if not sites:
            raise StartError(f"{base} has no site-packages folder to show a venv's packages in")
    return Interpreter(executable=base, prefix=str(facts["base_prefix"]), sites=sites)


def pair_sites(packages: Iterable[str], own: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Return which folder of ``packages`` is bound over which of ``own``.

    Args:
        packages: a venv's purelib and platlib, often the same folder.
        own: the base interpreter's existing site directories, in its order.
    """
    free = list(own)
    pairs = []
    for source in dict.fromkeys(packages):
        in_lib64 = "lib64" in PurePosixPath(source).parts
        same_kind = [site for site in free if ("lib64" in PurePosixPath(site).parts) == in_lib64]
        if same_kind:
            free.remove(same_kind[0])
            pairs.append((source, same_kind[0]))
    return tuple(pairs)


def _existing(folders: Iterable[str]) -> list[str]:
    return [folder for folder in folders if Path(folder).is_dir()]


async def _ask(python: str, *arguments: str) -> Any:
    try:
        process = await asyncio.create_subprocess_exec(
            python,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        output, _ = await asyncio.wait_for(process.communicate(), PROBE_TIMEOUT_S)
        return json.loads(output)
    except (OSError, ValueError, TimeoutError) as error:
        raise StartError(f"the interpreter {python} cannot be used: {error}") from error
