"""What one child says on its frames socket, read and checked."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from typing import Any

from lambda_kernel.contract import cell_protocol
from lambda_kernel.contract.cell_protocol import ChildKind, FailedReason
from lambda_kernel.contract.frames import BadFrame, PartsReader
from lambda_kernel.contract.snapshot_report import SnapshotReport
from lambda_kernel.isolation import shared_memory
from lambda_kernel.serving import child_messages
from lambda_kernel.serving.child_messages import ChildMessage
from lambda_kernel.serving.control import Answer, Orders
from lambda_kernel.serving.errors import CellEnded, CellProcessDied, SnapshotTooLarge
from lambda_kernel.serving.output import Output
from lambda_kernel.serving.questions import Questions

READ_BYTES = 256 * 1024


class ChildFrames:
    """Both ends of a child's frames socket, and what came over it.

    Attributes:
        started: whether user code may have run.
        reply: the child's, once it has replied.
        snapshot: what it says about its variables, likewise.
        failure: why the child gave up, if it did.
        gauges: descriptors that measure the memory it fills.
    """

    def __init__(
        self,
        output: Output,
        orders: Orders,
        on_started: Callable[[], None],
        on_answer: Callable[[ChildMessage], None],
    ) -> None:
        self.started = False
        self.reply: ChildMessage | None = None
        self.snapshot: SnapshotReport | None = None
        self.failure: CellEnded | None = None
        self.gauges: list[int] = []
        self.kind = ""
        self._output = output
        self._on_started = on_started
        self._on_answer = on_answer
        self._ours, self._theirs = socket.socketpair()
        self._ours.setblocking(False)
        self._parts = PartsReader(cell_protocol.MAX_MESSAGE_BYTES + 64 * 1024)
        self._questions = Questions(output, orders, self._ours)

    def fileno(self) -> int:
        """Return the descriptor of our end."""
        return self._ours.fileno()

    def detach_child_end(self) -> int:
        """Return the descriptor of the child's end, which the caller closes."""
        return self._theirs.detach()

    @property
    def is_complete(self) -> bool:
        """Whether everything has come that a request of this kind must have."""
        stores = self.kind in cell_protocol.STORING_KINDS
        return self.reply is not None and (self.snapshot is not None or not stores)

    def read(self, explained: Callable[[dict[str, Any]], dict[str, Any]]) -> bool:
        """Take what is there.

        Args:
            explained: makes an error of a message or reply one that names its true reason.

        Returns:
            False where nothing is there now.

        Raises:
            EOFError: nothing comes any more.
            CellProcessDied: it is garbage.
        """
        try:
            # Only what comes with the word that user code begins is our own code's.
            if self.started or self.gauges:
                chunk = self._ours.recv(READ_BYTES)
            else:
                chunk, self.gauges, _, _ = socket.recv_fds(
                    self._ours, READ_BYTES, len(shared_memory.GAUGES), socket.MSG_CMSG_CLOEXEC
                )
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            chunk = b""
        if not chunk:
            raise EOFError("the child has closed its end")
        try:
            for data, buffers in self._parts.feed(chunk):
                self._take(data, buffers, explained)
        except BadFrame as error:
            raise CellProcessDied(f"the cell's process sent garbage: {error}") from error
        return True

    def answer(self, answer: Answer) -> None:
        """Hand the child what the user answered."""
        self._questions.answer(answer)

    def shut(self) -> None:
        """Let nothing more come than what has come."""
        self._ours.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        """Close everything."""
        for descriptor in self.gauges:
            os.close(descriptor)
        self._ours.close()

    def _take(
        self,
        data: dict[str, Any],
        buffers: tuple[bytes, ...],
        explained: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        kind = data.get("kind")
        if kind == ChildKind.STARTED:
            if not self.started:
                self.started = True
                self._on_started()
        elif kind == ChildKind.MESSAGE and data.get("msg_type") == "input_request":
            self._questions.ask(data)
        elif kind == ChildKind.MESSAGE:
            self._output.message(explained(data), buffers)
        elif kind == ChildKind.REPLY and self.reply is None:
            self._replied(explained(data))
        elif kind == ChildKind.SNAPSHOT and self.snapshot is None:
            self.snapshot = child_messages.snapshot(data)
            if self.snapshot is None:
                raise CellProcessDied("the cell's process sent a malformed snapshot report")
        elif kind == ChildKind.FAILED:
            self._failed(data)
        else:
            self._output.dropped_count += 1

    def _replied(self, data: dict[str, Any]) -> None:
        self.reply = child_messages.reply(data, self.kind)
        if self.reply is None:
            raise CellProcessDied("the cell's process sent a malformed reply")
        if self.kind not in cell_protocol.STORING_KINDS:
            self._on_answer(self.reply)

    def _failed(self, data: dict[str, Any]) -> None:
        text = str(data.get("message", ""))[: child_messages.MAX_TEXT]
        if data.get("reason") == FailedReason.SNAPSHOT_TOO_LARGE:
            self.failure = self.failure or SnapshotTooLarge(text)
        else:
            self.failure = self.failure or CellProcessDied(f"the cell's process failed: {text}")
