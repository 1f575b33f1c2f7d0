"""``In``, the numbered inputs and the sources of earlier cells."""

from __future__ import annotations
import __future__

import functools
import json
import linecache
import operator
import pickle
from collections.abc import Mapping
from typing import Any

MAX_SOURCE_CHARACTERS = 1024 * 1024
MAX_SOURCES_CHARACTERS = 16 * 1024 * 1024
"""Of all cells together, newest first; tracebacks of older ones show no source."""


_FUTURE_FLAGS = functools.reduce(
    operator.or_, (getattr(__future__, n).compiler_flag for n in __future__.all_feature_names)
)


def part_to_bytes(part: Mapping[str, Any]) -> bytes:
    """Return the stored form of a part: JSON, so that the gateway can list inputs."""
    return json.dumps(part, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def part_from_bytes(stored: bytes | memoryview) -> dict[str, Any]:
    """Return the part in ``stored``; a pickle of it is what earlier versions stored."""
    data = bytes(stored)
    part: dict[str, Any] = json.loads(data) if data[:1] == b"{" else pickle.loads(data)
    return part


class History:
    """The inputs of earlier cells: gathered from parts, and what a cell adds to them.

    A part is a dict of plain values: ``first`` (number of the first input in it), ``raw``,
    ``parsed``, ``sources`` (file name to number and text), and ``flags`` (of ``__future__``).
    """

    def __init__(self) -> None:
        self._raw: list[str] = []
        self._parsed: list[str] = []
        self._sources: dict[str, tuple[int, str]] = {}
        self._flags = 0

    def add(self, part: Mapping[str, Any]) -> None:
        """Add a part that was stored after those that were added before."""
        for mine, name in ((self._raw, "raw"), (self._parsed, "parsed")):
            mine.extend([""] * (part["first"] - len(mine)))
            mine[part["first"] :] = part[name]
        self._sources.update(part["sources"])
        self._flags |= part["flags"]

    @property
    def sources(self) -> Mapping[str, tuple[int, str]]:
        """Of earlier cells: number and text by file name."""
        return self._sources

    @property
    def flags(self) -> int:
        """The compiler's flags that earlier cells have set (``from __future__``)."""
        return self._flags

    def apply(self, shell: Any) -> None:
        """Give ``shell`` what was gathered."""
        manager = shell.history_manager
        if not self._raw:
            return
        shell.compile.flags |= self._flags
        manager.input_hist_raw[:] = self._raw
        manager.input_hist_parsed[:] = self._parsed
        recent = ["", "", "", *self._raw]
        manager._i00, manager._i, manager._ii, manager._iii = recent[-1], recent[-2], recent[-3], ""
        numbered = {f"_i{n}": text for n, text in enumerate(self._raw) if n and text}
        shell.push(numbered, interactive=False)
        for name, (number, source) in self._sources.items():
            shell.compile._filename_map[name] = number
            linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)

    def new(self, shell: Any) -> dict[str, Any]:
        """Return the part that ``shell`` adds to what was gathered."""
        # A cell that runs again has the same file, and shows its newest number.
        sources = {
            name: source
            for name, source in _sources_of(shell).items()
            if name not in self._sources or self._sources[name][0] != source[0]
        }
        return self._part(shell, len(self._raw), sources)

    def everything(self, shell: Any) -> dict[str, Any]:
        """Return one part that holds what all others hold, as far as it is kept."""
        return self._part(shell, 0, _newest(self._sources | _sources_of(shell)))

    def _part(self, shell: Any, first: int, sources: dict[str, tuple[int, str]]) -> dict[str, Any]:
        manager = shell.history_manager
        return {
            "first": first,
            "raw": [_shortened(text) for text in manager.input_hist_raw[first:]],
            "parsed": [_shortened(text) for text in manager.input_hist_parsed[first:]],
            "sources": sources,
            "flags": shell.compile.flags & _FUTURE_FLAGS,
        }


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


def _sources_of(shell: Any) -> dict[str, tuple[int, str]]:
    sources: dict[str, tuple[int, str]] = {}
    for name, number in shell.compile._filename_map.items():
        entry = linecache.cache.get(name)
        if entry is not None and len(entry) == 4:
            source = "".join(entry[2])
            if len(source) <= MAX_SOURCE_CHARACTERS:
                sources[name] = (number, source)
    return sources


def _newest(sources: dict[str, tuple[int, str]]) -> dict[str, tuple[int, str]]:
    kept: dict[str, tuple[int, str]] = {}
    room = MAX_SOURCES_CHARACTERS
    for name, (number, source) in reversed(sources.items()):
        room -= len(source)
        if room < 0:
            break
        kept[name] = (number, source)
    return dict(reversed(kept.items()))
