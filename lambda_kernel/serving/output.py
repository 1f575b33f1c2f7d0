"""The output of one cell on its way out: checked, counted, and cut at a limit that is told."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from typing import Any

from lambda_kernel.serving import child_messages
from lambda_kernel.serving.child_messages import ChildMessage

MESSAGE_OVERHEAD_BYTES = 64
RESERVE_BYTES = 1024 * 1024
_CUT_TYPES = frozenset({"stream", "display_data", "update_display_data"})


class Output:
    """Passes messages on until the limit, then counts what it cuts.

    Results, errors and comm messages may use a reserve beyond it: the traceback of a cell that
    printed too much must be seen.

    Attributes:
        dropped_count: messages that were refused because a child may not say them.
    """

    def __init__(self, send: Callable[[ChildMessage], None], max_bytes: int) -> None:
        self._send = send
        self._left = max_bytes
        self._max_bytes = max_bytes
        self._cut_bytes = 0
        self.dropped_count = 0
        self._decoders = {
            name: codecs.getincrementaldecoder("utf-8")("replace") for name in ("stdout", "stderr")
        }

    def message(self, data: dict[str, Any], buffers: tuple[bytes, ...]) -> None:
        """Pass on a message of the child, or refuse or cut it."""
        found = child_messages.message(data, buffers)
        if found is None:
            self.dropped_count += 1
            return
        size = child_messages.size_of(found.content) + sum(map(len, buffers))
        self._pass(found, size + MESSAGE_OVERHEAD_BYTES)

    def raw(self, name: str, chunk: bytes, *, final: bool = False) -> None:
        """Pass on bytes that came over a pipe, as text."""
        text = self._decoders[name].decode(chunk, final)
        if text:
            found = stream(name, text)
            self._pass(found, len(chunk) + MESSAGE_OVERHEAD_BYTES)

    def notice(self, text: str) -> None:
        """Tell the client something of our own, beside any limit."""
        self._send(stream("stderr", f"{text}\n"))

    def close(self) -> None:
        """Tell how much was cut."""
        for name in self._decoders:
            self.raw(name, b"", final=True)
        if self._cut_bytes:
            self.notice(
                f"[output] the limit of {self._max_bytes / 1e6:.1f} MB was reached: "
                f"{self._cut_bytes / 1e6:.1f} MB more were cut"
            )

    def _pass(self, found: ChildMessage, size: int) -> None:
        room = self._left + (0 if found.msg_type in _CUT_TYPES else RESERVE_BYTES)
        if size <= room:
            self._left -= size
            self._send(found)
            return
        text = found.content.get("text")
        if found.msg_type == "stream" and isinstance(text, str) and self._left > 0:
            self._send(stream(str(found.content.get("name")), text[: self._left]))
            size -= min(size, self._left)
            self._left = 0
        self._cut_bytes += size


def stream(name: str, text: str) -> ChildMessage:
    """Return a stream message."""
    return ChildMessage(msg_type="stream", content={"name": name, "text": text}, metadata={})
