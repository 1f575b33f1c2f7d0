"""Which SVG a browser may be given."""

from __future__ import annotations

import io

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from kernel_gateway.replay.svg import MAX_CHARACTERS, may_be_shown
from tests.unit.replay.examples import BILLION_LAUGHS, SVG

USED = "".join(
    f"<g id='g{number}'>" + f"<use href='#g{number - 1}'/>" * 10 + "</g>" for number in range(1, 12)
)


def test_what_matplotlib_draws_may_be_shown() -> None:
    with mpl.rc_context({"svg.fonttype": "path"}):
        figure = Figure()
        axes = figure.subplots()
        axes.plot([1, 2, 3], label="a label")
        axes.legend()
        written = io.StringIO()
        figure.savefig(written, format="svg")
    assert may_be_shown(written.getvalue())


@pytest.mark.parametrize(
    "text",
    [
        BILLION_LAUGHS,
        "<!DOCTYPE svg [<!ENTITY x SYSTEM 'file:///etc/passwd'>]>" + SVG.format("&x;"),
        SVG.format(f"<g id='g0'><rect/></g>{USED}<use href='#g11'/>"),
        SVG.format("<g id='a'><use href='#b'/></g><g id='b'><use href='#a'/></g>"),
        SVG.format("<g>" * 100 + "</g>" * 100),
        SVG.format("<script>alert(1)</script>"),
        SVG.format("<foreignObject><body xmlns='http://www.w3.org/1999/xhtml'/></foreignObject>"),
        SVG.format("<h:video xmlns:h='http://www.w3.org/1999/xhtml'/>"),
        SVG.format("<image href='https://evil.example/x.png'/>"),
        SVG.format("<filter id='f'/><rect filter='url(#f)'/>"),
        SVG.format("<animate attributeName='x'/>"),
        SVG.format("<style>@import url(https://evil.example/x.css)</style>"),
        SVG.format("<rect style='fill: url(https://evil.example/x)'/>"),
        "<?xml version='1.0' encoding='utf-7'?>" + SVG.format(""),
        "<svg><rect/></svg>",
        "<html xmlns='http://www.w3.org/1999/xhtml'/>",
        "not XML",
        "",
        SVG.format("<desc>" + "x" * MAX_CHARACTERS + "</desc>"),
    ],
)
def test_what_would_act_fetch_or_take_hours_may_not(text: str) -> None:
    assert not may_be_shown(text)


def test_shapes_and_text_may_be_shown() -> None:
    assert may_be_shown(SVG.format("<g id='a'><rect/></g><use href='#a'/><text>é</text>"))
