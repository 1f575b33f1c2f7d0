"""Cells, outputs and reports for the tests of this folder."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from kernel_gateway.replay.cells import CellPair, Execution
from kernel_gateway.replay.compare import compared
from kernel_gateway.replay.report import ComparedCell, Report, TrailIdentity
from kernel_gateway.replay.rules import Rules

RULES = Rules.load()
Output = dict[str, Any]


def stream(text: str, name: str = "stdout") -> Output:
    return {"output_type": "stream", "name": name, "text": text}


def display(**data: Any) -> Output:
    """``text_plain="x"`` is what it shows as text/plain."""
    by_mime = {
        {"svg": "image/svg+xml", "json": "application/json"}.get(
            name, name.replace("_", "/")
        ): value
        for name, value in data.items()
    }
    return {"output_type": "display_data", "data": by_mime, "metadata": {}}


def result(text: str, count: int = 1) -> Output:
    shown = {"data": {"text/plain": text}, "metadata": {}}
    return {"output_type": "execute_result", "execution_count": count, **shown}


def error(ename: str, evalue: str = "", traceback: Sequence[str] = ()) -> Output:
    return {
        "output_type": "error",
        "ename": ename,
        "evalue": evalue,
        "traceback": list(traceback),
    }


def ran(
    *outputs: Output,
    status: str = "ok",
    ename: str | None = None,
    files: Mapping[str, str | None] | None = None,
    state: Mapping[str, str] | None = None,
) -> Execution:
    return Execution(
        status=status, ename=ename, outputs=outputs, files=files or {}, state=state, duration_s=0.5
    )


def pair(
    recorded: Execution | None,
    replayed: Execution | None,
    *,
    source: str = "x",
    tags: tuple[str, ...] = (),
    number: int = 1,
    reason: str = "",
    **conditions: Any,
) -> CellPair:
    return CellPair(
        number=number,
        cell_id=f"cell-{number}",
        execution_count=number,
        source=source,
        tags=tags,
        recorded=recorded,
        replayed=replayed,
        reason=reason,
        **conditions,
    )


def report_of(*pairs: CellPair, rules: Rules = RULES) -> Report:
    return Report(
        replay_id="r1",
        trail=TrailIdentity(kernel_id="k1", head="ab" * 32, entries=9, user="ada"),
        mode="pinned",
        replayer="grace",
        started="2026-11-30T13:11:20Z",
        finished="2026-11-30T13:11:58Z",
        cells=tuple(ComparedCell(pair=each, verdict=compared(each, rules)) for each in pairs),
        rules=rules,
    )


def png(image: Image.Image, **options: Any) -> str:
    return encoded(image, "PNG", **options)


def encoded(image: Image.Image, form: str, **options: Any) -> str:
    written = io.BytesIO()
    image.save(written, form, **options)
    return base64.b64encode(written.getvalue()).decode("ascii")


def png_bomb(side: int) -> str:
    """A PNG of a few kilobytes that says it has ``side`` x ``side`` pixels."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        )

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0))
    data = chunk(b"IDAT", zlib.compress(bytes(1 << 20), 9))
    bytes_ = b"\x89PNG\r\n\x1a\n" + header + data + chunk(b"IEND", b"")
    return base64.b64encode(bytes_).decode("ascii")


BILLION_LAUGHS = (
    '<?xml version="1.0"?><!DOCTYPE lolz [<!ENTITY a "ha">'
    + "".join(
        f'<!ENTITY {name} "{f"&{before};" * 10}">'
        for before, name in zip("abcdefghi", "bcdefghij", strict=True)
    )
    + ']><svg xmlns="http://www.w3.org/2000/svg"><text>&j;</text></svg>'
)
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9">{}</svg>'
