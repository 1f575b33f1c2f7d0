"""A container's log is JSON lines whatever it prints."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kernel_gateway.local import container_log
from kernel_gateway.local.container_log import ContainerLog


def now() -> datetime:
    return datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def lines_of(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


async def logged(path: Path, *chunks: bytes) -> list[Any]:
    log = ContainerLog.open(path, now)
    reader = asyncio.StreamReader()
    for chunk in chunks:
        reader.feed_data(chunk)
    reader.feed_eof()
    await log.follow(reader, "stderr")
    log.close()
    return lines_of(path)


async def test_a_json_object_is_kept_and_anything_else_is_wrapped(tmp_path: Path) -> None:
    lines = await logged(tmp_path / "log", b'{"message": "x"}\nplain\n[1]\n{broken\n')

    wrapped = {"time": "2026-01-02T03:04:05.000+00:00", "stream": "stderr"}
    assert lines == [
        {"message": "x"},
        {**wrapped, "message": "plain"},
        {**wrapped, "message": "[1]"},
        {**wrapped, "message": "{broken"},
    ]


async def test_lines_cut_anywhere_are_put_together(tmp_path: Path) -> None:
    text = "ü — one\nzwei".encode()

    lines = await logged(tmp_path / "log", *(text[i : i + 1] for i in range(len(text))))

    assert [line["message"] for line in lines] == ["ü — one", "zwei"]


async def test_an_endless_line_is_cut(tmp_path: Path) -> None:
    lines = await logged(tmp_path / "log", b"x" * (3 * container_log.LINE_BYTES))

    assert "".join(line["message"] for line in lines) == "x" * (3 * container_log.LINE_BYTES)
    assert len(lines) > 1


async def test_bytes_that_are_no_utf8_do_not_break_the_log(tmp_path: Path) -> None:
    (line,) = await logged(tmp_path / "log", b"\xff\x00\n")

    assert line["message"] == "\ufffd\x00"
