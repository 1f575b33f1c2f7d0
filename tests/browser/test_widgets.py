"""Widgets in JupyterLab: shown, moved, clicked, and found again when the page is loaded again."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser

CELLS = (
    "import ipywidgets as w\nfrom IPython.display import display\n"
    "s = w.IntSlider(3, description='N')\nout = w.Output()\nb = w.Button(description='press me')\n"
    "def pressed(button):\n    with out:\n        print('pressed at', s.value)\n"
    "b.on_click(pressed)\ndisplay(w.VBox([s, b, out]))",
    "@w.interact(x=(0, 10))\ndef double(x=4):\n    return f'twice is {2 * x}'",
)


def test_a_slider_a_button_and_an_interact_work_and_survive_a_reload(
    page: Page, lab_url: str, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    cells = [nbformat.v4.new_code_cell(code) for code in CELLS]
    metadata = {"kernelspec": {"name": "lambda-python", "display_name": "Python 3 (Lambda)"}}
    notebook = nbformat.v4.new_notebook(cells=cells, metadata=metadata)
    nbformat.write(notebook, tmp_path / "widgets.ipynb")
    page.goto(lab_url.replace("/lab?", "/lab/tree/widgets.ipynb?"))
    shots = Path(os.environ.get("SCREENSHOT_DIR", tempfile.gettempdir()))
    expect(page.locator(".jp-Notebook .jp-CodeCell").first).to_be_visible(timeout=60_000)
    expect(page.locator(".jp-KernelName", has_text="Python 3 (Lambda)").first).to_be_visible(
        timeout=30_000
    )
    idle = page.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']").first
    expect(idle).to_be_visible(timeout=60_000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
    try:
        slider = page.locator(".widget-slider .noUi-handle")
        expect(slider).to_have_count(2, timeout=60_000)
        slider.nth(0).press("ArrowRight")
        expect(page.locator(".widget-readout").first).to_have_text("4")
        page.get_by_role("button", name="press me").click()
        shown = page.locator(".jp-Notebook")
        expect(shown).to_contain_text("pressed at 4", timeout=30_000)
        slider.nth(1).press("ArrowRight")
        expect(shown).to_contain_text("twice is 10", timeout=30_000)
        page.screenshot(path=shots / "widgets-in-jupyterlab.png")

        page.keyboard.press("Control+s")
        page.reload()
        expect(page.locator(".widget-slider .noUi-handle")).to_have_count(2, timeout=60_000)
        expect(page.locator(".widget-readout").first).to_have_text("4")
        page.locator(".widget-slider .noUi-handle").nth(1).press("ArrowRight")
        expect(page.locator(".jp-Notebook")).to_contain_text("twice is 12", timeout=30_000)
    finally:
        page.screenshot(path=shots / "widgets-after-reload-in-jupyterlab.png")
