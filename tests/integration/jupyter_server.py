"""A Jupyter server of its user's with our extension, as a process."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.integration.driver import Gateway

TOKEN = "token-of-the-server"


@contextmanager
def a_server(
    folder: Path,
    state_dir: Path | None = None,
    *,
    module: str = "jupyter_server",
    options: Sequence[str] = (),
) -> Iterator[Gateway]:
    """Start a Jupyter server with the extension, wait until it serves, stop it."""
    environ = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTER")}
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        environ[name] = str(folder / name.lower())
    log, state_dir = folder / "server.log", state_dir or folder / "state"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", module, "--no-browser", "--allow-root", "--port=0"]
            + ["--ip=127.0.0.1", f"--ServerApp.root_dir={folder}"]
            + ["--ServerApp.jpserver_extensions={'kernel_gateway': True}"]
            + [f"--IdentityProvider.token={TOKEN}", f"--KernelGateway.state_dir={state_dir}"]
            + list(options),
            stderr=stderr,
            stdout=subprocess.DEVNULL,
            env=environ,
            cwd=folder,
            text=True,
        )
    try:
        while not (found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
        yield Gateway(found.group(), TOKEN, state_dir, process, [])
    finally:
        process.terminate()
        process.wait(30)
