"""A kernel's life in JupyterLab: restarts, cells that die, widgets that are left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.browser.lab import Lab

pytestmark = pytest.mark.browser


def test_restart_empties_the_session_and_restart_and_run_all_fills_it_again(lab: Lab) -> None:
    notebook = lab.open("restart", "x = 6 * 7\nx", "x + 1")
    notebook.run_all()
    notebook.is_done(1, 2)

    lab.menu("Kernel", "kernelmenu:restart")
    lab.accept("Do you want to restart the kernel")
    notebook.ready()
    notebook.run(1)
    notebook.shows(1, "NameError: name 'x' is not defined")
    notebook.is_done(1, 1)

    notebook.tool("restart-and-run")
    lab.accept("Do you want to restart the kernel")
    notebook.is_done(1, 2)
    notebook.shows(1, "43")


def test_a_cell_that_is_killed_says_so_and_the_session_is_as_before_it(lab: Lab) -> None:
    from playwright.sync_api import expect

    notebook = lab.open(
        "killed",
        "x = 1",
        "x = 2\nimport os\nprint('here', flush=True)\nos.kill(os.getpid(), 9)",
        "x",
    )
    notebook.run_all()
    notebook.shows(1, "here")
    notebook.shows(1, "CellProcessDied: the cell's process ended")
    expect(lab.page.locator(".jp-Dialog")).to_have_count(0)
    notebook.run(2)
    notebook.shows(2, "1")


def test_a_widget_of_before_a_restart_is_shown_as_disconnected(lab: Lab) -> None:
    from playwright.sync_api import expect

    notebook = lab.open(
        "inert", "import ipywidgets\nipywidgets.IntSlider(3, description='N')", "'again'"
    )
    notebook.run(0)
    handle = notebook.output(0).locator(".noUi-handle")
    expect(handle).to_be_visible(timeout=60_000)
    lab.menu("Kernel", "kernelmenu:restart")
    lab.accept("Do you want to restart the kernel")
    notebook.ready()

    # JupyterLab's own sign: a broken link.
    expect(notebook.output(0).locator(".jupyter-widgets-disconnected")).to_be_visible()
    handle.press("ArrowRight")
    notebook.run(1)
    notebook.is_done(1, 1)
