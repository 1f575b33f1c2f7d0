"""Tables of HTML outputs as text in rows: nothing of their markup reaches a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html.parser import HTMLParser

import nh3

from kernel_gateway.audit.view import plain_text
from kernel_gateway.replay.visible import visible

MAX_CHARACTERS = 500_000
MAX_TAGS = 10_000
"""A parser of HTML takes time by the square of how deep tags are nested."""
MAX_ROWS = 80
MAX_COLUMNS = 30
MAX_CELL_CHARACTERS = 200
MAX_SPAN = 100
_TAGS = {"table", "tr", "th", "td"}
_SPANS = ("colspan", "rowspan")


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCell:
    """One cell.

    Attributes:
        text: safe to look at.
        is_header: of a row or column.
        columns, rows: how many it spans.
        is_changed: whether the other table has another text there.
    """

    text: str
    is_header: bool
    columns: int = 1
    rows: int = 1
    is_changed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table, and whether something of it is not there."""

    rows: tuple[tuple[TableCell, ...], ...]
    is_cut: bool = False


def tables(html: str) -> list[Table]:
    """Return the tables in HTML, none where it has none or is too much to be parsed."""
    if "<table" not in html or len(html) > MAX_CHARACTERS or html.count("<") > MAX_TAGS:
        return []
    cleaned = nh3.clean(
        plain_text(html),
        tags=_TAGS,
        attributes={"td": set(_SPANS), "th": set(_SPANS)},
        clean_content_tags={"script", "style"},
        link_rel=None,
    )
    parser = _TableParser()
    parser.feed(cleaned)
    parser.close()
    return [_bounded(rows) for rows in parser.tables if rows]


def marked(table: Table, other: Table) -> Table:
    """Return a table with those cells marked that the other one, at the same place, has not."""
    return Table(
        rows=tuple(
            tuple(
                _marked(cell, _at(other.rows, row_number, column))
                for column, cell in enumerate(row)
            )
            for row_number, row in enumerate(table.rows)
        ),
        is_cut=table.is_cut,
    )


def _marked(cell: TableCell, other: TableCell | None) -> TableCell:
    is_changed = other is None or other.text != cell.text
    return TableCell(
        text=cell.text,
        is_header=cell.is_header,
        columns=cell.columns,
        rows=cell.rows,
        is_changed=is_changed,
    )


def _at(rows: Sequence[Sequence[TableCell]], row: int, column: int) -> TableCell | None:
    if row < len(rows) and column < len(rows[row]):
        return rows[row][column]
    return None


def _bounded(rows: list[list[TableCell]]) -> Table:
    shown = tuple(tuple(row[:MAX_COLUMNS]) for row in rows[:MAX_ROWS])
    is_cut = len(rows) > MAX_ROWS or any(len(row) > MAX_COLUMNS for row in rows)
    return Table(rows=shown, is_cut=is_cut)


class _TableParser(HTMLParser):
    """Takes what nh3 leaves: well-formed, four tags."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.tables: list[list[list[TableCell]]] = []
        self._texts: list[str] | None = None
        self._spans = (1, 1)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            given = dict(attrs)
            columns, rows = (_span(given.get(name)) for name in _SPANS)
            self._texts, self._spans = [], (columns, rows)

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._texts is not None:
            text = " ".join("".join(self._texts).split())
            if len(text) > MAX_CELL_CHARACTERS:
                text = text[:MAX_CELL_CHARACTERS] + "…"
            if self.tables and self.tables[-1]:
                columns, rows = self._spans
                self.tables[-1][-1].append(
                    TableCell(text=visible(text), is_header=tag == "th", columns=columns, rows=rows)
                )
            self._texts = None

    def handle_data(self, data: str) -> None:
        if self._texts is not None:
            self._texts.append(data)


def _span(value: str | None) -> int:
    if value is None or not value.isascii() or not value.isdigit() or len(value) > 3:
        return 1
    return min(max(int(value), 1), MAX_SPAN)
