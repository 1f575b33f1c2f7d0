"""What cells show in JupyterLab: progress, tracebacks, rich displays, and those that change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Locator

    from tests.browser.lab import Lab

pytestmark = pytest.mark.browser

BAR = (
    "import time\nfrom tqdm{} import tqdm\nfor _ in tqdm(range(1_000_000)):\n    time.sleep(0.01)\n"
)
ERROR = """def divided(number):
    return number / 0"""
RICH = """from IPython.display import HTML, JSON, SVG, Latex, display
display(HTML("<b id='bold'>bold</b>"))
display(Latex("$$\\sum_{n=1}^9 n = 45$$"))
display(SVG("<svg xmlns='http://www.w3.org/2000/svg' width='90' height='30'>"
            "<rect id='box' width='90' height='30' fill='teal'/></svg>"))
display(JSON({"answer": 42}))"""
FIGURE = """import matplotlib.pyplot as plt
fig, ax = plt.subplots(figsize=(3, 1.5))
ax.plot([1, 4, 9]);"""
FLOOD = "for number in range(20_000):\n    print(f'{number:099}')"
CHANGES = """import time
from IPython.display import clear_output, display
for number in range(20):
    clear_output(wait=True)
    print("count", number)
handle = display("first text", display_id="shared")"""


def steps(shown: Locator) -> int:
    """Return how far a progress bar of tqdm says that it is."""
    found: int = shown.evaluate(
        "element => Number((element.innerText.match(/(\\d+)\\/1000000/) ?? [0, 0])[1])"
    )
    return found


@pytest.mark.parametrize("kind", ["", ".notebook"], ids=["text", "widget"])
def test_a_progress_bar_moves_while_its_cell_runs_and_the_stop_button_ends_it(
    lab: Lab, kind: str
) -> None:
    notebook = lab.open(f"progress{kind}", BAR.format(kind), "'still', 6 * 7, _")
    notebook.run(0)
    shown = notebook.output(0)
    notebook.shows(0, "/1000000")

    first = steps(shown)
    while (second := steps(shown)) <= first:
        notebook.is_running(0)
    while steps(shown) <= second:
        notebook.is_running(0)
    # One bar that moves, not one below the other.
    assert shown.inner_text().count("/1000000") == 1

    notebook.tool("interrupt")
    notebook.shows(0, "KeyboardInterrupt")
    notebook.run(1)
    notebook.shows(1, "('still', 42, ")


def test_a_traceback_has_colours_and_the_source_of_earlier_cells(lab: Lab) -> None:
    from playwright.sync_api import expect

    notebook = lab.open("traceback", ERROR, "divided(6)", "print('never')")
    notebook.run_all()

    notebook.shows(1, "ZeroDivisionError: division by zero")
    error = notebook.output(1).locator(".jp-OutputArea-output")
    expect(error).to_contain_text("Cell In[1], line 2, in divided(number)")
    expect(error).to_contain_text("return number / 0")
    expect(error.locator(".ansi-red-fg").first).to_be_visible()
    assert error.locator("span[class*='ansi-']").count() > 10
    # What comes after an error in Run All is not run.
    expect(notebook.cell(2).locator(".jp-InputArea-prompt")).to_have_text("[ ]:")


def test_rich_displays_and_a_figure_are_shown_as_such(lab: Lab) -> None:
    from playwright.sync_api import expect

    notebook = lab.open("rich", RICH, FIGURE)
    notebook.run_all()
    notebook.is_done(1)

    shown = notebook.output(0)
    expect(shown.locator("#bold")).to_have_text("bold")
    expect(shown.locator("mjx-container").first).to_be_visible(timeout=30_000)
    expect(shown.locator(".jp-RenderedSVG")).to_be_visible()
    expect(shown.locator(".jp-RenderedJSON")).to_contain_text("answer", timeout=30_000)
    figure = notebook.output(1).locator("img")
    assert figure.evaluate("element => element.naturalWidth") > 150
    expect(notebook.output(1)).not_to_contain_text("Line2D")


def test_displays_that_change_end_as_they_were_said_last(lab: Lab) -> None:
    from playwright.sync_api import expect

    notebook = lab.open("changes", CHANGES, "handle.update('second text')")
    notebook.run_all()
    notebook.is_done(1)

    expect(notebook.output(0)).to_contain_text("second text")
    expect(notebook.output(0)).not_to_contain_text("first text")
    assert notebook.output(0).inner_text().count("count") == 1
    assert "count 19" in notebook.output(0).inner_text()
    expect(notebook.output(1)).to_have_text("")


def test_two_megabytes_of_lines_are_shown_and_the_page_goes_on(lab: Lab) -> None:
    notebook = lab.open("flood", FLOOD, "number")
    notebook.run_all()

    notebook.is_done(1)
    notebook.shows(1, "19999")
    notebook.shows(0, f"{19_999:099}")
