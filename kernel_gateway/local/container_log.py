"""What a container prints, as JSON lines in a file of its own."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

LINE_BYTES = 64 * 1024
FILE_BYTES = 64 * 1024 * 1024
"""A container that prints more is cut off: the log must not fill the disk."""

TAIL_LINES = 20


class ContainerLog:
    """One container's log file.

    A line that is a JSON object is kept as it is; any other is wrapped in one.
    """

    def __init__(self, file: BinaryIO, now: Callable[[], datetime]) -> None:
        self._file = file
        self._now = now
        self._written_bytes = 0
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    @classmethod
    def open(
        cls, path: Path, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> ContainerLog:
        """Return a log that appends to ``path``, readable by its owner only."""
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = path.open("ab", buffering=0)
        path.chmod(0o600)
        return cls(file, now)

    @property
    def tail(self) -> str:
        """The last lines that were printed, as printed."""
        return "\n".join(self._tail)

    def platform(self, event: str, **facts: Any) -> None:
        """Add a line of the platform's own, such as ``platform.start``."""
        self._write({"time": self._timestamp(), "type": event, "record": facts})

    def line(self, raw: bytes, stream: str) -> None:
        """Add one printed line."""
        text = raw.decode(errors="replace").rstrip("\r")
        self._tail.append(text)
        try:
            is_object = text.startswith("{") and isinstance(json.loads(text), dict)
        except (ValueError, RecursionError):
            is_object = False
        if is_object:
            self._append(text.encode())
        else:
            self._write({"time": self._timestamp(), "stream": stream, "message": text})

    async def follow(self, reader: asyncio.StreamReader, stream: str) -> None:
        """Add what ``reader`` brings, line by line, until its end."""
        pending = b""
        while chunk := await reader.read(LINE_BYTES):
            *lines, pending = (pending + chunk).split(b"\n")
            for raw in lines:
                self.line(raw, stream)
            if len(pending) > LINE_BYTES:
                self.line(pending, stream)
                pending = b""
        if pending:
            self.line(pending, stream)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _timestamp(self) -> str:
        return self._now().isoformat(timespec="milliseconds")

    def _write(self, record: dict[str, Any]) -> None:
        self._append(json.dumps(record).encode())

    def _append(self, line: bytes) -> None:
        if self._file.closed or self._written_bytes > FILE_BYTES:
            return
        self._written_bytes += self._file.write(line + b"\n")
