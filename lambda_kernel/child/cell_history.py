"""``In``, the numbered inputs and the sources of earlier cells."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from typing import Any

MAX_SOURCE_CHARACTERS = 1024 * 1024
MAX_SOURCES_CHARACTERS = 16 * 1024 * 1024
"""Of all cells together, newest first; tracebacks of older ones show no source."""


def collect(shell: Any, carried: Mapping[str, tuple[int, str]]) -> dict[str, Any]:
    """Return the history of ``shell`` as plain values.

    Args:
        shell: after a cell.
        carried: file name to number and source of earlier cells.
    """
    sources = dict(carried)
    for name, number in shell.compile._filename_map.items():
        entry = linecache.cache.get(name)
        if name not in sources and entry is not None and len(entry) == 4:
            sources[name] = (number, "".join(entry[2]))
    return {
        "raw": [_shortened(text) for text in shell.history_manager.input_hist_raw],
        "parsed": [_shortened(text) for text in shell.history_manager.input_hist_parsed],
        "sources": _newest(sources),
    }


def apply(shell: Any, history: Mapping[str, Any]) -> None:
    """Give ``shell`` the history that ``collect`` saw in another process."""
    manager = shell.history_manager
    manager.input_hist_raw[:] = history["raw"]
    manager.input_hist_parsed[:] = history["parsed"]
    recent = ["", "", "", *history["raw"]]
    manager._i00, manager._i, manager._ii, manager._iii = recent[-1], recent[-2], recent[-3], ""
    numbered = {f"_i{n}": text for n, text in enumerate(history["raw"]) if n and text}
    shell.push(numbered, interactive=False)
    for name, (number, source) in history["sources"].items():
        shell.compile._filename_map[name] = number
        linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)


def begin_cell(shell: Any, execution_count: int) -> None:
    """Set the number of the next cell; ``In`` gets gaps where cells left no trace."""
    shell.execution_count = execution_count
    manager = shell.history_manager
    for history in (manager.input_hist_raw, manager.input_hist_parsed):
        history.extend([""] * (execution_count - len(history)))


def _shortened(text: str) -> str:
    if len(text) <= MAX_SOURCE_CHARACTERS:
        return text
    return f"{text[:1000]}\n# ... {len(text)} characters; only the beginning is kept"


def _newest(sources: dict[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
    kept: dict[str, tuple[int, str]] = {}
    room = MAX_SOURCES_CHARACTERS
    for name, (number, source) in reversed(sources.items()):
        room -= len(source)
        if room < 0:
            break
        if len(source) <= MAX_SOURCE_CHARACTERS:
            kept[name] = (number, source)
    return dict(reversed(kept.items()))
