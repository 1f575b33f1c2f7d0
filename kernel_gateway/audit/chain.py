"""Entries of a kernel's journal: each holds the digest of the one before it. Pure values."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from kernel_gateway.audit.answers import Answer
from kernel_gateway.audit.envelopes import Envelope, payload_of
from kernel_gateway.audit.events import (
    ConnectorsGranted,
    PolicyChanged,
    SessionForked,
    SessionOpened,
)
from kernel_gateway.audit.facts import EndFacts, HandlerFacts, StartFacts
from kernel_gateway.audit.later_events import CellsUnrecorded, ContentRemoved
from kernel_gateway.function_code import FunctionCode
from kernel_gateway.messaging.caller import Actor
from lambda_kernel.contract import names
from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.schema import InvalidField, decode, encode

SCHEMA = 2
ACCEPTED_SCHEMAS = (1, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedMessage:
    """A message as it went to clients; its parent is the cell's request.

    Attributes:
        header, metadata, content: as they were sent.
        buffers: binary parts, base64.
    """

    header: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    content: dict[str, Any] = field(default_factory=dict)
    buffers: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in ("msg_id", "msg_type", "session"):
            if not isinstance(self.header.get(name), str):
                raise InvalidField(f"message.header.{name}", "must be text")
        try:
            for part in self.buffers:
                base64.b64decode(part, validate=True)
        except ValueError:
            raise InvalidField("message.buffers", "must be base64") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What a cell published on iopub, in order.

    Attributes:
        count: how many messages are kept.
        dropped_count: how many came after the limit of what is kept.
        is_complete: False where a gateway ended before it had stored them.
        messages: they themselves; empty where they are in ``blob``.
        blob: SHA-256 (hex) of the object that holds them, see `messages_to_bytes`; None = inline.
        view: digests of the outputs that a notebook shows of them, see `audit.view`; None in what
            an earlier version wrote.
        is_salted: these digests cannot be guessed from without the salt, which is in ``blob``; so
            is the reply.
    """

    count: int = 0
    dropped_count: int = 0
    is_complete: bool = True
    messages: tuple[RecordedMessage, ...] = ()
    blob: str | None = None
    view: tuple[str, ...] | None = None
    is_salted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CellStarted:
    """A cell or comm message is about to be sent; incomplete without a later CellFinished.

    Attributes:
        request_id: of its invocation.
        seq, parent, parent_kernel_id: where it commits; see Commit.
        execution_count: the number that it shows.
        timeout_s: how long it may run.
        header, metadata, content: the request, as the client sent it.
        gateway: who asked, and what the cell runs in; None in what an earlier version wrote.
    """

    request_id: str
    seq: int
    parent: Head | None
    parent_kernel_id: str | None = None
    execution_count: int
    timeout_s: float
    header: dict[str, Any]
    metadata: dict[str, Any] = field(default_factory=dict)
    content: dict[str, Any]
    gateway: StartFacts | None = None

    @property
    def is_cell(self) -> bool:
        """Whether it is an execute_request."""
        return self.header.get("msg_type") == "execute_request"

    @property
    def source(self) -> str:
        """The code of a cell, "" of a comm message."""
        found = self.content.get("code")
        return found if isinstance(found, str) else ""

    @property
    def msg_id(self) -> str:
        """The client's id of the request."""
        return str(self.header.get("msg_id", ""))

    @property
    def session(self) -> str:
        """The client's session."""
        return str(self.header.get("session", ""))

    @property
    def cell_id(self) -> str | None:
        """The front end's id of the cell, None where it gave none."""
        found = self.metadata.get("cellId")
        return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFinished:
    """How a cell ended.

    Attributes:
        request_id: that of its CellStarted.
        status: ``lost`` where a gateway ended while it was in flight, and it had not committed.
        failure: name of the error that is not the user's own exception, None where there is none.
        head: its commit, None where it did not commit.
        adopted: the outcome comes from the commit, not from the response.
        reply: its execute_reply; None for a comm message, which has none.
        outputs: what it published; as the child says.
        gateway, handler: what these two say of the cell, None where they say nothing.
        answers: what its user answered it, in order.
        platform: which code ran it, as Lambda says.
    """

    request_id: str
    status: Literal["ok", "error", "lost"]
    failure: str | None = None
    head: Head | None = None
    adopted: bool = False
    reply: RecordedMessage | None = None
    outputs: Outputs = field(default_factory=Outputs)
    gateway: EndFacts | None = None
    handler: HandlerFacts | None = None
    answers: tuple[Answer, ...] = ()
    platform: FunctionCode | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CellInterrupted:
    """Somebody asked to interrupt the cell that runs."""

    request_id: str
    actor: Actor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRestarted:
    """The namespace was emptied, by ``actor``; the entry's epoch is the new one."""

    actor: Actor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClosed:
    """The kernel was shut down.

    Attributes:
        reason: for people.
        actor: who did it; None in what an earlier version wrote.
    """

    reason: str
    actor: Actor | None = None


Event = (
    CellStarted
    | CellFinished
    | CellInterrupted
    | KernelRestarted
    | PolicyChanged
    | ConnectorsGranted
    | SessionOpened
    | SessionForked
    | SessionClosed
    | ContentRemoved
    | CellsUnrecorded
)

_EVENTS: dict[str, type[Event]] = {
    "cell_started": CellStarted,
    "cell_finished": CellFinished,
    "interrupted": CellInterrupted,
    "restarted": KernelRestarted,
    "policy_changed": PolicyChanged,
    "connectors_granted": ConnectorsGranted,
    "session_opened": SessionOpened,
    "session_forked": SessionForked,
    "session_closed": SessionClosed,
    "content_removed": ContentRemoved,
    "cells_unrecorded": CellsUnrecorded,
}
_NAMES = {cls: name for name, cls in _EVENTS.items()}


class BrokenChain(ValueError):
    """Entries do not follow each other; the text names the first that does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One object of a journal.

    Attributes:
        kernel_id: whose journal it is.
        number: its place, from 1.
        previous: SHA-256 (hex) of the bytes of the entry before it, "" for the first: of what is
            signed, not of its envelope, so that an entry which is signed again keeps its place.
        epoch: of the kernel's record when it was written.
        time: when, by the gateway's clock; ISO 8601, UTC.
        event: what happened.
    """

    kernel_id: str
    number: int
    previous: str
    epoch: int
    time: str
    event: Event

    def to_bytes(self) -> bytes:
        """Return what is signed and stored, JSON in ASCII."""
        data = {
            "schema": SCHEMA,
            "kernel_id": self.kernel_id,
            "number": self.number,
            "previous": self.previous,
            "epoch": self.epoch,
            "time": self.time,
            "type": _NAMES[type(self.event)],
            "event": encode(self.event),
        }
        return json.dumps(data, separators=(",", ":"), ensure_ascii=True).encode("ascii")

    @classmethod
    def from_bytes(cls, stored: bytes) -> Entry:
        """Return the entry in ``stored``.

        Raises:
            InvalidField: it is not one, or not of a schema that this version reads.
        """
        try:
            data = json.loads(stored)
        except (ValueError, RecursionError):
            raise InvalidField("entry", "is not JSON") from None
        if isinstance(data, dict) and data.get("schema") not in ACCEPTED_SCHEMAS:
            raise InvalidField("entry.schema", f"must be one of {ACCEPTED_SCHEMAS}")
        stated = decode(_Envelope, data, "entry")
        kind = _EVENTS.get(stated.type)
        if kind is None:
            raise InvalidField("entry.type", f"must be one of {', '.join(_EVENTS)}")
        names.check_kernel_id(stated.kernel_id, "entry.kernel_id")
        if stated.number < 1 or (stated.number == 1) != (stated.previous == ""):
            raise InvalidField("entry.number", "does not fit to entry.previous")
        return cls(
            kernel_id=stated.kernel_id,
            number=stated.number,
            previous=stated.previous,
            epoch=stated.epoch,
            time=stated.time,
            event=decode(kind, stated.event, "entry.event"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedEntry:
    """An entry, the SHA-256 (hex) of its bytes, and the envelope that holds these."""

    entry: Entry
    digest: str
    envelope: Envelope


@dataclass(frozen=True, slots=True, kw_only=True)
class _Envelope:
    schema: int
    kernel_id: str
    number: int
    previous: str
    epoch: int
    time: str
    type: str
    event: dict[str, Any]


def digest_of(stored: bytes) -> str:
    """Return the SHA-256 of ``stored`` in hex."""
    return hashlib.sha256(stored).hexdigest()


def epoch_after(entry: Entry) -> int:
    """Return the lowest epoch of the next entry: a kernel of the same id may begin anew."""
    return 0 if isinstance(entry.event, SessionClosed) else entry.epoch


def verified(kernel_id: str, stored: Iterable[bytes]) -> list[Entry]:
    """Return the entries of a whole journal.

    Args:
        kernel_id: whose it must be.
        stored: the bytes of its objects, from number 1 on; signatures are not looked at.

    Raises:
        BrokenChain: one is not an entry of this kernel, or does not follow the one before it.
    """
    entries: list[Entry] = []
    previous, epoch = "", 0
    for number, each in enumerate(stored, 1):
        try:
            payload = payload_of(each)
            entry = Entry.from_bytes(payload)
        except InvalidField as problem:
            raise BrokenChain(f"entry {number} cannot be read: {problem}") from problem
        if entry.kernel_id != kernel_id:
            raise BrokenChain(f"entry {number} is that of another kernel")
        if entry.number != number:
            raise BrokenChain(f"entry {number} says that it is number {entry.number}")
        if entry.previous != previous:
            raise BrokenChain(f"entry {number} does not follow entry {number - 1}")
        if entry.epoch < epoch:
            raise BrokenChain(f"entry {number} has an older epoch than entry {number - 1}")
        previous, epoch = digest_of(payload), epoch_after(entry)
        entries.append(entry)
    return entries


def messages_to_bytes(messages: Iterable[RecordedMessage]) -> bytes:
    """Return the stored form of messages, JSON in ASCII."""
    data = [encode(message) for message in messages]
    return json.dumps(data, separators=(",", ":"), ensure_ascii=True).encode("ascii")


def messages_from_bytes(stored: bytes) -> tuple[RecordedMessage, ...]:
    """Return the messages in ``stored`` (raises InvalidField)."""
    try:
        data = json.loads(stored)
    except (ValueError, RecursionError):
        raise InvalidField("messages", "is not JSON") from None
    return decode(_Messages, {"messages": data}, "stored").messages


@dataclass(frozen=True, slots=True)
class _Messages:
    messages: tuple[RecordedMessage, ...]
