"""Comm messages of front ends (widgets): calls against the snapshot that holds the comm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any
from urllib.parse import unquote

from kernel_gateway.dispatch.plan import CellFacts, plan_comm
from kernel_gateway.dispatch.settle import Settled
from kernel_gateway.errors import GatewayError
from kernel_gateway.kernels.cell import Call, error_message
from kernel_gateway.kernels.lineage import Lineage
from kernel_gateway.kernels.outlet import Outlet, Sink
from kernel_gateway.kernels.position import Position
from kernel_gateway.kernels.services import KernelServices
from kernel_gateway.kernels.variables import description_of, read_index, side_names
from kernel_gateway.messaging.message import InMessage
from kernel_gateway.messaging.replies import error_content
from kernel_gateway.messaging.requests import COMM_MESSAGES
from lambda_kernel.contract.invocation import Invocation

__all__ = ["COMM_MESSAGES", "CommCall", "comm_info", "notice"]

COMM_NAME, TARGET_NAME = "(comms:comm:", "(comms:target:"
MAX_OLDER = 1000
"""Updates that one newer stands for; each of them is answered with an idle."""
LARGE_BYTES = 256 * 1024
"""A longer description is read beside the event loop."""
LOST_NAME = "widget "
CLOSED = "its comm was closed, or the kernel was restarted since it was made"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenComms:
    """The comms that a session has.

    Attributes:
        comms: target names by comm id.
        targets: names of the targets that front ends can open.
        lost: why the session has a comm no more, by comm id.
    """

    comms: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    targets: frozenset[str] = frozenset()
    lost: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def info(self, content: Mapping[str, Any], since: Mapping[str, str | None]) -> dict[str, Any]:
        """Return the content of a comm_info_reply; see `comm_info`."""
        wanted = content.get("target_name")
        found = {**self.comms, **since}
        return {
            "status": "ok",
            "comms": {
                comm_id: {"target_name": target}
                for comm_id, target in found.items()
                if target is not None and (not wanted or target == wanted)
            },
        }


async def comm_info(
    content: Mapping[str, Any],
    since: Mapping[str, str | None],
    lineage: Lineage,
    services: KernelServices,
) -> dict[str, Any]:
    """Return the content of the comm_info_reply.

    Args:
        content: of the request.
        since: what the running cell has opened, and closed (None).
        lineage: of the kernel.
        services: likewise.
    """
    try:
        found = await open_comms(lineage, await lineage.look(), services)
    except GatewayError as problem:
        return error_content(type(problem).__name__, str(problem))
    return found.info(content, since)


async def open_comms(lineage: Lineage, position: Position, services: KernelServices) -> OpenComms:
    """Return the comms that the commit at ``position`` holds (raises StorageError)."""
    commit = await lineage.commit_at(position)
    if commit is None:
        return OpenComms()
    bucket, scope = services.stack.state, lineage.scope
    described = await description_of(commit, services.store, bucket, scope)
    if described is None:
        return OpenComms()
    if len(described[0]) < LARGE_BYTES:
        return _read(*described)
    return await asyncio.to_thread(_read, *described)


def _read(stored: bytes, parts: Mapping[int, bytes]) -> OpenComms:
    names = side_names(stored, parts)
    comms = [n[len(COMM_NAME) : -1].split(":") for n in names if n.startswith(COMM_NAME)]
    return OpenComms(
        comms={unquote(found[1]): unquote(found[0]) for found in comms if len(found) == 2},
        targets=frozenset(
            unquote(n[len(TARGET_NAME) : -1]) for n in names if n.startswith(TARGET_NAME)
        ),
        lost={
            each.name.removeprefix(LOST_NAME): (
                f"it could not be stored after In[{each.cell}]: {each.why}"
            )
            for each in read_index(stored, parts)
            if not each.carried and each.name.startswith(LOST_NAME)
        },
    )


class CommCall(Call):
    """A comm_open, comm_msg or comm_close of a front end.

    Attributes:
        older: updates of the same comm that this one, newer, stands for.
    """

    __slots__ = ("older",)

    def __init__(
        self, message: InMessage, sink: Sink | None, *, request_id: str | None = None
    ) -> None:
        super().__init__(message, sink, request_id=request_id)
        self.older: list[InMessage] = []

    def takes_over(self, other: Call) -> bool:
        """Become ``other`` where that sets all that this one would have set.

        A slider that is dragged sends an update for every pixel; most front ends send one at a
        time, but not all.
        """
        if not isinstance(other, CommCall) or len(self.older) >= MAX_OLDER:
            return False
        old, new = _update_of(self.message), _update_of(other.message)
        same = self.message.content.get("comm_id") == other.message.content.get("comm_id")
        # A front end that is told of another's change would take it for the echo of its own.
        same = same and self.message.header.get("session") == other.message.header.get("session")
        if old is None or new is None or not same or not old.keys() <= new.keys():
            return False
        self.older.append(replace(self.message, content={}))
        self.message, self.sink = other.message, other.sink
        return True

    def admit(self, last_count: int, say: Callable[..., None], services: KernelServices) -> None:
        """Take the number of the last cell: it is none itself."""
        self.count = last_count
        self._lap("admit")

    async def foregone(
        self, lineage: Lineage, say: Callable[..., None], services: KernelServices
    ) -> Settled | None:
        """Say that the session has no such comm or target, where that is so."""
        found = await open_comms(lineage, await lineage.locate(), services)
        content, msg_type = self.message.content, self.message.msg_type
        comm_id: str = content["comm_id"]
        if msg_type == "comm_open":
            if content["target_name"] in found.targets:
                return None
        elif comm_id in found.comms:
            return None
        if msg_type == "comm_msg":
            why = found.lost.get(comm_id, CLOSED)
            say("stream", notice(f"this widget is inert: {why}. Run its cell again."))
        if msg_type != "comm_close":
            say("comm_close", {"comm_id": comm_id, "data": {}})
        return Settled()

    def plan(self, facts: CellFacts, nonce: str) -> Invocation:
        """Return its invocation."""
        message = self.message
        return plan_comm(
            message.header,
            message.content,
            message.metadata,
            message.buffers,
            facts,
            request_id=self._request_id,
            nonce=nonce,
        )

    def answer(self, settled: Settled, last_count: int | None, outlet: Outlet) -> bool:
        """Tell what went wrong; there is no reply, clients wait for the idle of each message."""
        trouble = settled.trouble
        if trouble is not None:
            text = trouble.text(last_count, position_known=settled.position_known)
            content = error_content(trouble.failure.ename, text)
            outlet.publish("error", error_message(content), self.message)
        for message in self.older:
            outlet.status("busy", message)
            outlet.status("idle", message)
        self.published()
        return trouble is None


def notice(text: str) -> dict[str, Any]:
    """Return the content of a ``stream`` message about a widget."""
    return {"name": "stderr", "text": f"[widgets] {text}\n"}


def _update_of(message: InMessage) -> dict[str, Any] | None:
    """Return the plain state that an update sets; None for any other message."""
    data = message.content.get("data", {})
    state = data.get("state")
    plain = message.msg_type == "comm_msg" and data.get("method") == "update"
    if not plain or message.buffers or data.get("buffer_paths") or not isinstance(state, dict):
        return None
    return state
