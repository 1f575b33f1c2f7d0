"""report.html in a browser: no script of an output runs, nothing is fetched, images are there."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from PIL import Image

from kernel_gateway.replay import report as reports
from tests.unit.replay.examples import SVG, display, error, pair, png, ran, report_of, stream

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.browser

RUN = "document.title = 'run'; window.owned = true"
HOSTILE = [
    f"<script>{RUN}</script>",
    f"</style><script>{RUN}</script>",
    f"</title></main><script>{RUN}</script>",
    f'<img src=x onerror="{RUN}">',
    f'"><svg onload="{RUN}">',
    f'<a href="javascript:{RUN}">x</a>',
    '<iframe srcdoc="<script>top.owned = true</script>"></iframe>',
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<style>@import 'https://evil.example/y.css'; body { display: none }</style>",
    "<meta http-equiv=refresh content='0; url=https://evil.example/'>",
]


@pytest.fixture
def hostile_report(tmp_path: Path) -> Path:
    """A page made of hostile outputs, and of two pairs of images."""
    cells = []
    for number, text in enumerate(HOSTILE, 1):
        outputs = [
            stream(text),
            error(text, text, [text]),
            display(text_html=text, text_plain=text),
            display(text_html=f"<table><tr><td>{text}</td></tr></table>"),
            display(svg=text),
            display(svg=SVG.format(f"<script>{RUN}</script>")),
        ]
        cells.append(pair(ran(*outputs, files={text: "1"}), ran(), source=text, number=number))
        cells.append(pair(ran(), ran(*outputs), source=text, number=number + 100))
    images = [png(Image.new("RGB", (30, 20), colour)) for colour in ("white", "black")]
    drawn = [SVG.format(f"<rect width='{width}' height='9'/>") for width in (3, 6)]
    cells.append(
        pair(
            ran(display(image_png=images[0]), display(svg=drawn[0])),
            ran(display(image_png=images[1]), display(svg=drawn[1])),
            number=300,
        )
    )
    reports.write(tmp_path, report_of(*cells))
    return tmp_path / "report.html"


def open_page(browser: Browser, path: Path, requests: list[str]) -> Page:
    page = browser.new_page()
    page.on("request", lambda request: requests.append(request.url))
    page.goto(path.as_uri())
    return page


def test_no_script_of_an_output_runs_and_nothing_is_fetched(
    browser: Browser, hostile_report: Path
) -> None:
    requests: list[str] = []
    page = open_page(browser, hostile_report, requests)
    assert page.title() == "Replay of k1"
    assert page.evaluate("window.owned === undefined")
    assert page.evaluate("document.scripts.length") == 0
    assert page.evaluate("getComputedStyle(document.body).display") == "block"
    outside = [url for url in requests if not url.startswith("data:")]
    assert outside == [hostile_report.as_uri()]


def test_a_script_that_got_into_the_page_would_not_run(
    browser: Browser, hostile_report: Path
) -> None:
    text = hostile_report.read_text(encoding="utf-8")
    hostile_report.write_text(text.replace("</main>", f"<script>{RUN}</script></main>"))
    page = open_page(browser, hostile_report, [])
    assert page.evaluate("document.scripts.length") == 1
    assert page.title() == "Replay of k1"


def test_images_are_drawn(browser: Browser, hostile_report: Path) -> None:
    page = open_page(browser, hostile_report, [])
    widths = page.evaluate(
        "Promise.all([...document.images].map(i => i.decode().then(() => i.naturalWidth)))"
    )
    assert widths == [30, 30, 30, 9, 9]
