"""``input()`` and ``getpass()`` of a cell: a frame asks, and the answer comes the other way."""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import time

from IPython.core.error import StdinNotImplementedError

from lambda_kernel.child.capture import FrameChannel

END_OF_FILE = "\x04"
"""What a front end sends for Ctrl-D. Source: ipykernel, Kernel._input_request."""


class Asker:
    """Asks the user of this cell, one question at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._asked_count = 0

    def ask(
        self, channel: FrameChannel, prompt: str, *, password: bool, timeout_s: float | None
    ) -> str:
        """Return what the user answers.

        Args:
            channel: of this cell.
            prompt: shown to the user.
            password: the front end shows no character of the answer.
            timeout_s: how long to wait for it.

        Raises:
            EOFError: the user sent the end of the file.
            KeyboardInterrupt: the cell was interrupted.
            StdinNotImplementedError: this process cannot ask.
            TimeoutError: nobody answered in time.
        """
        sock = channel.sock
        if sock is None or channel.is_copy:
            raise StdinNotImplementedError(
                "input() was called in a process that the cell started; only the cell's own asks"
            )
        with self._lock:
            self._asked_count += 1
            channel.send_message("input_request", {"prompt": prompt, "password": password}, {})
            try:
                value = self._answer(sock, timeout_s)
            except KeyboardInterrupt:
                # Raised again: the user's traceback ends at the question.
                raise KeyboardInterrupt("Interrupted by user") from None
        if value == END_OF_FILE:
            raise EOFError
        return value

    def _answer(self, sock: socket.socket, timeout_s: float | None) -> str:
        ends = None if timeout_s is None else time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(sock, select.POLLIN)
        while True:
            left_s = None if ends is None else ends - time.monotonic()
            if left_s is not None and left_s <= 0:
                raise TimeoutError(f"nobody answered the question within {timeout_s:g} s")
            if not poll.poll(None if left_s is None else left_s * 1000):
                continue
            answer = _received(sock)
            # A late answer to a question that was interrupted is not one to this question.
            if answer.get("number") != self._asked_count:
                continue
            if "error" in answer:
                raise StdinNotImplementedError(f"input() is not answered: {answer['error']}")
            return str(answer["value"])


def _received(sock: socket.socket) -> dict[str, str | int]:
    word, descriptors, _, _ = socket.recv_fds(sock, 1, 1, socket.MSG_CMSG_CLOEXEC)
    if not word:
        raise EOFError("the cell is over")
    if not descriptors:
        raise OSError("an answer came, but the cell has too many files open to take it")
    with os.fdopen(descriptors[0], "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        answer: dict[str, str | int] = json.loads(os.pread(stream.fileno(), size, 0))
    return answer
