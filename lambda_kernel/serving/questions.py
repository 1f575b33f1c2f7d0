"""The questions that a cell asks its user (``input_request``), and the answers on their way back.

The child runs user code: it may ask without end and read no answer.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from typing import Any

from lambda_kernel.serving.control import Answer, Orders
from lambda_kernel.serving.output import Output

logger = logging.getLogger(__name__)

MAX_UNANSWERED = 100
"""Code that is interrupted while it asks may ask again; one that asks more often is not served."""

MAX_PROMPT_CHARACTERS = 64 * 1024


class Questions:
    """Passes a cell's questions on, one at a time, and hands it the answers.

    Questions are numbered from 1 in the order they come; the child counts them as well. A question
    takes the place of one that still waits: the code that asked that was interrupted.
    """

    def __init__(self, output: Output, orders: Orders, frames: socket.socket) -> None:
        self._output = output
        self._orders = orders
        self._frames = frames
        self._number = 0
        self._unanswered_count = 0

    def ask(self, data: dict[str, Any]) -> None:
        """Pass on the question in a child's frame; where that cannot be, tell the child."""
        self._number += 1
        self._unanswered_count += 1
        if self._unanswered_count > MAX_UNANSWERED:
            self._output.dropped_count += 1
            if self._unanswered_count <= 2 * MAX_UNANSWERED:
                error = f"{MAX_UNANSWERED} questions of this cell were not answered: no more follow"
                self._tell({"error": error})
            return
        content = data.get("content")
        if isinstance(content, dict) and isinstance(content.get("prompt"), str):
            content = {**content, "prompt": content["prompt"][:MAX_PROMPT_CHARACTERS]}
        metadata = {"lambda_kernel": {"question": self._number}}
        if self._output.message({**data, "content": content, "metadata": metadata}, ()):
            self._orders.question = self._number
        else:
            self._tell({"error": "the question is malformed, or the cell's output is at its limit"})

    def answer(self, answer: Answer) -> None:
        """Hand the child its answer; one to an earlier question is dropped."""
        if answer.number == self._number:
            self._unanswered_count = 0
            self._tell({"value": answer.value})

    def _tell(self, data: dict[str, Any]) -> None:
        text = json.dumps({"number": self._number, **data}).encode("ascii")
        # By memfd: a child that does not read must not hold up who writes.
        memfd = os.memfd_create("lkg-answer", os.MFD_CLOEXEC)
        try:
            with open(memfd, "wb", closefd=False) as stream:
                stream.write(text)
            socket.send_fds(self._frames, [b"a"], [memfd])
        except OSError:
            logger.info("an answer could not be handed to a cell")
        finally:
            os.close(memfd)
