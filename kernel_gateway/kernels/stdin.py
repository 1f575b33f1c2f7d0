"""The question that a running cell asks its user: who is asked, and whose answer counts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from kernel_gateway.audit.answers import Answer, noted
from kernel_gateway.dispatch.run import Flight
from kernel_gateway.errors import GatewayError
from kernel_gateway.kernels.outlet import Outlet, Sink
from kernel_gateway.kernels.services import KernelServices
from kernel_gateway.messaging.message import BadMessage, InMessage, OutMessage
from lambda_kernel.contract.control import MAX_ANSWER_CHARACTERS

logger = logging.getLogger(__name__)


class Stdin:
    """The stdin channel of one running cell.

    A question goes to the client that asked for the cell, and again to a connection of the same
    client session. While there is none, every other client of the kernel is asked, also one that
    attaches later. Shown again it is the same message. The first answer counts, and only from who
    was asked.

    Args:
        request: the cell's execute_request.
        sink: the client that sent it; None where it is gone.
        outlet: of the kernel.

    Attributes:
        answers: what was brought to the cell, for the journal.
    """

    __slots__ = ("_asker", "_is_open", "_number", "_outlet", "_question", "_request", "answers")

    def __init__(self, request: InMessage, sink: Sink | None, outlet: Outlet) -> None:
        self._request = request
        self._asker = sink
        self._outlet = outlet
        self._number = 0
        self._question: OutMessage | None = None
        self._is_open = False
        self.answers: tuple[Answer, ...] = ()

    def ask(self, content: dict[str, Any], metadata: Any) -> None:
        """Show the user a question of the cell, in the place of one that is open."""
        own = metadata.get("lambda_kernel") if isinstance(metadata, dict) else None
        number = own.get("question") if isinstance(own, dict) else None
        if self._request.content.get("allow_stdin") is not True or type(number) is not int:
            logger.warning("a container asked a question that nobody admits")
            return
        self._number = number
        self._question = self._outlet.question(self._request, content)
        self._is_open = True
        self._show_all()

    def attach(self, sink: Sink, client_session_id: str) -> None:
        """Show an open question to a client that attaches, where it may answer."""
        if client_session_id and client_session_id == self._request.header.get("session"):
            self._asker = sink
        if self._asker in (None, sink):
            self._show(sink)

    def detach(self, sink: Sink) -> None:
        """Note that a client is gone, after the outlet did."""
        if self._asker == sink:
            self._asker = None
            self._show_all()

    def accept(self, message: InMessage, sink: Sink) -> str | None:
        """Return the answer in an input_reply, None where nobody asked for one; it counts once.

        Raises:
            BadMessage: it was asked for, but is no text, or too long.
        """
        question = self._question
        if question is None or not self._is_open or sink not in self._who_is_asked():
            return None
        # Some clients name the question that they answer.
        parent = message.parent_header.get("msg_id")
        known = (None, "", question.header["msg_id"], self._request.msg_id)
        if message.parent_header.get("msg_type") == "input_request" and parent not in known:
            return None
        value = message.content.get("value")
        if not isinstance(value, str):
            raise BadMessage("content.value of an input_reply is missing or is not text")
        if len(value) > MAX_ANSWER_CHARACTERS:
            raise BadMessage(f"an answer may have {MAX_ANSWER_CHARACTERS} characters at most")
        self._is_open = False
        asked = question.content
        self.answers = noted(
            self.answers,
            prompt=str(asked.get("prompt")),
            is_password=asked.get("password") is not False,
            value=value,
            caller=message.caller,
        )
        return value

    async def deliver(self, value: str, flight: Flight, services: KernelServices) -> None:
        """Bring an answer to the cell; where that fails, the question is asked again."""
        number = self._number
        try:
            await services.dispatcher.answer(flight, number, value)
        except GatewayError as problem:
            logger.warning("an answer could not be brought to its cell", exc_info=True)
            if number == self._number:
                self.answers = self.answers[:-1]
                self._is_open = True
                text = f"[gateway] the answer could not be delivered ({problem}): try again\n"
                self._outlet.publish("stream", {"name": "stderr", "text": text}, self._request)
                self._show_all()

    def _show_all(self) -> None:
        for sink in self._who_is_asked():
            self._show(sink)

    def _who_is_asked(self) -> tuple[Sink, ...]:
        return self._outlet.sinks if self._asker is None else (self._asker,)

    def _show(self, sink: Sink) -> None:
        if self._is_open and self._question is not None:
            self._outlet.send(sink, self._question)


def take_reply(
    message: InMessage,
    sink: Sink,
    stdin: Stdin | None,
    flight: Flight | None,
    services: KernelServices,
    refuse: Callable[[str, Sink], None],
) -> None:
    """Bring an input_reply to the running cell; one that nobody asked for is logged."""
    try:
        value = stdin.accept(message, sink) if stdin is not None else None
    except BadMessage as problem:
        refuse(str(problem), sink)
        return
    if value is None or stdin is None or flight is None:
        logger.info("an input_reply is ignored: its sender was not asked")
        return
    task = asyncio.get_running_loop().create_task(stdin.deliver(value, flight, services))
    services.tasks.add(task)
    task.add_done_callback(services.tasks.discard)
