"""Parsed documents: lxml's trees, openpyxl's sheets."""

from __future__ import annotations

import importlib
from typing import Any


def reduce_element(element: Any) -> Any:
    """Carry the whole tree once; an element inside it by its way from the root."""
    path = []
    parent = element.getparent()
    while parent is not None:
        path.append(parent.index(element))
        element, parent = parent, parent.getparent()
    if path:
        return child_at, (element, path[::-1])
    etree = importlib.import_module("lxml.etree")
    is_html = type(element).__module__ == "lxml.html"
    return make_root, (etree.tostring(element, with_tail=False), is_html)


def reduce_tree(tree: Any) -> Any:
    """Carry its root."""
    return make_tree, (tree.getroot(),)


def make_root(text: bytes, is_html: bool) -> Any:
    """Return the root of a parsed document."""
    etree = importlib.import_module("lxml.etree")
    options = {"huge_tree": True, "strip_cdata": False, "resolve_entities": False}
    cls = importlib.import_module("lxml.html").XHTMLParser if is_html else etree.XMLParser
    return etree.fromstring(text, cls(**options))


def child_at(root: Any, path: list[int]) -> Any:
    """Return the element that stands there."""
    for position in path:
        root = root[position]
    return root


def make_tree(root: Any) -> Any:
    """Return a tree."""
    return importlib.import_module("lxml.etree").ElementTree(root)


def reduce_dimensions(dimensions: Any) -> Any:
    """Carry openpyxl's rows and columns of a sheet; its class wants the sheet."""
    state = {k: v for k, v in vars(dimensions).items() if k != "worksheet"}
    items = iter(list(dimensions.items()))
    return type(dimensions), (dimensions.worksheet,), state, None, items
