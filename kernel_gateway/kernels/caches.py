"""What the gateway remembers of idle kernels, in bounded memory shared by all of them."""

from __future__ import annotations

import base64
from collections import OrderedDict
from dataclasses import dataclass, field

from kernel_gateway.messaging.replies import PastInput
from lambda_kernel.contract.invocation import INLINE_MANIFEST_BYTES, Head


@dataclass(slots=True)
class ManifestCache:
    """Head commits by kernel, base64, least recently used out first.

    Attributes:
        max_bytes: what all of them may hold together.
    """

    max_bytes: int = 64 * 1024 * 1024
    _entries: OrderedDict[str, tuple[Head, str]] = field(default_factory=OrderedDict)
    _size_bytes: int = 0

    def put(self, kernel_id: str, head: Head, stored: bytes) -> None:
        """Remember the stored bytes of a kernel's head, unless they are too large to ride along."""
        self.drop(kernel_id)
        if len(stored) > INLINE_MANIFEST_BYTES:
            return
        text = base64.b64encode(stored).decode("ascii")
        self._entries[kernel_id] = (head, text)
        self._size_bytes += len(text)
        while self._size_bytes > self.max_bytes:
            _, (_, oldest) = self._entries.popitem(last=False)
            self._size_bytes -= len(oldest)

    def get(self, kernel_id: str, head: Head | None) -> str | None:
        """Return the base64 text of exactly this head, or None."""
        found = self._entries.get(kernel_id)
        if found is None or found[0] != head:
            return None
        self._entries.move_to_end(kernel_id)
        return found[1]

    def drop(self, kernel_id: str) -> None:
        """Forget a kernel."""
        found = self._entries.pop(kernel_id, None)
        if found is not None:
            self._size_bytes -= len(found[1])


INPUT_OVERHEAD = 200
"""What an input takes beside its text, in characters: short ones are many."""


@dataclass(slots=True)
class InputHistory:
    """The inputs of kernels, for history_request; least recently used kernel out first.

    What it lacks of a session stands in the session's newest commit (see `inputs`).

    Attributes:
        max_characters: what all kernels may hold together.
        max_inputs: what one kernel may hold.
    """

    max_characters: int = 8 * 1024 * 1024
    max_inputs: int = 1000
    max_input_characters: int = 100_000
    _entries: OrderedDict[str, list[PastInput]] = field(default_factory=OrderedDict)
    _characters: int = 0

    def add(self, kernel_id: str, count: int, source: str, session: int = 1) -> None:
        """Remember an input; one that is very long is left out."""
        if len(source) > self.max_input_characters:
            return
        inputs = self._entries.setdefault(kernel_id, [])
        self._entries.move_to_end(kernel_id)
        inputs.append(PastInput(session=session, count=count, source=source))
        self._characters += _size(source)
        if len(inputs) > self.max_inputs:
            self._characters -= _size(inputs.pop(0).source)
        while self._characters > self.max_characters and len(self._entries) > 1:
            self.drop(next(iter(self._entries)))
        while self._characters > self.max_characters:
            self._characters -= _size(inputs.pop(0).source)

    def of(self, kernel_id: str) -> list[PastInput]:
        """Return the inputs of a kernel, oldest first, as far as they are remembered."""
        return list(self._entries.get(kernel_id, ()))

    def drop(self, kernel_id: str) -> None:
        """Forget a kernel."""
        self._characters -= sum(_size(e.source) for e in self._entries.pop(kernel_id, ()))


def _size(source: str) -> int:
    return len(source) + INPUT_OVERHEAD
