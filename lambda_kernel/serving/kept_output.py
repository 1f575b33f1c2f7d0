"""All that a cell said, where it is too much to be sent: kept as one text object."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from lambda_kernel.serving.child_messages import ChildMessage
from lambda_kernel.serving.errors import CellEnded

IN_MEMORY_BYTES = 256 * 1024
"""Most cells say less than this, and need no file."""

Upload = Callable[[IO[bytes], int], None]
"""Stores so many bytes of a file, from where it stands (raises CellEnded)."""


class KeptOutput:
    """A copy of a cell's output as text, up to a limit.

    Args:
        folder: where its file is, which has no name.
        max_bytes: what is longer is cut.
        address: where clients find it, once it is stored.
        upload: see there.
    """

    def __init__(self, folder: Path, max_bytes: int, address: str, upload: Upload) -> None:
        self._folder = str(folder)
        self._file: IO[bytes] | None = None
        self._max_bytes = max_bytes
        self._address = address
        self._upload = upload
        self._size_bytes = 0
        self._is_whole = True

    def add(self, message: ChildMessage) -> None:
        """Keep the text of ``message``."""
        if not self._is_whole:
            return
        data = text_of(message).encode("utf-8", "replace")
        room = self._max_bytes - self._size_bytes
        self._is_whole = len(data) <= room
        if self._file is None:
            self._file = tempfile.SpooledTemporaryFile(IN_MEMORY_BYTES, dir=self._folder)  # noqa: SIM115
        try:
            self._file.write(data[:room])
        except OSError:
            # No room is left, or a cell has removed the folder.
            self._is_whole = False
            with contextlib.suppress(OSError):
                self._file.truncate(self._size_bytes)
            return
        self._size_bytes += min(len(data), room)

    def store(self) -> str:
        """Store it, and return where it is, or why it is not, as the end of a sentence."""
        if self._file is None or not self._size_bytes:
            return "none of it is kept"
        kept = "the whole is"
        if not self._is_whole:
            kept = f"its first {self._size_bytes / 1e6:.1f} MB are"
        try:
            self._file.seek(0)
            self._upload(self._file, self._size_bytes)
        except (CellEnded, OSError) as error:
            return f"the whole could not be kept: {error}"
        return f"{kept} kept: GET {self._address}"

    def close(self) -> None:
        """Give up its memory and disk space."""
        if self._file is not None:
            self._file.close()


def text_of(message: ChildMessage) -> str:
    """Return what is kept of a message: text of streams, plain text of displays, tracebacks."""
    content: dict[str, Any] = message.content
    if message.msg_type == "stream":
        return str(content["text"])
    if message.msg_type == "error":
        return "\n".join(content["traceback"]) + "\n"
    plain = content.get("data", {}).get("text/plain")
    if isinstance(plain, list):
        plain = "".join(map(str, plain))
    return f"{plain}\n" if isinstance(plain, str) else ""
