"""Writing code in JupyterLab: what Tab and Shift+Tab show of the session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.browser.lab import Lab

pytestmark = pytest.mark.browser

SESSION = '''revenue_last_year, revenue_this_year = 1, 2
class Basket:
    def weight_in_grams(self, tare: int = 0) -> int:
        """Return what it weighs, without so many grams."""
    def weigh_again(self): pass
basket = Basket()'''

KNOWS_SESSION = """async () => {
    const { kernel } = window.jupyterapp.shell.currentWidget.sessionContext.session
    const { content } = await kernel.requestComplete({ code: "reven", cursor_pos: 5 })
    return content.matches.includes("revenue_last_year")
}"""


def test_tab_shows_variables_and_their_attributes_and_shift_tab_a_docstring(lab: Lab) -> None:
    from playwright.sync_api import expect

    notebook = lab.open("writing", SESSION, "")
    notebook.run(0)
    notebook.is_done(0)
    keyboard, choices = lab.page.keyboard, lab.page.locator(".jp-Completer")

    # The first question of a session may be answered without it: a container has to load it.
    lab.page.wait_for_function(KNOWS_SESSION, timeout=60_000)
    notebook.write(1, "print(rev")
    keyboard.press("Tab")
    expect(choices).to_contain_text("revenue_last_year", timeout=30_000)
    expect(choices).to_contain_text("revenue_this_year")
    keyboard.press("Enter")
    expect(notebook.editor(1)).to_have_text("print(revenue_last_year")

    notebook.write(1, "basket.weig")
    keyboard.press("Tab")
    expect(choices).to_contain_text("weight_in_grams", timeout=30_000)
    expect(choices).to_contain_text("weigh_again")
    keyboard.press("Escape")

    notebook.write(1, "basket.weight_in_grams")
    keyboard.press("Shift+Tab")
    tooltip = lab.page.locator(".jp-Tooltip")
    expect(tooltip).to_contain_text("(tare: int = 0) -> int", timeout=30_000)
    expect(tooltip).to_contain_text("Return what it weighs, without so many grams.")
