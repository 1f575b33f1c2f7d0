"""The complete_ and inspect_requests of a kernel: asked of a container, or answered at once.

They stand beside the queue of cells: no cell waits for a question, and none is kept from a
container by one. Of each client and type only the newest request waits; an older one gets what can
be said without a container.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import Any

from kernel_gateway.dispatch.plan import QueryKind, plan_query
from kernel_gateway.dispatch.run import Flight
from kernel_gateway.environments.environment import Environment
from kernel_gateway.errors import GatewayError
from kernel_gateway.kernels import query
from kernel_gateway.kernels.lineage import Lineage
from kernel_gateway.kernels.outlet import Sink
from kernel_gateway.kernels.services import KernelServices
from kernel_gateway.messaging.message import BadMessage, InMessage
from kernel_gateway.messaging.static_answers import static_answer
from lambda_kernel.contract.frames import Frame, FrameKind

logger = logging.getLogger(__name__)

KINDS: Mapping[str, QueryKind] = {"complete_request": "complete", "inspect_request": "inspect"}
MAX_CODE_CHARACTERS = 1_000_000
MAX_ASKED_CHARACTERS = 200_000
MAX_LINE_CHARACTERS = 10_000
"""In longer code, or where the line at the cursor is longer, matchers look for seconds."""
STATIC_NAMES_S = 0.2
"""How long the names of the session may take for an answer without a container."""
SPARE_SHARE = 0.2
"""Of the time that a question may wait: for a container that no cell needs."""
GIVE_WAY_S = 0.1
"""How long a cell lets a question end whose container is the only warm one."""

Answer = Callable[[InMessage, Sink, dict[str, Any]], None]
"""Sends the reply to a request to the client that asked."""


def checked(message: InMessage) -> InMessage:
    """Return the request with ``cursor_pos`` in it, counted in code points.

    Raises:
        BadMessage: naming the field and what is wrong with it.
    """
    content = message.content
    code = content.get("code")
    if code is None:
        raise BadMessage("content.code is missing")
    if len(code) > MAX_CODE_CHARACTERS:
        raise BadMessage(
            f"content.code has {len(code):,} characters: {MAX_CODE_CHARACTERS:,} are looked at"
        )
    if any("\ud800" <= character <= "\udfff" for character in code):
        raise BadMessage("content.code has a lone surrogate: it is not Unicode text")
    cursor = content.setdefault("cursor_pos", len(code))
    if not 0 <= cursor <= len(code):
        raise BadMessage(f"content.cursor_pos must be 0 to {len(code)}, not {cursor}")
    if content.get("detail_level", 0) not in (0, 1):
        raise BadMessage(f"content.detail_level must be 0 or 1, not {content['detail_level']}")
    return message


class Asking:
    """The questions to one kernel.

    Args:
        lineage: what the kernel stands on.
        environment: where it runs.
        services: what all kernels share.
        answer: see there.
    """

    __slots__ = ("_answer", "_environment", "_flight", "_lineage", "_services", "_task", "_waiting")

    def __init__(
        self, lineage: Lineage, environment: Environment, services: KernelServices, answer: Answer
    ) -> None:
        self._lineage = lineage
        self._environment = environment
        self._services = services
        self._answer = answer
        self._waiting: dict[tuple[Sink, str], InMessage] = {}
        self._task: asyncio.Task[None] | None = None
        self._flight: asyncio.Task[None] | None = None

    def ask(self, message: InMessage, sink: Sink) -> None:
        """Answer a request soon; one of the same client and type that waits is answered now."""
        if not _is_handy(message.content):
            self._answer(message, sink, static_answer(message, ()))
            return
        place = (sink, message.msg_type)
        older = self._waiting.pop(place, None)
        if older is not None:
            self._answer(older, sink, static_answer(older, ()))
        self._waiting[place] = message
        if self._task is None:
            self._task = self._services.start(self._serve())

    def forget(self, sink: Sink) -> None:
        """Drop what a client that is gone still waits for."""
        self._waiting = {p: message for p, message in self._waiting.items() if p[0] != sink}

    async def give_way(self) -> None:
        """Return when a cell need not wait for the container of a question, or very soon."""
        gate = self._services.dispatcher.gate(self._function_name)
        if self._flight is not None and not gate.has_spare:
            await asyncio.wait({self._flight}, timeout=GIVE_WAY_S)

    @property
    def _function_name(self) -> str:
        return self._services.stack.function_name(self._environment.id)

    async def _serve(self) -> None:
        try:
            while self._waiting:
                sink, _ = place = next(iter(self._waiting))
                message = self._waiting[place]
                content = await self._content(place, message)
                if self._waiting.get(place) is message:
                    del self._waiting[place]
                    self._answer(message, sink, content)
        finally:
            self._task = None

    async def _content(self, place: tuple[Sink, str], message: InMessage) -> dict[str, Any]:
        loop = asyncio.get_running_loop()
        waited_s = time.monotonic() - message.received_s
        deadline_s = loop.time() + self._services.settings.question_wait_s - waited_s
        content = None
        try:
            async with asyncio.timeout_at(deadline_s):
                if self._flight is not None:
                    await asyncio.wait({self._flight})
                if self._waiting.get(place) is message:
                    content = await self._asked(message)
        except (TimeoutError, GatewayError) as problem:
            logger.info("a question gets a static answer", extra={"reason": repr(problem)})
        return static_answer(message, await self._names()) if content is None else content

    async def _asked(self, message: InMessage) -> dict[str, Any] | None:
        """Return what a container answers, None where none can be had."""
        # A cell's container is given back just after its reply, which clients may ask after.
        async with asyncio.timeout(SPARE_SHARE * self._services.settings.question_wait_s):
            await self._services.dispatcher.gate(self._function_name).spare()
        position = await self._lineage.look()
        facts = self._lineage.facts(position, position.execution_count, self._environment)
        invocation = plan_query(
            KINDS[message.msg_type],
            message.content,
            facts,
            request_id=uuid.uuid4().hex,
            nonce=uuid.uuid4().hex,
        )
        flight = Flight(invocation=invocation, may_wait=False)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._flight = self._services.start(self._fly(flight, reply))
        try:
            return _ok_content(await reply)
        except asyncio.CancelledError:
            # Nobody waits for it any more: its container is wanted back.
            self._services.start(self._end(flight))
            raise

    async def _fly(self, flight: Flight, reply: asyncio.Future[Any]) -> None:
        services = self._services
        try:
            events = services.dispatcher.run_cell(flight, self._function_name)
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, Frame) and _is_reply(event) and not reply.done():
                        # What follows is the container's own business: it cleans up.
                        reply.set_result(event.data)
        except GatewayError:
            logger.warning("a question could not be asked", exc_info=True)
        finally:
            self._flight = None
            if not reply.done():
                reply.set_result(None)
            await services.dispatcher.clean_up(flight)

    async def _end(self, flight: Flight) -> None:
        try:
            await self._services.dispatcher.interrupt(flight, kill=True)
        except GatewayError:
            logger.warning("a container could not be told to end a question", exc_info=True)

    async def _names(self) -> list[str]:
        try:
            async with asyncio.timeout(STATIC_NAMES_S):
                found = await query.variables(self._lineage, self._services)
        except (TimeoutError, GatewayError):
            return []
        return [each.name for each in found if each.carried and each.name.isidentifier()]


def _is_handy(content: Mapping[str, Any]) -> bool:
    code, cursor = content["code"], content["cursor_pos"]
    begin, end = code.rfind("\n", 0, cursor) + 1, code.find("\n", cursor)
    line_length = (len(code) if end < 0 else end) - begin
    return len(code) <= MAX_ASKED_CHARACTERS and line_length <= MAX_LINE_CHARACTERS


def _is_reply(event: Frame) -> bool:
    return event.kind is FrameKind.REPLY


def _ok_content(body: Any) -> dict[str, Any] | None:
    content = body.get("content") if isinstance(body, dict) else None
    return content if isinstance(content, dict) and content.get("status") == "ok" else None
