"""report.json, report.html and replay.ipynb: whole, readable, and deaf to hostile outputs."""

from __future__ import annotations

import base64
import io
import json
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import jsonschema
import nbformat
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from kernel_gateway.replay import report as reports
from kernel_gateway.replay.compare import compared
from kernel_gateway.replay.images import as_png
from kernel_gateway.replay.report import Report
from kernel_gateway.replay.report_html import html_page
from kernel_gateway.replay.report_json import report_json
from kernel_gateway.replay.report_notebook import notebook_of
from kernel_gateway.replay.report_view import MAX_IMAGE_SIDE, Viewing
from kernel_gateway.replay.verdicts import Standing
from tests.unit.replay.examples import (
    BILLION_LAUGHS,
    RULES,
    SVG,
    display,
    error,
    pair,
    png,
    png_bomb,
    ran,
    report_of,
    result,
    stream,
)

SCRIPT = "<script>document.title = 'run'</script>"
HOSTILE = [
    SCRIPT,
    "</style>" + SCRIPT,
    "</pre></td></table></main>" + SCRIPT,
    "-->" + SCRIPT,
    "<img src=x onerror=alert(1)>",
    "<a href='javascript:alert(1)'>x</a>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    '"><svg onload=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "\x1b]8;;https://evil.example\x07click\x1b]8;;\x07",
    "\x1b]0;title\x07\x1b[2J\x9b31m",
    "safe\u202egnp.exe\u2066\u200b\ufeff",
    "nul\x00 del\x7f \ud800",
]
SIGNS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
TAGS = frozenset(
    """html head meta title style body main h1 h2 h3 h4 h5 p div span ul li nav a dl dt dd section
    article header table colgroup col tr td th mark figure figcaption img details summary pre b i
    footer""".split()  # noqa: SIM905
)


def everywhere(text: str) -> Report:
    """A report in which everything that is not ours is this text."""
    plain = text.encode("utf-8", "replace").decode()
    outputs = [
        stream(text),
        stream(text, "stderr"),
        error(text, text, [text, text]),
        result(text),
        display(text_html=text, text_plain=text),
        display(text_html=f"<table><tr><td>{text}</td></tr></table>"),
        display(svg=text, image_png=text),
        display(svg=SVG.format(f"<text>{text}</text>"), json={text: [text]}),
        {"output_type": "display_data", "data": {text: text}, "metadata": {text: text}},
        {"output_type": text, text: text},
    ]
    files = {text: "1", f"a{text}": "2"}
    cells = [
        pair(ran(), ran(*outputs, files=files, state={text: "1"}), source=text, tags=(text,)),
        pair(ran(*outputs, state={text: "2"}), ran(state={}), source=f"\n{text}", number=2),
        pair(ran(*outputs), ran(*[*outputs[1:], stream("another")]), number=3),
        pair(ran(), None, reason=f"unavailable: {text}", number=4),
        pair(ran(status="lost", ename=text), ran(status="error", ename=text), number=5),
        pair(ran(*outputs), ran(*outputs), source=text, number=6),
    ]
    found = report_of(*cells)
    trail = reports.TrailIdentity(
        kernel_id=plain, head=plain, entries=1, user=plain, agent=plain, verified=plain
    )
    return Report(
        replay_id=plain,
        trail=trail,
        mode=plain,
        replayer=plain,
        started=plain,
        finished=plain,
        network=plain,
        parameters={plain: plain},
        notes=(plain,),
        cells=found.cells,
        rules=found.rules,
    )


class Page(HTMLParser):
    """What a browser makes of a page: its tags, what they refer to, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


def references(page: Page) -> list[str]:
    return [value for name, value in page.attributes if name in ("src", "href", "srcset", "action")]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_text_of_an_output_acts_in_the_page(text: str) -> None:
    written = html_page(everywhere(text))
    page = Page(written)
    assert page.tags <= TAGS
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    # CSS is one element, ours, whole.
    assert written.count("<style>") == written.count("</style>") == 1
    assert all(
        value.startswith(
            ("#", "data:image/png;base64,", "data:image/svg+xml;charset=utf-8;base64,")
        )
        for value in references(page)
    )
    assert not SIGNS.search(page.text)
    assert not SIGNS.search(written.replace("\n", ""))


@settings(max_examples=15, deadline=None)
@given(st.text(max_size=40))
def test_any_text_gives_a_page_of_our_own_tags_only(text: str) -> None:
    assert Page(html_page(everywhere(text))).tags <= TAGS


def test_the_page_forbids_scripts_and_every_fetch() -> None:
    page = html_page(everywhere("x"))
    head = page[: page.index("<title>")]
    assert (
        "content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'; "
        "base-uri 'none'; form-action 'none'\"" in head
    )
    # Nothing stands before the policy but the charset.
    assert re.fullmatch(
        r'<!DOCTYPE html>\s*<html lang="en">\s*<head>\s*<meta charset="utf-8">\s*',
        page[: page.index("<meta http-equiv")].lstrip(),
    )


def test_control_characters_are_shown_by_name() -> None:
    one, other = stream("\x1b]0;x\x07\u202e\x1b[31mred\x1b[0m"), stream("")
    page = Page(html_page(report_of(pair(ran(one), ran(other)))))
    assert "⟨ESC⟩]0;x⟨BEL⟩⟨U+202E⟩red" in page.text


def test_an_svg_with_entities_is_shown_as_text() -> None:
    cell = pair(ran(display(svg=BILLION_LAUGHS)), ran(display(svg=SVG.format(""))))
    page = Page(html_page(report_of(cell)))
    assert "<!ENTITY a" in page.text
    assert not [each for each in references(page) if each.startswith("data:")]


def test_a_plain_svg_is_shown_as_an_image() -> None:
    cell = pair(
        ran(display(svg=SVG.format("<rect width='9' height='9'/>"))),
        ran(display(svg=SVG.format("<circle r='3'/>"))),
    )
    shown = [each for each in references(Page(html_page(report_of(cell)))) if "svg" in each]
    assert len(shown) == 2


def test_a_decompression_bomb_is_a_note() -> None:
    good = png(Image.new("L", (4, 4)))
    cell = pair(ran(display(image_png=good)), ran(display(image_png=png_bomb(60_000))))
    page = Page(html_page(report_of(cell)))
    assert re.search("broken: DecompressionBomb|60000 x 60000 pixels are more than", page.text)
    assert len([each for each in references(page) if each.startswith("data:")]) == 1


def test_images_are_written_anew_and_what_differs_is_red() -> None:
    image = Image.new("RGB", (20, 10), "white")
    changed = image.copy()
    changed.putpixel((5, 5), (0, 0, 0))
    hidden = png(image) + base64.b64encode(b"trailing secret").decode()
    cell = pair(ran(display(image_png=hidden)), ran(display(image_png=png(changed))))
    sources = [
        base64.b64decode(each.partition(",")[2])
        for each in references(Page(html_page(report_of(cell))))
        if each.startswith("data:image/png")
    ]
    assert len(sources) == 3
    assert not any(b"secret" in each for each in sources)
    difference = Image.open(io.BytesIO(sources[2])).convert("RGB")
    assert [
        (x, y) for x in range(20) for y in range(10) if difference.getpixel((x, y)) == (220, 38, 38)
    ] == [(5, 5)]


def test_a_table_is_shown_as_one_with_the_changed_cell_marked() -> None:
    html = "<style scoped>x</style><table border='1' class='dataframe'><tr><th>a</th></tr>"
    one, other = (f"{html}<tr><td>{value}</td></tr></table>" for value in (1, 2))
    page = html_page(report_of(pair(ran(display(text_html=one)), ran(display(text_html=other)))))
    assert '<td colspan="1" rowspan="1" class="l">1</td>' in page
    assert '<td colspan="1" rowspan="1" class="r">2</td>' in page
    assert '<th colspan="1" rowspan="1">a</th>' in page
    assert "dataframe" not in page


def test_html_nested_without_end_is_shown_as_text() -> None:
    one, other = ("<div>" * 60_000 + f"<table><tr><td>{value}" for value in (1, 2))
    page = html_page(report_of(pair(ran(display(text_html=one)), ran(display(text_html=other)))))
    assert '<table class="data">' not in page
    assert "&lt;td&gt;<mark>2</mark>" in page


def test_huge_outputs_are_cut_with_a_note() -> None:
    lines = "".join(f"line {number}\n" for number in range(50_000))
    cells = [
        pair(ran(stream(lines)), ran(stream(lines.replace("e", "é")))),
        pair(ran(stream("x" * 3_000_000)), ran(stream("y")), number=2),
        pair(
            ran(*(display(text_plain=str(number)) for number in range(100))),
            ran(*(display(text_plain=f"new {number}") for number in range(100))),
            number=3,
        ),
    ]
    page = html_page(report_of(*cells))
    assert "49,600 lines" in page
    assert "too large to be shown: recorded 3,000,000 characters, replayed 1 characters" in page
    assert "more than 30 outputs are not the same" in page
    assert len(page) < 1_000_000


def test_a_page_holds_no_more_than_it_may() -> None:
    noise = Image.effect_noise((64, 64), 99)
    outputs = [
        [display(image_png=png(image)), stream(text)]
        for image, text in ((noise, "1"), (noise.rotate(90), "2"))
    ]
    cell = pair(ran(*outputs[0]), ran(*outputs[1]))
    one_image_bytes = len(as_png(noise, MAX_IMAGE_SIDE))
    viewing = Viewing(rules=RULES, image_bytes=one_image_bytes, rows_count=0)
    text, image = viewing.cell(cell, compared(cell, RULES)).blocks
    assert text.note == "left out: the page is full; it is in replay.ipynb and in the trail"
    assert not text.rows
    assert [bool(picture.source) for picture in image.pictures[:2]] == [True, False]
    assert image.pictures[1].note == text.note


def test_identical_cells_take_a_line_each() -> None:
    cells = [pair(ran(stream("x")), ran(stream("x")), number=number) for number in range(1, 1001)]
    page = html_page(report_of(*cells))
    assert "Every cell came out the same" in page
    assert "<article" not in page
    assert len(page) < 1_200_000


def test_a_report_without_cells_says_so() -> None:
    assert "There was nothing to replay" in html_page(report_of())


@pytest.mark.parametrize("text", ["x", *HOSTILE])
def test_report_json_is_what_its_schema_says(text: str) -> None:
    schema = json.loads(files("kernel_gateway.replay").joinpath("report.schema.json").read_text())
    data = json.loads(json.dumps(report_json(everywhere(text))))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(data, schema)
    assert sum(data["counts"].values()) == len(data["cells"])


@pytest.mark.parametrize("text", ["x", *HOSTILE])
def test_replay_ipynb_is_valid_never_trusted_and_has_each_verdict(text: str) -> None:
    notebook = nbformat.reads(nbformat.writes(notebook_of(everywhere(text))), as_version=4)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    cover, *cells = notebook.cells
    assert cover.cell_type == "markdown"
    assert "<script" not in cover.source
    assert [cell.metadata.lambda_kernel.replay.verdict for cell in cells] == [
        "different",
        "different",
        "different",
        "unavailable",
        "different",
        "identical",
    ]
    assert not any("trusted" in cell.metadata for cell in cells)
    assert cells[0].outputs[0].output_type == "stream"
    # An output of a type that no notebook has is left out, and counted.
    assert cells[0].metadata.lambda_kernel.replay.invalid_outputs >= 1


def test_cells_with_bad_or_equal_ids_get_others() -> None:
    cells = [pair(ran(), ran(), number=7) for _ in range(3)]
    ids = [cell["id"] for cell in notebook_of(report_of(*cells)).cells]
    assert ids == ["replay-cover", "cell-7", "replayed-7", "replayed-7-"]


def test_a_report_is_three_files_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "report"
    reports.write(folder, everywhere("\ud800"))
    reports.write(folder, everywhere("again"))
    assert sorted(path.name for path in folder.iterdir()) == [
        "replay.ipynb",
        "report.html",
        "report.json",
    ]
    assert json.loads((folder / "report.json").read_text())["counts"][Standing.DIFFERENT] == 4
