"""A report as its HTML page shows it: bounded, and every untrusted text safe to look at."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from PIL import Image

from kernel_gateway.replay.cells import CellPair
from kernel_gateway.replay.diffing import Row, rows
from kernel_gateway.replay.images import (
    IMAGE_FORMATS,
    UnreadableImage,
    as_png,
    changed_pixels,
    decoded,
)
from kernel_gateway.replay.outputs import (
    Output,
    OutputPair,
    data_of,
    side_by_side,
    text_of,
    traceback_of,
)
from kernel_gateway.replay.rules import Rules
from kernel_gateway.replay.svg import may_be_shown
from kernel_gateway.replay.tables import Table, marked, tables
from kernel_gateway.replay.verdicts import NOT_RUN, Reason, Standing, Verdict
from kernel_gateway.replay.visible import visible

MAX_IMAGE_BYTES = 24 << 20
MAX_ROWS = 20_000
MAX_OUTPUTS_OF_A_CELL = 30
MAX_SOURCE_LINES = 60
MAX_IMAGE_SIDE = 900
MAX_TEXT_CHARACTERS = 2_000_000
FULL = "left out: the page is full; it is in replay.ipynb and in the trail"
KINDS = {"message": "error/evalue", "traceback": "error/traceback", "metadata": "application/json"}
SVG = "image/svg+xml"
HTML = "text/html"
_DIMMED, _RED = (255, 255, 255), (220, 38, 38)


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image of one side.

    Attributes:
        caption: whose it is.
        source: a data URI; None where it is not shown.
        note: why not.
    """

    caption: str
    source: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A part of an output that is not the same: one of rows, tables and pictures, or a note.

    Attributes:
        title: which output, and which part of it.
        reasons: what the comparison says of it.
        rows: two texts side by side.
        tables: recorded and replayed.
        pictures: recorded, replayed, what differs.
        note: what stands there instead.
    """

    title: str
    reasons: tuple[Reason, ...] = ()
    rows: Sequence[Row] = ()
    tables: Sequence[tuple[Table | None, Table | None]] = ()
    pictures: Sequence[Picture] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellView:
    """A cell as the page shows it.

    Attributes:
        pair, verdict: what is shown.
        title: first line of its code.
        source_lines: its code, cut.
        more_lines: how many lines of it are left out.
        blocks: what is not the same in its outputs.
        is_detailed: whether more than its line in the table of all is shown.
    """

    pair: CellPair
    verdict: Verdict
    title: str
    source_lines: tuple[str, ...] = ()
    more_lines: int = 0
    blocks: Sequence[Block] = ()
    is_detailed: bool = False

    @property
    def has_more_code(self) -> bool:
        """Return whether its code is more than its title."""
        return self.source_lines != (self.title,)

    @property
    def general_reasons(self) -> tuple[Reason, ...]:
        """Return what is said of the cell and its outputs and stands at no block."""
        outputs = self.verdict.outputs
        shown = {reason for block in self.blocks for reason in block.reasons}
        own = () if outputs is None else outputs.reasons
        return self.verdict.reasons + tuple(reason for reason in own if reason not in shown)


@dataclass(slots=True, kw_only=True)
class Viewing:
    """Makes views of cells, within what one page may hold.

    Attributes:
        rules: those of the comparison.
        image_bytes, rows_count: what the page may still hold.
    """

    rules: Rules
    image_bytes: int = field(default=MAX_IMAGE_BYTES)
    rows_count: int = field(default=MAX_ROWS)

    def cell(self, pair: CellPair, verdict: Verdict) -> CellView:
        """Return the view of a cell."""
        lines = pair.source.split("\n")
        title = next((line for line in lines if line.strip()), "")
        is_detailed = any(
            each is not Standing.IDENTICAL
            for each in (verdict.standing, verdict.state and verdict.state.standing)
            if each is not None
        )
        if not is_detailed:
            return CellView(pair=pair, verdict=verdict, title=_short(title))
        return CellView(
            pair=pair,
            verdict=verdict,
            title=_short(title),
            source_lines=tuple(_short(line, 300) for line in lines[:MAX_SOURCE_LINES]),
            more_lines=max(len(lines) - MAX_SOURCE_LINES, 0),
            blocks=list(self._blocks(pair, verdict)),
            is_detailed=True,
        )

    def _blocks(self, pair: CellPair, verdict: Verdict) -> Iterator[Block]:
        recorded, replayed = pair.recorded, pair.replayed
        if recorded is None or replayed is None or verdict.standing in NOT_RUN:
            return
        reasons = verdict.outputs.reasons if verdict.outputs is not None else ()
        shown = 0
        for each in side_by_side(recorded.outputs, replayed.outputs):
            own = [
                r for r in reasons if r.where == each.where or r.where.startswith(f"{each.where}, ")
            ]
            if not own:
                continue
            shown += 1
            if shown > MAX_OUTPUTS_OF_A_CELL:
                note = f"more than {MAX_OUTPUTS_OF_A_CELL} outputs are not the same"
                yield Block(title="and more", note=note)
                return
            yield from self._of_pair(each, own)

    def _of_pair(self, pair: OutputPair, reasons: list[Reason]) -> Iterator[Block]:
        parts, others = _parts(pair.recorded), _parts(pair.replayed)
        for part in [*parts, *(part for part in others if part not in parts)]:
            where = f"{pair.where}, {part}" if part else pair.where
            own = tuple(r for r in reasons if r.where in (where, pair.where))
            one, other = parts.get(part), others.get(part)
            if one == other or not own:
                continue
            yield self._block(where, part, own, (one, other))

    def _block(
        self,
        where: str,
        part: str,
        reasons: tuple[Reason, ...],
        texts: tuple[str | None, str | None],
    ) -> Block:
        title = visible(where)
        one, other = texts
        if part in IMAGE_FORMATS:
            return Block(title=title, reasons=reasons, pictures=self._images(part, one, other))
        if part == SVG and self._may_be_drawn(one) and self._may_be_drawn(other):
            pictures = [self._drawing("recorded", one), self._drawing("replayed", other)]
            return Block(title=title, reasons=reasons, pictures=pictures)
        if part == HTML:
            found = _tables(one or "", other or "")
            if found:
                return Block(title=title, reasons=reasons, tables=found)
        if any(len(text or "") > MAX_TEXT_CHARACTERS for text in texts):
            return Block(title=title, reasons=reasons, note=_too_large(one, other))
        if self.rows_count <= 0:
            return Block(title=title, reasons=reasons, note=FULL)
        kind = KINDS.get(part, part) if part else f"stream/{where}"
        found_rows = rows(one, other, kind, self.rules)
        self.rows_count -= len(found_rows)
        return Block(title=title, reasons=reasons, rows=found_rows)

    def _images(self, mime: str, one: str | None, other: str | None) -> list[Picture]:
        images = [_decoded(text, mime) for text in (one, other)]
        pictures = [
            self._picture(caption, image)
            for caption, image in zip(("recorded", "replayed"), images, strict=True)
        ]
        first, second = images
        if isinstance(first, str) or isinstance(second, str) or first.size != second.size:
            return pictures
        return [*pictures, self._picture("what differs", _difference(first, second))]

    def _picture(self, caption: str, image: Image.Image | str) -> Picture:
        if isinstance(image, str):
            return Picture(caption=caption, note=image)
        return self._embedded(caption, "image/png", as_png(image, MAX_IMAGE_SIDE))

    def _drawing(self, caption: str, text: str | None) -> Picture:
        if text is None:
            return Picture(caption=caption, note="none")
        return self._embedded(caption, f"{SVG};charset=utf-8", text.encode("utf-8", "replace"))

    def _embedded(self, caption: str, mime: str, data: bytes) -> Picture:
        if len(data) > self.image_bytes:
            return Picture(caption=caption, note=FULL)
        self.image_bytes -= len(data)
        encoded = base64.b64encode(data).decode("ascii")
        return Picture(caption=caption, source=f"data:{mime};base64,{encoded}")

    def _may_be_drawn(self, text: str | None) -> bool:
        return text is None or may_be_shown(text)


def _parts(output: Output | None) -> dict[str, str]:
    """Return the parts of an output as the comparison names them, each as text."""
    if output is None:
        return {}
    kind = output.get("output_type")
    if kind == "stream":
        return {"": text_of(output.get("text"))}
    if kind == "error":
        message = f"{text_of(output.get('ename'))}: {text_of(output.get('evalue'))}"
        return {"message": message, "traceback": traceback_of(output)}
    if kind in ("display_data", "execute_result"):
        parts = {mime[:200]: text_of(value) for mime, value in data_of(output).items()}
        metadata = output.get("metadata")
        return parts | ({"metadata": text_of(metadata)} if metadata else {})
    return {"": text_of(dict(output))}


def _tables(one: str, other: str) -> list[tuple[Table | None, Table | None]]:
    found, others = tables(one), tables(other)
    if not found and not others:
        return []
    pairs: list[tuple[Table | None, Table | None]] = [
        (marked(table, another), marked(another, table))
        for table, another in zip(found, others, strict=False)
    ]
    pairs += [(table, None) for table in found[len(others) :]]
    return pairs + [(None, table) for table in others[len(found) :]]


def _decoded(text: str | None, mime: str) -> Image.Image | str:
    """Return an image, or why there is none."""
    if text is None:
        return "none"
    try:
        return decoded(text, mime)
    except UnreadableImage as problem:
        return str(problem)


def _difference(one: Image.Image, other: Image.Image) -> Image.Image:
    """Return the first image, pale, with every pixel that differs in red."""
    pale = Image.blend(one.convert("RGB"), Image.new("RGB", one.size, _DIMMED), 0.75)
    mask = changed_pixels(one, other).point(lambda value: 255 if value else 0)
    pale.paste(_RED, mask=mask)
    return pale


def _too_large(one: str | None, other: str | None) -> str:
    sizes = ["none" if text is None else f"{len(text):,} characters" for text in (one, other)]
    return f"too large to be shown: recorded {sizes[0]}, replayed {sizes[1]}"


def _short(line: str, limit: int = 120) -> str:
    return visible(line[:limit] + ("…" if len(line) > limit else ""))
