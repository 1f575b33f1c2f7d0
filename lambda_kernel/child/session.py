"""What ipykernel writes to in a cell: its two streams and its message session."""

from __future__ import annotations

import io
import sys
import uuid
from typing import Any

from jupyter_client.session import Session

from lambda_kernel.child.capture import FrameChannel
from lambda_kernel.contract.cell_protocol import ChildKind


class CellStream(io.TextIOBase):
    """``sys.stdout`` or ``sys.stderr`` of a cell."""

    encoding = "UTF-8"
    errors = None

    def __init__(self, name: str, channel: FrameChannel, descriptor: int) -> None:
        super().__init__()
        self._name = name
        self._channel = channel
        self._descriptor = descriptor

    @property
    def name(self) -> str:
        """``stdout`` or ``stderr``."""
        return self._name

    def write(self, text: str) -> int:
        """Queue ``text``; returns its length."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        if self.closed:
            raise ValueError("I/O operation on closed file.")
        if text:
            self._channel.write(self._name, text)
        return len(text)

    def flush(self) -> None:
        """Send what was written."""
        if not self.closed:
            self._channel.flush()

    def close(self) -> None:
        """Do nothing: other code of the cell still prints here."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def isatty(self) -> bool:
        """Return False: programs must not draw for a terminal."""
        return False

    def fileno(self) -> int:
        """Return the descriptor that the cell's programs write to."""
        return self._descriptor

    def __reduce__(self) -> Any:
        # A variable that holds the stream means the stream of its own cell.
        return getattr, (sys, self._name)


# What libraries and error messages call it.
CellStream.__name__ = CellStream.__qualname__ = "OutStream"


class CellSession(Session):
    """A Session whose messages become frames; replies are kept for the caller."""

    def __init__(self, channel: FrameChannel) -> None:
        super().__init__(key=b"", username="")
        self.channel = channel
        self.reply: dict[str, Any] | None = None

    def begin(self) -> None:
        """Take a new identity: message ids must differ between children."""
        self.session = uuid.uuid4().hex
        self.reply = None

    def send(self, stream: Any, msg_or_type: Any, *args: Any, **kwargs: Any) -> Any:
        """Send a message as a frame; returns the message."""
        names = ("content", "parent", "ident", "buffers", "track", "header", "metadata")
        given = dict(zip(names, args, strict=False)) | kwargs
        buffers = given.get("buffers") or ()
        if isinstance(msg_or_type, dict):
            message = msg_or_type
            buffers = buffers or message.get("buffers") or ()
        else:
            message = self.msg(
                msg_or_type,
                content=given.get("content"),
                parent=given.get("parent"),
                header=given.get("header"),
                metadata=given.get("metadata"),
            )
        msg_type = message["header"]["msg_type"]
        if msg_type.endswith("_reply"):
            self.reply = message
        else:
            self.channel.send_message(msg_type, message["content"], message["metadata"], buffers)
        return message


def send_reply(channel: FrameChannel, message: dict[str, Any]) -> None:
    """Send a reply; one that is too large or too deep is cut so that there always is one."""
    frame = {
        "kind": ChildKind.REPLY.value,
        "msg_type": message["header"]["msg_type"],
        "content": message["content"],
        "metadata": message["metadata"] or {},
    }
    if channel.send(frame):
        return
    text = "[output] the reply was too large or nested too deeply; parts of it were left out.\n"
    channel.write("stderr", text)
    short: dict[str, Any] = {
        key: value[:10_000] if isinstance(value, str) else value
        for key, value in message["content"].items()
        if isinstance(value, str | int | float | bool)
    }
    if "ename" in short:
        short["traceback"] = [f"{short['ename']}: {short.get('evalue', '')}"]
    if "execution_count" in short:
        short |= {"user_expressions": {}, "payload": []}
    channel.send(frame | {"content": short, "metadata": {}})
