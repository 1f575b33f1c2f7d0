"""Messages that wait for a client: as few as say the same."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any

from kernel_gateway.messaging.message import OutMessage

ITEM_BYTES = 8
"""What an item of an object or array takes at least."""
SMALL_NUMBER = 1 << 64

MERGED_CHARACTERS = 64 * 1024
"""A longer stream message takes no more: joining copies it."""


class Backlog:
    """Messages in order; stream text and clear_output of one cell that follow each other are one.

    Attributes:
        size_bytes: roughly, of all of them.
    """

    __slots__ = ("_messages", "size_bytes")

    def __init__(self) -> None:
        self._messages: deque[OutMessage] = deque()
        self.size_bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: OutMessage) -> None:
        """Put ``message`` at the end, or into the last one."""
        joined = merged(self._messages[-1], message) if self._messages else None
        if joined is not None:
            self.size_bytes -= rough_bytes(self._messages.pop())
            message = joined
        self._messages.append(message)
        self.size_bytes += rough_bytes(message)

    def take(self) -> OutMessage:
        """Remove and return the oldest message."""
        message = self._messages.popleft()
        self.size_bytes -= rough_bytes(message)
        return message


def merged(first: OutMessage, second: OutMessage) -> OutMessage | None:
    """Return one message that shows what both show, or None where there is none."""
    if first.msg_type != second.msg_type or first.parent_header != second.parent_header:
        return None
    one, other = first.content, second.content
    if first.msg_type == "clear_output":
        return replace(second, content={"wait": bool(one.get("wait") and other.get("wait"))})
    if first.msg_type != "stream" or one["name"] != other["name"]:
        return None
    if len(one["text"]) + len(other["text"]) > MERGED_CHARACTERS:
        return None
    return replace(first, content={"name": one["name"], "text": one["text"] + other["text"]})


def rough_bytes(message: OutMessage) -> int:
    """Return about how much memory a message holds, beside the header of its request.

    What a cell shows is any JSON, and a client that does not read must not fill the memory with
    it, however it is nested.
    """
    sizes = sum(len(part) for part in message.buffers)
    return 1000 + sizes + _rough(message.content) + _rough(message.metadata)


def _is_small(value: Any) -> bool:
    return type(value) is float or (type(value) is int and -SMALL_NUMBER < value < SMALL_NUMBER)


def _rough(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(ITEM_BYTES + len(key) + _rough(item) for key, item in value.items())
    if isinstance(value, list):
        # Plots are long arrays of numbers: those are counted, not looked at.
        return ITEM_BYTES * len(value) + sum(_rough(each) for each in value if not _is_small(each))
    return value.bit_length() // 8 if isinstance(value, int) else 0
