"""What a command shows on a terminal while it works; elsewhere one line a step, or nothing."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

REDRAW_S = 0.1


def amount(size_bytes: int) -> str:
    """Return a number of bytes as people read it, such as ``12.1 kB``."""
    value, unit = float(size_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.1f} {unit}" if unit != "B" else f"{size_bytes} B"


class CellProgress:
    """Which cell runs, on stderr: redrawn on a terminal, a line for each cell elsewhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._is_terminal = self._stream.isatty()

    def begin(self, number: int, count: int, first_line: str) -> None:
        """Show that cell ``number`` of ``count`` begins."""
        text = f"[{number}/{count}] {first_line}"
        if self._is_terminal:
            self._stream.write("\r\x1b[K" + text[: shutil.get_terminal_size().columns - 1])
        else:
            self._stream.write(text[:100] + "\n")
        self._stream.flush()

    def end(self) -> None:
        """Leave the terminal on a line of its own."""
        if self._is_terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


class TransferProgress:
    """How much of how much was moved, on stderr, on a terminal only."""

    def __init__(self, total_bytes: int, stream: TextIO | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self._is_terminal = self._stream.isatty()
        self._total_bytes = total_bytes
        self._done_bytes = 0
        self._name = ""
        self._drawn_s = 0.0

    def begin(self, name: str) -> None:
        """Show that ``name`` is moved now."""
        self._name = name
        self._draw()

    def moved(self, size_bytes: int) -> None:
        """Count bytes."""
        self._done_bytes += size_bytes
        if time.monotonic() - self._drawn_s > REDRAW_S:
            self._draw()

    def end(self) -> None:
        """Leave the terminal on a line of its own."""
        if self._is_terminal:
            self._stream.write("\r\x1b[K")
            self._stream.flush()

    def _draw(self) -> None:
        if not self._is_terminal:
            return
        self._drawn_s = time.monotonic()
        done, total = self._done_bytes / 1e6, self._total_bytes / 1e6
        text = f"{done:,.1f} of {total:,.1f} MB  {self._name}"
        self._stream.write("\r\x1b[K" + text[: shutil.get_terminal_size().columns - 1])
        self._stream.flush()
