"""The output of one cell on its way out: checked, counted, and cut at a limit that is told."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from lambda_kernel.serving import child_messages
from lambda_kernel.serving.child_messages import ChildMessage
from lambda_kernel.serving.kept_output import KeptOutput
from lambda_kernel.serving.masking import MaskedStream, Masker
from lambda_kernel.serving.message_shapes import STREAMS

MESSAGE_OVERHEAD_BYTES = 512
"""What a message costs on its way beside its content: headers, of its own and of the request."""

RESERVE_BYTES = 1024 * 1024
MERGED_CHARACTERS = 256 * 1024
_CUT_TYPES = frozenset({"stream", "display_data", "update_display_data"})


class Output:
    """Passes messages on until the limit, then counts what it cuts.

    Results, errors and comm messages may use a reserve beyond it: the traceback of a cell that
    printed too much must be seen.

    Stream messages of one name that follow each other are one message: a program that flushes each
    line costs clients no more than one that does not. What was gathered leaves with `flush`.

    Attributes:
        dropped_count: messages that were refused: a child may not say them, or not in this form.
    """

    def __init__(
        self,
        send: Callable[[ChildMessage], None],
        max_bytes: int,
        kept: KeptOutput | None = None,
    ) -> None:
        self._send = send
        self._kept = kept
        self._left = max_bytes
        self._max_bytes = max_bytes
        self._cut_bytes = 0
        self.dropped_count = 0
        self._decoders = {
            name: codecs.getincrementaldecoder("utf-8")("replace") for name in STREAMS
        }
        self._masker = Masker({})
        self._masked: dict[str, MaskedStream] = {}
        self._gathered: list[str] = []
        self._gathered_name = ""
        self._gathered_characters = 0

    def mask(self, masker: Masker) -> None:
        """Replace connector values in everything that is passed on from now on."""
        self._masker = masker
        if not masker.is_idle:
            self._masked = {name: MaskedStream(masker) for name in STREAMS}

    def message(self, data: dict[str, Any], buffers: tuple[bytes, ...]) -> bool:
        """Pass on a message of the child, or refuse or cut it; return whether it was passed on."""
        found = child_messages.message(data, buffers)
        if found is None:
            self.dropped_count += 1
            return False
        if self._masked:
            found = self._cleared(found)
            if found is None:
                return False
        return self._pass(found, _size_of(found))

    def raw(self, name: str, chunk: bytes, *, final: bool = False) -> None:
        """Pass on bytes that came over a pipe, as text."""
        text = self._decoders[name].decode(chunk, final)
        if text and self._masked:
            text = self._masked[name].feed(text)
        if text:
            found = stream(name, text)
            self._pass(found, len(chunk))

    def notice(self, text: str) -> None:
        """Tell the client something of our own, beside any limit."""
        self.flush()
        self._send(stream("stderr", f"{self._masker.text(text)}\n"))

    @property
    def waits(self) -> bool:
        """Whether stream text waits for `flush`."""
        return bool(self._gathered)

    def flush(self) -> None:
        """Send the stream text that was gathered."""
        gathered, self._gathered = self._gathered, []
        if gathered:
            self._send(stream(self._gathered_name, "".join(gathered)))
        self._gathered_characters = 0

    def close(self) -> None:
        """Send what waits; tell how much was cut, where the whole is, and what was refused."""
        for name in self._decoders:
            self.raw(name, b"", final=True)
        self._unmask()
        self.flush()
        if self.dropped_count:
            self.notice(
                f"[output] {self.dropped_count} malformed messages of the cell were left out"
            )
        if self._cut_bytes:
            self.notice(
                f"[output] the limit of {self._max_bytes / 1e6:.1f} MB was reached: "
                f"{self._cut_bytes / 1e6:.1f} MB more were cut; "
                + ("none of it is kept" if self._kept is None else self._kept.store())
            )
        if self._kept is not None:
            self._kept.close()
            self._kept = None

    def _cleared(self, found: ChildMessage) -> ChildMessage | None:
        text, name = found.content.get("text"), found.content.get("name")
        if found.msg_type == "stream" and isinstance(text, str) and name in self._masked:
            # Both ways to a stream, messages and the descriptor, are one text to who reads it.
            shown = self._masked[name].feed(text)
            return replace(found, content={**found.content, "text": shown}) if shown else None
        self._unmask()
        return found.masked(self._masker)

    def _unmask(self) -> None:
        for name, masked in self._masked.items():
            held = masked.flush()
            if held:
                self._pass(stream(name, held), len(held))

    def _pass(self, found: ChildMessage, size: int) -> bool:
        text = found.content["text"] if found.msg_type == "stream" else ""
        if found.msg_type == "stream" and not text:
            return False
        if self._kept is not None:
            self._kept.add(found)
        if not self._joins(found):
            size += MESSAGE_OVERHEAD_BYTES
        room = self._left + (0 if found.msg_type in _CUT_TYPES else RESERVE_BYTES)
        if size <= room:
            self._left -= size
            self._emit(found)
            return True
        if text and self._left > 0:
            self._emit(stream(found.content["name"], text[: self._left]))
            size -= min(size, self._left)
            self._left = 0
        self._cut_bytes += size
        return False

    def _joins(self, found: ChildMessage) -> bool:
        """Return whether it becomes part of the message that is gathered."""
        if found.msg_type != "stream" or not self._gathered:
            return False
        characters = self._gathered_characters + len(found.content["text"])
        return found.content["name"] == self._gathered_name and characters <= MERGED_CHARACTERS

    def _emit(self, found: ChildMessage) -> None:
        if not self._joins(found):
            self.flush()
        if found.msg_type != "stream":
            self._send(found)
            return
        self._gathered.append(found.content["text"])
        self._gathered_characters += len(found.content["text"])
        self._gathered_name = found.content["name"]


def stream(name: str, text: str) -> ChildMessage:
    """Return a stream message."""
    return ChildMessage(msg_type="stream", content={"name": name, "text": text}, metadata={})


def _size_of(found: ChildMessage) -> int:
    if found.msg_type == "stream":
        return len(found.content["text"])
    size = child_messages.size_of(found.content) + child_messages.size_of(found.metadata)
    return size + sum(map(len, found.buffers))
