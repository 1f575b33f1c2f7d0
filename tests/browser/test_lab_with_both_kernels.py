"""One JupyterLab with a local kernel and a lambda kernel, as a person sees it."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import nbformat
import pytest

from tests.integration.jupyter_server import TOKEN, a_server

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.browser

WHERE = "import os, sys\nprint(os.getcwd())\nsum(range(10))"


@pytest.fixture
def lab_url(tmp_path: Path) -> Iterator[str]:
    """JupyterLab with the extension, and a notebook of each kind."""
    for kernel_name in ("python3", "lambda-python"):
        notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(WHERE)])
        notebook.metadata["kernelspec"] = {"name": kernel_name, "display_name": kernel_name}
        nbformat.write(notebook, tmp_path / f"{kernel_name}.ipynb")
    options = ["--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate"]
    with a_server(tmp_path, module="jupyterlab", options=options) as server:
        yield f"{server.url}/lab/tree/{{}}?token={TOKEN}"


def test_a_local_and_a_lambda_kernel_run_beside_each_other(
    browser: Browser, lab_url: str, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    page = browser.new_page(viewport={"width": 1300, "height": 1100})
    page.goto(lab_url.format("python3.ipynb"))
    notebook = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")
    expect(notebook.locator(".jp-KernelName")).to_contain_text("ipykernel", timeout=60_000)
    run_all(page, notebook)
    expect(notebook.locator(".jp-OutputArea").first).to_contain_text(str(tmp_path), timeout=60_000)
    page.get_by_role("listitem", name=re.compile("^Name: lambda-python.ipynb")).dblclick()
    expect(notebook.locator(".jp-KernelName")).to_contain_text("(Lambda)", timeout=60_000)
    run_all(page, notebook)
    output = notebook.locator(".jp-OutputArea").first
    expect(output).to_contain_text("45", timeout=120_000)
    expect(output).not_to_contain_text(str(tmp_path))
    expect(notebook.locator(".jp-InputArea-prompt").first).to_have_text(re.compile(r"\[1\]"))
    page.get_by_role("tab", name=re.compile("^Running Terminals and Kernels")).click()
    running = page.locator(".jp-RunningSessions")
    expect(running).to_contain_text("python3.ipynb")
    expect(running).to_contain_text("lambda-python.ipynb")
    shots = Path(os.environ.get("SCREENSHOT_DIR", tempfile.gettempdir()))
    page.screenshot(path=shots / "both-kernels-in-jupyterlab.png")


def run_all(page: Page, notebook: Locator) -> None:
    """Choose Run, Run All Cells, once the kernel is there."""
    from playwright.sync_api import expect

    indicator = notebook.locator(".jp-Notebook-ExecutionIndicator[data-status='idle']")
    expect(indicator.first).to_be_visible(timeout=60_000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_role("menuitem", name="Run All Cells", exact=True).click()
