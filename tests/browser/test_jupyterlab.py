"""JupyterLab in Chromium, as a person sees it: open the quickstart, run all, look at the plot."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser


def test_the_quickstart_runs_in_jupyterlab_and_shows_its_plot(page: Page, lab_url: str) -> None:
    from playwright.sync_api import expect

    page.goto(lab_url.replace("/lab?", "/lab/tree/quickstart.ipynb?"))
    cells = page.locator(".jp-Notebook .jp-CodeCell")
    expect(cells.first).to_be_visible(timeout=60_000)
    expect(page.locator(".jp-KernelName", has_text="Python 3 (Lambda)").first).to_be_visible(
        timeout=30_000
    )
    expect(page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").first).to_be_visible(
        timeout=60_000
    )
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    count = cells.count()
    last = cells.nth(count - 1).locator(".jp-InputArea-prompt")
    shots = Path(os.environ.get("SCREENSHOT_DIR", tempfile.gettempdir()))
    try:
        expect(last).to_have_text(re.compile(rf"\[{count}\]"), timeout=120_000)
    finally:
        page.screenshot(path=shots / "quickstart-in-jupyterlab.png")
    image = page.locator(".jp-OutputArea-output img").first
    expect(image).to_be_visible()
    assert image.evaluate("element => element.naturalWidth") > 200
    notebook = page.locator(".jp-Notebook")
    expect(notebook).to_contain_text("Hello reader")
    expect(notebook).to_contain_text("PermissionError")
    expect(page.locator(".jp-OutputArea-output[data-mime-type*='error']")).to_have_count(0)
