"""Pages of JupyterLab that are loaded again, and two at once: what cells said is shown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import lab_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

    from tests.browser.lab import Lab, Notebook
    from tests.integration.driver import Gateway

pytestmark = pytest.mark.browser

LINES = """import itertools, time
from IPython.display import display
shown = display("starting", display_id=True)
for number in itertools.count():
    print("line", number)
    shown.update(f"at {number}")
    time.sleep(0.02)"""


def lines(notebook: Notebook) -> list[int]:
    """Return the numbers of the lines that the first cell shows."""
    return [
        int(each)
        for each in re.findall(r"^line (\d+)$", notebook.output(0).inner_text(), re.MULTILINE)
    ]


def test_a_page_loaded_again_during_a_cell_shows_all_it_said_and_goes_on(lab: Lab) -> None:
    notebook = lab.open("reload", LINES, "print('after', number > 0)")
    notebook.run(0)
    notebook.run(1)
    notebook.shows(0, "line 3")

    notebook.reload()

    notebook.is_running(1)
    notebook.shows(0, "line 0")
    notebook.shows(0, f"line {max(lines(notebook)) + 20}")
    notebook.is_running(0)
    notebook.tool("interrupt")
    notebook.shows(0, "KeyboardInterrupt")
    notebook.is_done(0, 1)
    shown = lines(notebook)
    assert shown == list(range(len(shown)))
    # The display of before the page was loaded again has changed with the cell.
    assert re.search(rf"'at ({len(shown) - 2}|{len(shown) - 1})'", notebook.output(0).inner_text())


def test_a_question_that_was_open_is_asked_by_the_page_loaded_again(lab: Lab) -> None:
    from playwright.sync_api import expect

    notebook = lab.open("question", "print('hello', input('who? '))", "print('next')")
    notebook.run_all()
    expect(notebook.output(0).locator("input")).to_be_visible(timeout=60_000)

    notebook.reload()

    box = notebook.output(0).locator("input")
    expect(box).to_be_visible(timeout=60_000)
    box.fill("Ada")
    box.press("Enter")
    notebook.shows(0, "hello Ada")
    notebook.shows(1, "next")
    notebook.is_done(1, 2)


def test_what_ended_while_no_page_was_open_is_there_when_the_notebook_is_opened(
    lab: Lab, lab_gateway: Gateway, browser: Browser
) -> None:
    from playwright.sync_api import expect

    from tests.browser.lab import Lab as Page

    page = lab_page(browser, lab.server, "away")
    left = Page(page=page, server=lab.server)
    notebook = left.open("away", "name = input('who? ')", "print('hello', name)\n6 * 7", "1 / 0")
    left.command("docmanager:save")
    notebook.run_all()
    field = notebook.output(0).locator("input")
    expect(field).to_be_visible(timeout=60_000)
    cells = f"/api/kernels/{notebook.kernel_id}/cells"
    field.fill("Ada")
    field.press("Enter")
    page.close()
    while [c["status"] for c in lab_gateway.rest("GET", cells).json()][-1] != "error":
        assert lab_gateway.process.poll() is None

    notebook = lab.show("away.ipynb")

    notebook.shows(1, "hello Ada")
    notebook.shows(1, "42")
    notebook.shows(2, "ZeroDivisionError")
    notebook.is_done(0, 1)
    notebook.is_done(1, 2)
    notebook.is_done(2, 3)


def test_two_pages_share_a_kernel(lab: Lab, browser: Browser) -> None:
    from tests.browser.lab import Lab as Page

    notebook = lab.open("shared", "x = 1", "x")
    notebook.run(0)
    notebook.is_done(0, 1)
    lab.command("docmanager:save")

    page = lab_page(browser, lab.server, "second")
    second = Page(page=page, server=lab.server).show("shared.ipynb")
    second.write(0, "x += 1")
    second.run(0)
    second.is_done(0, 2)
    notebook.run(1)
    notebook.shows(1, "2")
    notebook.is_done(1, 3)
    page.close()
