"""JupyterLab in front of a gateway, and a page in Chromium; both once for all tests."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.integration.driver import Gateway, a_gateway

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    from tests.browser.lab import Lab, LabServer

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
SETTINGS = {
    "apputils-extension/notification": {"fetchNews": "false"},
    # JupyterLab gives up after 1,000 ms, which a busy machine may need.
    "completer-extension/manager": {"providerTimeout": 30_000},
}


@pytest.fixture(scope="session")
def lab_gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway for JupyterLab to connect to."""
    with a_gateway(tmp_path_factory.mktemp("gateway") / "state") as running:
        yield running


@pytest.fixture(scope="session")
def lab_server(
    lab_gateway: Gateway, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LabServer]:
    """JupyterLab started as a user would: `jupyter lab --gateway-url`, with our extension."""
    from tests.browser.lab import LabServer

    root = tmp_path_factory.mktemp("lab")
    environment = {k: v for k, v in os.environ.items() if not k.startswith("JUPYTER")}
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        environment[name] = str(root / f".{name.lower()}")
    for plugin, settings in SETTINGS.items():
        file = root / ".jupyter_config_dir/lab/user-settings/@jupyterlab" / plugin
        file.parent.mkdir(parents=True)
        file.with_suffix(".jupyterlab-settings").write_text(json.dumps(settings))
    lab = subprocess.Popen(
        [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--port=0"]
        + ["--ip=127.0.0.1", f"--ServerApp.root_dir={root}", "--LabApp.expose_app_in_browser=True"]
        + ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
        + [f"--LabApp.extra_labextensions_path={ROOT / 'kernel_gateway' / 'labextensions'}"]
        + ["--gateway-url", lab_gateway.url, "--GatewayClient.auth_token", lab_gateway.token],
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=environment,
        cwd=root,
        text=True,
    )
    url, log = None, []
    assert lab.stderr is not None
    with (root / ".lab.log").open("w") as kept:
        while url is None:
            log.append(lab.stderr.readline())
            assert log[-1], "".join(log)
            url = re.search(r"http://127\.0\.0\.1:\d+/lab\?token=\w+", log[-1])
        # What it says later must be read, else it stops when the pipe is full.
        reader = subprocess.Popen(["cat"], stdin=lab.stderr, stdout=kept)
    yield LabServer(url=url.group(), root=root)
    lab.send_signal(signal.SIGTERM)
    lab.wait(20)
    lab.stderr.close()
    reader.wait(20)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Debian's Chromium."""
    from playwright.sync_api import sync_playwright

    executable = shutil.which("chromium")
    assert executable, "install Debian's package chromium"
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(
            executable_path=executable, args=CHROMIUM_ARGUMENTS, headless=True
        )
        yield opened
        opened.close()


def lab_page(browser: Browser, server: LabServer, workspace: str) -> Page:
    """Return a page with JupyterLab, without a document."""
    from playwright.sync_api import expect

    page = browser.new_page(viewport={"width": 1200, "height": 1000})
    page.goto(server.address(workspace))
    expect(page.locator("#jp-main-dock-panel")).to_be_visible(timeout=60_000)
    page.evaluate("async () => { await window.jupyterapp.restored }")
    return page


@pytest.fixture(scope="session")
def first_page(browser: Browser, lab_server: LabServer) -> Page:
    """One page for all tests: to load JupyterLab takes longer than most of them."""
    return lab_page(browser, lab_server, "first")


@pytest.fixture
def lab(
    first_page: Page, lab_server: LabServer, request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[Lab]:
    """JupyterLab without a document; what it shows at the end is kept as a picture.

    The picture is in the test's folder, or in SCREENSHOT_DIR under the test's name.
    """
    from tests.browser.lab import Lab

    shown = Lab(page=first_page, server=lab_server)
    yield shown
    name = request.node.name.removeprefix("test_")
    folder = os.environ.get("SCREENSHOT_DIR")
    first_page.screenshot(path=Path(folder) / f"{name}.png" if folder else tmp_path / "page.png")
    shown.close_all()
