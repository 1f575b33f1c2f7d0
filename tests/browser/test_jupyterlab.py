"""JupyterLab in Chromium, as a person sees it: open the quickstart, run all, look at the plot."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.browser.lab import Lab

pytestmark = pytest.mark.browser

QUICKSTART = Path(__file__).parents[2] / "notebooks" / "quickstart.ipynb"


def test_the_quickstart_runs_in_jupyterlab_and_shows_its_plot(lab: Lab) -> None:
    from playwright.sync_api import expect

    shutil.copy(QUICKSTART, lab.server.root)
    notebook = lab.show(QUICKSTART.name)
    notebook.run_all()

    count = notebook.panel.locator(".jp-Notebook .jp-CodeCell").count()
    notebook.is_done(count - 1, count)
    image = notebook.panel.locator(".jp-OutputArea-output img").first
    assert image.evaluate("element => element.naturalWidth") > 200
    expect(notebook.panel).to_contain_text("Hello reader")
    expect(notebook.panel).to_contain_text("PermissionError")
    expect(notebook.panel).not_to_contain_text("Traceback (most recent call last)")
