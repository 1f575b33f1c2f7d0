"""Widgets in JupyterLab: shown, moved, clicked, and found again when the page is loaded again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.browser.lab import Lab

pytestmark = pytest.mark.browser

CELLS = (
    "import ipywidgets as w\nfrom IPython.display import display\n"
    "s = w.IntSlider(3, description='N')\nout = w.Output()\nb = w.Button(description='press me')\n"
    "def pressed(button):\n    with out:\n        print('pressed at', s.value)\n"
    "b.on_click(pressed)\ndisplay(w.VBox([s, b, out]))",
    "@w.interact(x=(0, 10))\ndef double(x=4):\n    return f'twice is {2 * x}'",
)


def test_a_slider_a_button_and_an_interact_work_and_survive_a_reload(lab: Lab) -> None:
    from playwright.sync_api import expect

    notebook = lab.open("widgets", *CELLS)
    notebook.run_all()
    notebook.is_done(1)
    slider = notebook.panel.locator(".widget-slider .noUi-handle")
    expect(slider).to_have_count(2, timeout=60_000)
    slider.nth(0).press("ArrowRight")
    expect(notebook.panel.locator(".widget-readout").first).to_have_text("4")
    notebook.panel.get_by_role("button", name="press me").click()
    notebook.shows(0, "pressed at 4")
    slider.nth(1).press("ArrowRight")
    notebook.shows(1, "twice is 10")

    lab.command("docmanager:save")
    notebook.reload()
    expect(slider).to_have_count(2, timeout=60_000)
    expect(notebook.panel.locator(".widget-readout").first).to_have_text("4")
    slider.nth(1).press("ArrowRight")
    notebook.shows(1, "twice is 12")
