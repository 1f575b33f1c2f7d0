"""Which SVG of an output may be shown.

A browser draws it as an image: no script of it runs and nothing is fetched, but it could still be
made to draw for hours.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import ParseError, fromstring

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_CHARACTERS = 1_000_000
MAX_DRAWN = 50_000
"""Elements, each counted as often as it is used."""
MAX_DEPTH = 64
SVG = "{http://www.w3.org/2000/svg}"
_SHAPES = ("circle", "ellipse", "line", "path", "polygon", "polyline", "rect", "use")
_TEXTS = ("desc", "text", "title", "tspan")
_GROUPS = ("a", "clipPath", "defs", "g", "marker", "svg", "symbol")
_COLOURS = ("linearGradient", "radialGradient", "stop", "style")
_DRAWN = frozenset((*_SHAPES, *_TEXTS, *_GROUPS, *_COLOURS))
_ENCODING = re.compile(r"<\?xml[^>]{0,200}encoding\s*=\s*[\"'](?!utf-?8[\"'])", re.IGNORECASE)
_STYLE_ACTS = re.compile(r"@|url\(\s*[\"']?(?!#)|filter|animation|transition", re.IGNORECASE)


def may_be_shown(text: str) -> bool:
    """Return whether an SVG has shapes and text only, no more than a browser draws at once."""
    if len(text) > MAX_CHARACTERS or _ENCODING.match(text.lstrip()):
        return False
    try:
        root = fromstring(text, forbid_entities=True, forbid_external=True)
    except (ParseError, DefusedXmlException, ValueError, RecursionError):
        return False
    if root.tag != f"{SVG}svg" or not all(map(_is_harmless, root.iter())):
        return False
    ids = {name: each for each in root.iter() if (name := each.get("id"))}
    return _Counting(ids).count(root, 0) <= MAX_DRAWN


def _is_harmless(element: Element) -> bool:
    if not element.tag.startswith(SVG):
        # matplotlib describes its drawings in RDF, of which nothing is drawn.
        return "w3.org/1999/xhtml" not in element.tag
    name = element.tag.removeprefix(SVG)
    if name == "metadata":
        return True
    if name == "style" and _STYLE_ACTS.search(element.text or ""):
        return False
    return name in _DRAWN and not any(
        _STYLE_ACTS.search(value) for key, value in element.items() if key in ("style", "filter")
    )


class _Counting:
    """Counts what is drawn, every ``use`` followed; too deep or circular is too much."""

    def __init__(self, ids: Mapping[str, Element]) -> None:
        self._ids = ids
        self._counts: dict[Element, int] = {}

    def count(self, element: Element, depth: int) -> int:
        known = self._counts.get(element)
        if known is not None:
            return known
        if depth > MAX_DEPTH:
            return MAX_DRAWN + 1
        # What is met again while it is counted uses itself.
        self._counts[element] = MAX_DRAWN + 1
        total = 1 + sum(self.count(child, depth + 1) for child in element)
        for key, value in element.items():
            if key.rpartition("}")[2] == "href" and value.startswith("#"):
                used = self._ids.get(value[1:])
                total += 0 if used is None else self.count(used, depth + 1)
        self._counts[element] = min(total, MAX_DRAWN + 1)
        return self._counts[element]
