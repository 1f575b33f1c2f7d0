"""``python -m kernel_gateway.kernel_process -f FILE``: what ``argv`` of a kernelspec starts."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from kernel_gateway.errors import GatewayError
from kernel_gateway.kernel_process.kernel import be_kernel
from kernel_gateway.kernel_process.link import GatewayLink
from kernel_gateway.kernel_process.parent import watch_parent
from kernel_gateway.kernel_process.shared_gateway import SharedGateway
from kernel_gateway.kernels.options import ENV_NAMES
from kernel_gateway.run_file import default_state_dir
from kernel_gateway.settings_logging import set_up_logging

IPYKERNEL_OPTION = re.compile(r"--\w+\.\w+=")

FAILED = 1


def main() -> int:
    """Be a kernel until it is shut down, and return the process's exit code."""
    parser = argparse.ArgumentParser(prog="kernel_gateway.kernel_process", description=__doc__)
    parser.add_argument("-f", dest="connection_file", type=Path, required=True, metavar="FILE")
    parser.add_argument("--state-dir", type=Path, default=default_state_dir())
    parser.add_argument("--config", help="of the gateway, where it has to be started")
    parser.add_argument("--kernel-name", default="lambda-python")
    options, rest = parser.parse_known_args()
    # nbclient gives every Python kernel options of ipykernel's; none of them means anything here.
    if unknown := [text for text in rest if not IPYKERNEL_OPTION.match(text)]:
        parser.error(f"unrecognized argument: {unknown[0]}")
    set_up_logging("WARNING")
    try:
        return asyncio.run(_main(options))
    except GatewayError as problem:
        print(f"lambda kernel: {problem}", file=sys.stderr)  # noqa: T201
        return FAILED


async def _main(options: argparse.Namespace) -> int:
    ending = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, ending.set)
    # There is nothing to interrupt yet.
    loop.add_signal_handler(signal.SIGINT, lambda: None)
    watch_parent(loop, ending.set)
    be = asyncio.create_task(_be_kernel(options))
    asked = asyncio.create_task(ending.wait())
    await asyncio.wait({be, asked}, return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not be.done():
        be.cancel()
    try:
        await be
    except asyncio.CancelledError:
        return 0
    return 0


async def _be_kernel(options: argparse.Namespace) -> None:
    shared = SharedGateway(
        state_dir=options.state_dir.expanduser().absolute(), config=options.config
    )
    env = {name: os.environ[name] for name in ENV_NAMES if name in os.environ}
    interrupts: set[asyncio.Task[None]] = set()

    def opened(link: GatewayLink) -> None:
        asyncio.get_running_loop().add_signal_handler(
            signal.SIGINT, lambda: _begin(interrupts, link.interrupt())
        )

    await be_kernel(options.connection_file, shared, options.kernel_name, env, opened)


def _begin(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    sys.exit(main())
