"""Messages from ZMQ to the gateway and back: every request's reply goes to who asked."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kernel_gateway.client.endpoint import ApiError
from kernel_gateway.kernel_process.link import GatewayLink
from kernel_gateway.kernel_process.sockets import ASKED_ON, KernelSockets, Request
from kernel_gateway.messaging.message import new_header
from kernel_gateway.messaging.replies import error_content, reply_type

logger = logging.getLogger(__name__)

MAX_ASKED = 10_000
"""Requests without a reply that are remembered; a kernel lets 1,000 cells wait."""

SHUTDOWN = "shutdown_request"
LOST = "GatewayLost"
LOST_TEXT = (
    "the gateway was lost before it answered: whether the cell ran is not known. The session goes "
    "on with what the last cell that was committed left"
)


@dataclass(slots=True)
class Asked:
    """A request that waits for its reply.

    Attributes:
        channel: where it came and the reply goes.
        request: itself.
        is_sent: whether the gateway may have it.
    """

    channel: str
    request: Request
    is_sent: bool = False


class Relay:
    """Carries messages until the kernel ends."""

    def __init__(self, sockets: KernelSockets, link: GatewayLink) -> None:
        self._sockets = sockets
        self._link = link
        self._asked: OrderedDict[str, Asked] = OrderedDict()
        self._settling: dict[str, list[str]] = {}

    async def run(self) -> None:
        """Return when the kernel was shut down, or is gone."""
        tasks = [asyncio.create_task(self._carry_out(channel)) for channel in ASKED_ON]
        tasks.append(asyncio.create_task(self._carry_back()))
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry_out(self, channel: str) -> None:
        while True:
            request = await self._sockets.receive(channel)
            asked = Asked(channel, request)
            if request.header["msg_type"].endswith("_request"):
                self._asked[request.header["msg_id"]] = asked
                while len(self._asked) > MAX_ASKED:
                    self._asked.popitem(last=False)
            await self._link.send(channel, request.parts)
            asked.is_sent = True

    async def _carry_back(self) -> None:
        while True:
            message = await self._link.receive()
            if message is None:
                if not await self._link.open_again():
                    return
                await self._begin_to_settle()
                continue
            channel, parts = message
            header = json.loads(parts[0])
            if channel == "iopub":
                await self._publish(header["msg_type"], parts)
                self._link.is_dead = self._link.is_dead or _says_dead(header, parts)
                if self._link.is_dead and not self._is_shutting_down:
                    return
            elif await self._reply(channel, header, parts):
                return

    @property
    def _is_shutting_down(self) -> bool:
        return any(a.request.header["msg_type"] == SHUTDOWN for a in self._asked.values())

    async def _publish(self, msg_type: str, parts: Sequence[bytes]) -> None:
        topic = f"kernel.{self._link.kernel_id}.{msg_type}".encode()
        await self._sockets.send("iopub", [topic], parts)

    async def _reply(self, channel: str, header: dict[str, Any], parts: Sequence[bytes]) -> bool:
        """Send to who asked, and return whether the kernel is shut down with that."""
        parent_id = json.loads(parts[1]).get("msg_id")
        if parent_id in self._settling:
            await self._settle(self._settling.pop(parent_id))
            return False
        asked = self._asked.get(parent_id)
        if asked is None:
            logger.warning("nobody waits for a reply", extra={"msg_type": header["msg_type"]})
            return False
        await self._sockets.send(channel, asked.request.client, parts)
        msg_type = asked.request.header["msg_type"]
        if header["msg_type"] != reply_type(msg_type):
            # A question of the cell's on stdin: the reply is yet to come.
            return False
        del self._asked[parent_id]
        return bool(msg_type == SHUTDOWN)

    async def _begin_to_settle(self) -> None:
        """Ask what comes after all that the gateway has kept for us."""
        header = new_header("kernel_info_request", session=self._link.kernel_id)
        self._settling = {header["msg_id"]: [m for m, a in self._asked.items() if a.is_sent]}
        await self._link.send("shell", _parts(header, {}, {}))

    async def _settle(self, msg_ids: list[str]) -> None:
        """Answer what the gateway will not answer any more: it knows of no running cell."""
        try:
            if await self._link.is_busy():
                return
        except ApiError:
            # Lost once more; the next connection settles it.
            return
        for msg_id in msg_ids:
            asked = self._asked.pop(msg_id, None)
            if asked is not None:
                await self._fail(asked)

    async def _fail(self, asked: Asked) -> None:
        parent = asked.request.header
        content = error_content(LOST, LOST_TEXT)
        shown = {k: v for k, v in content.items() if k != "status"}
        for msg_type, told in (("error", shown), ("status", {"execution_state": "idle"})):
            await self._publish(msg_type, self._made(msg_type, parent, told))
        name = reply_type(parent["msg_type"])
        reply = self._made(name, parent, content)
        await self._sockets.send(asked.channel, asked.request.client, reply)

    def _made(self, msg_type: str, parent: dict[str, Any], content: dict[str, Any]) -> list[bytes]:
        return _parts(new_header(msg_type, session=self._link.kernel_id), parent, content)


def _says_dead(header: dict[str, Any], parts: Sequence[bytes]) -> bool:
    if header["msg_type"] != "status":
        return False
    return bool(json.loads(parts[3]).get("execution_state") == "dead")


def _parts(header: dict[str, Any], parent: dict[str, Any], content: dict[str, Any]) -> list[bytes]:
    return [json.dumps(part, default=str).encode() for part in (header, parent, {}, content)]
