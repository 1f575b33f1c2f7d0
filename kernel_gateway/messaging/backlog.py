"""Messages that wait for a client: as few as say the same."""

from __future__ import annotations

from collections import deque
from dataclasses import replace

from kernel_gateway.messaging.message import OutMessage

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
    """Return about how much memory a message holds; looks two levels deep."""
    size = 1000 + sum(len(part) for part in message.buffers)
    for value in message.content.values():
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, dict):
            size += sum(len(inner) for inner in value.values() if isinstance(inner, str | list))
        elif isinstance(value, list):
            size += sum(len(inner) for inner in value if isinstance(inner, str))
    return size
