"""JupyterLab in front of a gateway, and a page in Chromium."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.driver import Gateway, a_gateway

if TYPE_CHECKING:
    from playwright.sync_api import Page

ROOT = Path(__file__).parents[2]
CHROMIUM_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def lab_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway for JupyterLab to connect to."""
    with a_gateway(tmp_path_factory.mktemp("lab") / "state") as running:
        yield running


@pytest.fixture
def lab_url(lab_gateway: Gateway, tmp_path: Path) -> Iterator[str]:
    """JupyterLab started as a user would: `jupyter lab --gateway-url`."""
    shutil.copy(ROOT / "notebooks" / "quickstart.ipynb", tmp_path)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTER")}
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        environment[name] = str(tmp_path / name.lower())
    log = tmp_path / "lab.log"
    with log.open("w") as stderr:
        lab = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0"]
            + ["--ip=127.0.0.1", f"--ServerApp.root_dir={tmp_path}"]
            + ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
            + ["--gateway-url", lab_gateway.url, "--GatewayClient.auth_token", lab_gateway.token],
            stderr=stderr,
            stdout=subprocess.DEVNULL,
            env=environment,
            cwd=tmp_path,
        )
    while "Use Control-C to stop" not in log.read_text():
        assert lab.poll() is None, log.read_text()
        time.sleep(0.1)
    found = re.search(r"http://127\.0\.0\.1:\d+/lab\?token=\w+", log.read_text())
    assert found
    yield found.group()
    lab.send_signal(signal.SIGTERM)
    lab.wait(20)


@pytest.fixture
def page() -> Iterator[Page]:
    """A page in Debian's Chromium."""
    from playwright.sync_api import sync_playwright

    executable = shutil.which("chromium")
    assert executable, "install Debian's package chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=executable, args=CHROMIUM_ARGUMENTS, headless=True
        )
        opened = browser.new_page(viewport={"width": 1300, "height": 3600})
        yield opened
        browser.close()
