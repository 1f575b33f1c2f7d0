"""Cells that ask, in JupyterLab: input boxes, hidden ones, the debugger's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.lab import Lab, Notebook

pytestmark = pytest.mark.browser

ASKS = """from getpass import getpass
name = input("your name? ")
key = getpass("your key? ")
print(f"{name} has a key of {len(key)}")"""


def answer(notebook: Notebook, index: int, prompt: str, text: str) -> Locator:
    """Type an answer into the box of a cell, once that asks this; return the box."""
    from playwright.sync_api import expect

    box = notebook.output(index).locator(".jp-Stdin", has=notebook.page.locator("input")).last
    expect(box.locator(".jp-Stdin-prompt")).to_have_text(prompt, timeout=60_000)
    field = box.locator("input")
    expect(field).to_be_focused()
    notebook.page.keyboard.type(text)
    return field


def test_input_and_getpass_ask_in_boxes_and_a_key_is_never_shown(lab: Lab) -> None:
    from playwright.sync_api import expect

    notebook = lab.open("asks", ASKS)
    notebook.run(0)

    field = answer(notebook, 0, "your name? ", "Ada")
    field.press("Enter")
    field = answer(notebook, 0, "your key? ", "open sesame")
    expect(field).to_have_attribute("type", "password")
    field.press("Enter")

    notebook.shows(0, "Ada has a key of 11")
    notebook.shows(0, "your key?  ········")
    expect(notebook.panel).not_to_contain_text("sesame")
    lab.command("docmanager:save")
    assert "sesame" not in (lab.server.root / "asks.ipynb").read_text()


def test_the_debugger_looks_at_an_error_in_the_input_box(lab: Lab) -> None:
    notebook = lab.open("debug", "%pdb on\ndef half(x):\n    return 1 / x\nhalf(0)")
    notebook.run(0)

    answer(notebook, 0, "ipdb> ", "p 'x is', x").press("Enter")
    notebook.shows(0, "('x is', 0)")
    answer(notebook, 0, "ipdb> ", "q").press("Enter")
    notebook.is_done(0)
