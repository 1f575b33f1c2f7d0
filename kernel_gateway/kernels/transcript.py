"""What one cell says to clients, kept while it runs and until the journal has it."""

from __future__ import annotations

import base64
from typing import Any

from kernel_gateway.audit.chain import Outputs, RecordedMessage
from kernel_gateway.messaging.backlog import rough_bytes
from kernel_gateway.messaging.message import OutMessage

ALWAYS_KEPT = frozenset({"status", "execute_input", "error"})
"""Small, and a cell makes few of them."""


class Transcript:
    """The messages of one cell, in order, bounded.

    Attributes:
        parent: the header of the execute_request.
        messages: what was published; None once they are to be read from the journal.
        reply: the execute_reply, once it was sent.
        dropped_count: how many messages came after the limit.
        number: of the journal's entry that holds all this; 0 until it is written.
        is_over: the cell says nothing more.
    """

    __slots__ = (
        "_limit_bytes",
        "_size_bytes",
        "dropped_count",
        "is_over",
        "messages",
        "number",
        "parent",
        "reply",
    )

    def __init__(self, parent: dict[str, Any], *, limit_bytes: int) -> None:
        self.parent = parent
        self.is_over = False
        self.messages: list[OutMessage] | None = []
        self.reply: OutMessage | None = None
        self.dropped_count = 0
        self.number = 0
        self._limit_bytes = limit_bytes
        self._size_bytes = 0

    @classmethod
    def in_journal(cls, parent: dict[str, Any], number: int) -> Transcript:
        """Return the transcript of a cell that ended before, whose entry has this number."""
        said = cls(parent, limit_bytes=0)
        said.is_over = True
        said.move_to_journal(number)
        return said

    def concerns(self, message: OutMessage) -> bool:
        """Return whether ``message`` belongs here: published by the cell, or its reply."""
        if self.is_over or message.parent_header is not self.parent:
            return False
        return message.channel == "iopub" or message.msg_type == "execute_reply"

    def add(self, message: OutMessage) -> None:
        """Keep ``message``, published or the reply, if there is room."""
        if message.msg_type == "execute_reply":
            self.reply = message
        elif self.messages is not None:
            self._size_bytes += rough_bytes(message)
            if self._size_bytes <= self._limit_bytes or message.msg_type in ALWAYS_KEPT:
                self.messages.append(message)
            else:
                self.dropped_count += 1

    def move_to_journal(self, number: int) -> None:
        """Forget the messages: entry ``number`` of the journal has them."""
        self.number = number
        self.messages = self.reply = None


def recorded(message: OutMessage) -> RecordedMessage:
    """Return a message as the journal holds it."""
    return RecordedMessage(
        header=message.header,
        metadata=message.metadata,
        content=message.content,
        buffers=tuple(base64.b64encode(part).decode() for part in message.buffers),
    )


def recorded_outputs(transcript: Transcript) -> Outputs:
    """Return what was published, as the journal holds it."""
    messages = transcript.messages or []
    return Outputs(
        count=len(messages),
        dropped_count=transcript.dropped_count,
        messages=tuple(recorded(message) for message in messages),
    )


def as_sent(
    recorded: RecordedMessage, parent: dict[str, Any], *, channel: str = "iopub"
) -> OutMessage:
    """Return a recorded message as it was sent."""
    return OutMessage(
        channel=channel,
        header=recorded.header,
        parent_header=parent,
        metadata=recorded.metadata,
        content=recorded.content,
        buffers=tuple(base64.b64decode(part) for part in recorded.buffers),
    )
