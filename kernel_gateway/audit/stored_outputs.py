"""The object that holds what a cell has said, where that stands beside its signed entry."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any

from kernel_gateway.audit.answers import Answer
from kernel_gateway.audit.chain import (
    CellFinished,
    RecordedMessage,
    digest_of,
    messages_from_bytes,
    messages_to_bytes,
)
from kernel_gateway.audit.view import output_digest, shown_outputs
from kernel_gateway.messaging.message import new_header
from lambda_kernel.contract.schema import InvalidField, decode, encode

INLINE_BYTES = 256 * 1024
"""Messages of a cell that take more are an object of their own."""

REMOVED = "[gateway] what this cell said was removed from the journal\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a cell has said.

    Attributes:
        messages: on iopub, in order.
        reply: its execute_reply, where that stands here and not in the entry.
        salt: of the digests of its outputs; "" where these have none.
        answers: that it was given, where they stand here and not in the entry.
    """

    messages: tuple[RecordedMessage, ...] = ()
    reply: RecordedMessage | None = None
    salt: str = ""
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    messages: tuple[RecordedMessage, ...]
    reply: RecordedMessage | None
    answers: tuple[Answer, ...] = ()


def prepared(event: CellFinished, *, is_removable: bool) -> tuple[CellFinished, bytes]:
    """Return the end of a cell as its entry has it, and the bytes of its object, b"" for none.

    Args:
        event: with all that the cell has said.
        is_removable: nothing of that stands in the entry, nor can it be guessed from digests
            there once the object is deleted: the object holds random ids, and the salt.
    """
    outputs, reply = event.outputs, event.reply
    is_apart = is_removable and bool(outputs.messages or reply or event.answers)
    if is_apart:
        held = _Stored(messages=outputs.messages, reply=reply, answers=event.answers)
        stored = json.dumps(encode(held), separators=(",", ":"), ensure_ascii=True).encode("ascii")
    else:
        stored = messages_to_bytes(outputs.messages)
        is_apart = len(stored) > INLINE_BYTES
    blob = digest_of(stored) if is_apart else None
    is_salted = is_apart and is_removable
    salt = _salt(stored) if is_salted else ""
    view = tuple(output_digest(each, salt) for each in shown_outputs(outputs.messages, blob))
    outputs = replace(
        outputs,
        messages=() if is_apart else outputs.messages,
        blob=blob,
        view=view,
        is_salted=is_salted,
    )
    kept = replace(event, outputs=outputs)
    if is_salted:
        kept = replace(kept, reply=None, answers=())
    return kept, stored if is_apart else b""


def said_in(stored: bytes) -> Said:
    """Return what an object holds (raises InvalidField)."""
    if not stored.startswith(b"{"):
        return Said(messages=messages_from_bytes(stored))
    try:
        data: Any = json.loads(stored)
    except (ValueError, RecursionError):
        raise InvalidField("stored", "is not JSON") from None
    found = decode(_Stored, data, "stored")
    return Said(
        messages=found.messages, reply=found.reply, salt=_salt(stored), answers=found.answers
    )


def in_place_of_removed() -> tuple[RecordedMessage, ...]:
    """Return what a client is shown of a cell whose messages are not there any more."""
    said: tuple[tuple[str, dict[str, Any]], ...] = (
        ("stream", {"name": "stderr", "text": REMOVED}),
        ("status", {"execution_state": "idle"}),
    )
    return tuple(
        RecordedMessage(header=new_header(kind, session=""), content=content)
        for kind, content in said
    )


def _salt(stored: bytes) -> str:
    # The same however often an entry is tried to be written, and known to nobody without it.
    return hashlib.sha256(b"salt\n" + stored).hexdigest()
