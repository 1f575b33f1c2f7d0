"""The local service process: ``python -m kernel_gateway.local``, started by the gateway.

Reads LocalSettings as one JSON line from stdin, answers with the Deployment as one JSON line on
stdout, and ends when stdin ends: a gateway that was killed leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import resource
import signal
import sys
from pathlib import Path

from kernel_gateway.errors import StartError
from kernel_gateway.local.settings import LocalSettings, state_lock
from kernel_gateway.local.storage import StorageProcess
from kernel_gateway.local.storage_config import StorageKeys
from kernel_gateway.settings_logging import set_up_logging
from lambda_kernel.contract.schema import InvalidField, decode, encode

logger = logging.getLogger("kernel_gateway.local")


def main() -> int:
    """Run the service; return the exit status."""
    try:
        settings = decode(LocalSettings, json.loads(sys.stdin.buffer.readline()), "settings")
        set_up_logging(settings.log_level)
        os.umask(0o077)
        _raise_file_limit()
        with state_lock(Path(settings.state_dir)):
            asyncio.run(_run(settings))
    except (StartError, InvalidField, ValueError) as error:
        _say({"error": str(error)})
        return 1
    except Exception as error:
        logger.exception("the local service failed")
        _say({"error": f"the local service failed: {error!r}"})
        return 1
    return 0


async def _run(settings: LocalSettings) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    loop.add_reader(sys.stdin.fileno(), _watch_lifeline, stopping)
    async with contextlib.AsyncExitStack() as closing:
        state_dir = Path(settings.state_dir)
        keys = StorageKeys.load_or_create(state_dir / "keys.json")
        storage = await StorageProcess.start(state_dir, settings.stack, keys, settings.session_s)
        closing.push_async_callback(storage.stop)
        # SeaweedFS needs most of a second to come up: boto3 and tornado are loaded meanwhile.
        from kernel_gateway.local.assembly import assemble

        assembling = asyncio.ensure_future(assemble(settings, storage, keys, closing))
        stopped = asyncio.ensure_future(stopping.wait())
        await asyncio.wait({assembling, stopped}, return_when=asyncio.FIRST_COMPLETED)
        if not assembling.done():
            assembling.cancel()
            await asyncio.gather(assembling, return_exceptions=True)
            return
        _say(encode(assembling.result()))
        await stopped
    logger.info("the local service has stopped")


def _watch_lifeline(stopping: asyncio.Event) -> None:
    if not os.read(sys.stdin.fileno(), 4096):
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
        stopping.set()


def _raise_file_limit() -> None:
    # Desktops start programs with 1,024: a few busy containers need more.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _say(message: object) -> None:
    with contextlib.suppress(BrokenPipeError):
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
