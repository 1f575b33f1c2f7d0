"""What the product is measured against: stock jupyter_server, and a fresh kernel for every cell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from jupyter_client.manager import start_new_kernel

from tests.integration.driver import Gateway


@contextmanager
def stock_server(folder: Path) -> Iterator[Gateway]:
    """Run `jupyter server` with ipykernel; it is spoken to as the gateway is."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTER")}
    process = subprocess.Popen(
        [sys.executable, "-m", "jupyter_server", "--allow-root", "--ip=127.0.0.1", "--port=0"]
        + [f"--ServerApp.root_dir={folder}", "--IdentityProvider.token=stock", "--no-browser"],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        env=environment,
    )
    assert process.stderr is not None
    url = ""
    while not url:
        found = re.search(r"http://127\.0\.0\.1:\d+", process.stderr.readline())
        url = found.group() if found else ""
    yield Gateway(url, "stock", folder, process, [])
    process.send_signal(signal.SIGTERM)
    process.wait(20)
    process.stderr.close()


def fresh_kernel_s(code: str) -> float:
    """Return how long one cell takes in an ipykernel that is started for it, in seconds."""
    began = time.perf_counter()
    manager, client = start_new_kernel(kernel_name="python3", stderr=subprocess.DEVNULL)
    client.execute_interactive(code, output_hook=lambda _: None, timeout=60)
    elapsed = time.perf_counter() - began
    client.stop_channels()
    manager.shutdown_kernel(now=True)
    return elapsed
