"""Which Python an environment runs, for kernel_info_reply: it may be another than the gateway's."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Iterable

from kernel_gateway.environments.environment import Environment

logger = logging.getLogger(__name__)

ASK_TIMEOUT_S = 10.0
_VERSION = "import sys; print(sys.version.split()[0])"


async def versions_of(environments: Iterable[Environment]) -> dict[str, str]:
    """Return the versions of the environments that name an interpreter of their own, by id.

    One that cannot be asked here is left out: what runs its cells will say what is wrong.
    """
    asked = {e.id: e.python for e in environments if e.python not in (None, sys.executable)}
    found = await asyncio.gather(*(_ask(str(python)) for python in asked.values()))
    return {name: version for name, version in zip(asked, found, strict=True) if version}


async def _ask(python: str) -> str:
    try:
        process = await asyncio.create_subprocess_exec(
            *(python, "-I", "-S", "-c", _VERSION),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        output, _ = await asyncio.wait_for(process.communicate(), ASK_TIMEOUT_S)
    except (OSError, TimeoutError):
        logger.warning("an interpreter does not tell its version", extra={"python": python})
        return ""
    return output.decode("ascii", "replace").strip()
