"""JupyterLab in a page of Chromium, as a person uses it: notebooks, cells, menus, dialogs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import nbformat
from playwright.sync_api import Locator, Page, expect

SPEC = {"name": "lambda-python", "display_name": "Python 3 (Lambda)"}
SLOW_MS = 60_000
"""For what starts a container, or loads JupyterLab, on a busy machine."""
HAS_KERNEL = """() => {
    const kernel = window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel
    return kernel?.connectionStatus === "connected" && kernel.status === "idle"
}"""
"""A person sees it a moment later; to run cells before is to be asked which kernel to start."""
HAS_SAVED_LAYOUT = """async () => {
    const {serviceManager, shell} = window.jupyterapp
    const workspace = location.pathname.split("/workspaces/")[1].split("/")[0]
    const saved = await serviceManager.workspaces.fetch(workspace).catch(() => null)
    const open = JSON.stringify(saved?.data["layout-restorer:data"] ?? {})
    return open.includes(`notebook:${shell.currentWidget.context.path}`)
}"""
"""JupyterLab saves which tabs are open some seconds late; a page that is loaded before has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabServer:
    """A running `jupyter lab`.

    Attributes:
        url: with its token.
        root: its folder.
    """

    url: str
    root: Path

    def address(self, workspace: str, path: str = "") -> str:
        """Return the address of a notebook, in a workspace (tabs and their layout) of its own."""
        parts = urlsplit(self.url)
        tree = f"/tree/{path}" if path else ""
        return f"{parts.scheme}://{parts.netloc}/lab/workspaces/{workspace}{tree}?{parts.query}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """JupyterLab in one page.

    Attributes:
        page: the browser's.
        server: what serves it.
    """

    page: Page
    server: LabServer

    def open(self, name: str, *cells: str) -> Notebook:
        """Write a notebook of code cells, open it, and wait for its kernel."""
        found = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(code) for code in cells], metadata={"kernelspec": SPEC}
        )
        nbformat.write(found, self.server.root / f"{name}.ipynb")
        return self.show(f"{name}.ipynb")

    def show(self, path: str) -> Notebook:
        """Open a notebook that is there, and wait for its kernel."""
        self.command("docmanager:open", path=path)
        return Notebook(lab=self).ready()

    def command(self, name: str, **arguments: object) -> None:
        """Run a command of JupyterLab's, and wait for its end."""
        self.page.evaluate(
            "async ([name, args]) => { await window.jupyterapp.commands.execute(name, args) }",
            [name, arguments],
        )

    def menu(self, menu: str, command: str) -> None:
        """Choose the entry of a menu that runs this command."""
        self.page.get_by_role("menuitem", name=menu, exact=True).click()
        self.page.locator(f".lm-Menu-item[data-command='{command}']").click()

    def accept(self, said: str | re.Pattern[str]) -> None:
        """Wait for a dialog that says this, and press its last button."""
        dialog = self.page.locator(".jp-Dialog")
        expect(dialog).to_contain_text(said)
        dialog.locator("button.jp-mod-accept").click()
        expect(dialog).to_have_count(0)

    def close_all(self) -> None:
        """Save and close every document, so that the next test finds none."""
        self.command("docmanager:save-all")
        self.command("application:close-all")


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """The notebook in front."""

    lab: Lab

    @property
    def page(self) -> Page:
        """The browser's page."""
        return self.lab.page

    @property
    def panel(self) -> Locator:
        """All of it, with its toolbar."""
        return self.page.locator(".jp-NotebookPanel:not(.lm-mod-hidden)")

    def ready(self) -> Notebook:
        """Wait until it is shown and its kernel is idle; return it."""
        expect(self.cell(0)).to_be_visible(timeout=SLOW_MS)
        self.page.wait_for_function(HAS_KERNEL, timeout=SLOW_MS)
        self.has_status("idle")
        return self

    @property
    def kernel_id(self) -> str:
        """The id of its kernel."""
        found = "() => window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.id"
        return str(self.page.evaluate(found))

    def has_status(self, status: str) -> None:
        """Wait until JupyterLab shows this state of the kernel."""
        shown = f".jp-Notebook-ExecutionIndicator[data-status='{status}']"
        expect(self.panel.locator(shown)).to_be_visible(timeout=SLOW_MS)

    def cell(self, index: int) -> Locator:
        """A code cell."""
        return self.panel.locator(".jp-Notebook .jp-CodeCell").nth(index)

    def editor(self, index: int) -> Locator:
        """What a person types code into."""
        return self.cell(index).locator(".cm-content")

    def output(self, index: int) -> Locator:
        """All that a cell shows."""
        return self.cell(index).locator(".jp-OutputArea").first

    def is_done(self, index: int, count: int | None = None) -> None:
        """Wait until a cell shows the number of its execution."""
        number = r"\d+" if count is None else str(count)
        prompt = self.cell(index).locator(".jp-InputArea-prompt")
        expect(prompt).to_have_text(re.compile(rf"\[{number}\]"), timeout=SLOW_MS)

    def is_running(self, index: int) -> None:
        """Wait until a cell shows a star."""
        expect(self.cell(index).locator(".jp-InputArea-prompt")).to_have_text("[*]:")

    def run_all(self) -> None:
        """Choose Run All Cells in the menu."""
        self.lab.menu("Run", "runmenu:run-all")

    def run(self, index: int) -> None:
        """Run a cell as Ctrl+Enter does."""
        self.editor(index).click()
        self.page.keyboard.press("Control+Enter")

    def write(self, index: int, code: str) -> None:
        """Type code over what stands in a cell; the cursor is at its end."""
        self.editor(index).click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.type(code)

    def shows(self, index: int, text: str | re.Pattern[str]) -> None:
        """Wait until a cell's output has this."""
        expect(self.output(index)).to_contain_text(text, timeout=SLOW_MS)

    def tool(self, name: str) -> None:
        """Press a button of the toolbar."""
        self.panel.locator(f".jp-Toolbar [data-jp-item-name='{name}'] jp-button").click()

    def reload(self) -> Notebook:
        """Load the page again, as F5 does."""
        self.page.wait_for_function(HAS_SAVED_LAYOUT, timeout=SLOW_MS, polling=200)
        self.page.reload()
        expect(self.cell(0)).to_be_visible(timeout=SLOW_MS)
        return self
