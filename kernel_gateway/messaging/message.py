"""Jupyter messages as values: tolerant to read, complete when sent."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from kernel_gateway.errors import BadRequest
from kernel_gateway.messaging.caller import Caller
from kernel_gateway.messaging.idempotency import Idempotency

PROTOCOL_VERSION = "5.4"
CHANNELS = ("shell", "control", "stdin")
"""The channels a client may send on; a message without one is for the shell channel."""

REQUIRED_HEADER_FIELDS = ("msg_id", "msg_type")
MAX_HEADER_CHARACTERS = 16 * 1024
"""As JSON. A client's header goes out again with every message that it causes, to every client."""


class BadMessage(BadRequest):
    """What a client sent is not a Jupyter message; the text names the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InMessage:
    """A message from a client.

    Attributes:
        channel: ``shell``, ``control`` or ``stdin``.
        header: as received; ``msg_id`` and ``msg_type`` are there and are text.
        parent_header: as received, empty where the client sent none.
        metadata: likewise.
        content: likewise.
        buffers: binary parts.
        caller: who sent it, None where no client did.
        idempotency: by what it is known when it is sent again; only by REST.
        received_s: ``time.monotonic()`` when it was read, for the ``receive`` timing.
    """

    channel: str = "shell"
    header: dict[str, Any]
    parent_header: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    content: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()
    caller: Caller | None = None
    idempotency: Idempotency | None = None
    received_s: float = field(default_factory=time.monotonic, compare=False)

    @property
    def msg_id(self) -> str:
        """The client's id of this message."""
        result: str = self.header["msg_id"]
        return result

    @property
    def msg_type(self) -> str:
        """Such as ``execute_request``."""
        result: str = self.header["msg_type"]
        return result

    @classmethod
    def read(
        cls,
        data: object,
        *,
        buffers: Sequence[bytes | memoryview] = (),
        channel: str | None = None,
        caller: Caller | None = None,
    ) -> InMessage:
        """Return the message that ``data`` (decoded JSON) describes.

        A missing channel means shell; date, session, username, version, parent_header, metadata
        and content may be missing. Some clients put ``msg_id`` and ``msg_type`` beside the header
        instead of into it (as the spec's top level allows); they are taken from there.

        Args:
            data: an object with at least ``header``.
            buffers: binary parts.
            channel: where the codec knows it; else ``data["channel"]``, else shell.
            caller: who sent it.

        Raises:
            BadMessage: naming the field and what is wrong with it.
        """
        if not isinstance(data, Mapping):
            raise BadMessage(f"a message must be an object, not {type(data).__name__}")
        header = _part(data, "header")
        for name in REQUIRED_HEADER_FIELDS:
            value = header.get(name, data.get(name))
            if not isinstance(value, str) or not value:
                raise BadMessage(f"header.{name} is missing or is not text")
            header[name] = value
        if len(json.dumps(header)) > MAX_HEADER_CHARACTERS:
            raise BadMessage(f"header is longer than {MAX_HEADER_CHARACTERS:,} characters")
        where = channel if channel is not None else data.get("channel") or "shell"
        if where not in CHANNELS:
            raise BadMessage(f"channel must be one of {', '.join(CHANNELS)}")
        return cls(
            channel=where,
            header=header,
            parent_header=_part(data, "parent_header"),
            metadata=_part(data, "metadata"),
            content=_part(data, "content"),
            buffers=tuple(bytes(part) for part in buffers),
            caller=caller,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OutMessage:
    """A message to clients.

    Attributes:
        channel: ``iopub`` (for every attached client), else the channel of the request.
        header: complete: msg_id, msg_type, session, username, date, version.
        parent_header: the header of the request that caused it, as received; or empty.
        metadata: e.g. ``lambda_kernel`` of an execute_reply.
        content: as the messaging spec says for this msg_type.
        buffers: binary parts.
    """

    channel: str
    header: dict[str, Any]
    parent_header: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    content: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[bytes, ...] = ()

    @property
    def msg_type(self) -> str:
        """Such as ``execute_reply``."""
        result: str = self.header["msg_type"]
        return result

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form without buffers, as the legacy websocket protocol sends it."""
        return {
            "channel": self.channel,
            "header": self.header,
            "msg_id": self.header["msg_id"],
            "msg_type": self.header["msg_type"],
            "parent_header": self.parent_header,
            "metadata": self.metadata,
            "content": self.content,
        }


def new_header(
    msg_type: str, *, session: str, username: str = "kernel", now: datetime | None = None
) -> dict[str, Any]:
    """Return a complete message header with an id of its own.

    Args:
        msg_type: such as ``status``.
        session: of the sender: a kernel's changes when it restarts.
        username: of the sender.
        now: an aware time; the current one where None.
    """
    return {
        "msg_id": uuid.uuid4().hex,
        "msg_type": msg_type,
        "session": session,
        "username": username,
        "date": utc_text(now or datetime.now(UTC)),
        "version": PROTOCOL_VERSION,
    }


def utc_text(moment: datetime) -> str:
    """Return an aware time as ISO 8601 with fractional seconds and ``Z``.

    Source: gateway.md, pitfall 6.
    """
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _part(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    value = data.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BadMessage(f"{name} must be an object, not {type(value).__name__}")
    return dict(value)
