"""What a search knows of a journal's entries: one small row each. Pure values.

A row is made of nothing but its entry, so an index can be made anew at any time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kernel_gateway.audit.chain import CellFinished, CellStarted, Entry
from kernel_gateway.audit.events import SessionOpened
from kernel_gateway.audit.facts import HandlerFacts, StartFacts
from lambda_kernel.contract.schema import InvalidField, encode

SCHEMA = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRow:
    """Of the entry about a cell's start.

    Attributes:
        number, time: of the entry.
        request_id: joins it with its end.
        execution_count, is_cell, source_digest: see CellStarted; False = a comm message.
        user, agent: whose the kernel is; None where an earlier version did not say so.
        caller_user, caller_agent: who asked, None where that is not known.
        workspace, environment: of the kernel.
        connectors: ids that were asked for; none = all of the secret.
        connector_secret: the one secret that the cell could read, None for none.
    """

    number: int
    time: str
    request_id: str
    execution_count: int
    is_cell: bool
    source_digest: str | None = None
    user: str | None = None
    agent: str | None = None
    caller_user: str | None = None
    caller_agent: str | None = None
    workspace: str | None = None
    environment: str | None = None
    connectors: tuple[str, ...] = ()
    connector_secret: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRow:
    """A file that a cell changed; see FileChange."""

    path: str
    change: str
    digest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndRow:
    """Of the entry about a cell's end.

    Attributes:
        number, time: of the entry.
        request_id: joins it with its start.
        status, failure: see CellFinished.
        commit: digest of its commit, None where it has none.
        outputs: digests of what it published: of each output shown, and of the stored messages.
        got_connectors: ids of those whose values it could read; None where nobody said so.
        files: what it changed.
    """

    number: int
    time: str
    request_id: str
    status: str
    failure: str | None = None
    commit: str | None = None
    outputs: tuple[str, ...] = ()
    got_connectors: tuple[str, ...] | None = None
    files: tuple[FileRow, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """What is indexed of some successive entries of one journal.

    Attributes:
        last: number of the newest entry that was looked at.
        starts, ends: rows; not every entry has one.
        unreadable: numbers of entries that are missing, or are none.
        opened: user and agent of each session that was opened.
    """

    schema: int = SCHEMA
    last: int
    starts: tuple[StartRow, ...] = ()
    ends: tuple[EndRow, ...] = ()
    unreadable: tuple[int, ...] = ()
    opened: tuple[tuple[str, str | None], ...] = ()

    def to_bytes(self) -> bytes:
        """Return the stored form: a SHA-256, and JSON without what is a default."""
        text = json.dumps(_slim(encode(self)), separators=(",", ":"), ensure_ascii=True)
        body = text.encode("ascii")
        return _digest(body) + b"\n" + body

    @classmethod
    def from_bytes(cls, stored: bytes) -> Segment:
        """Return the segment in ``stored``.

        Its digest says that it is what was written, so that not every field of a thousand rows has
        to be checked for each search.

        Raises:
            InvalidField: it is damaged, or of another schema.
        """
        digest, _, body = stored.partition(b"\n")
        if digest != _digest(body):
            raise InvalidField("index", "is not what was written")
        try:
            data = json.loads(body)
            if data.pop("schema") != SCHEMA:
                raise InvalidField("index.schema", f"must be {SCHEMA}")
            return cls(
                last=data["last"],
                starts=tuple(StartRow(**_tuples(row)) for row in data.get("starts", ())),
                ends=tuple(_end_row(row) for row in data.get("ends", ())),
                unreadable=tuple(data.get("unreadable", ())),
                opened=tuple((user, agent) for user, agent in data.get("opened", ())),
            )
        except (ValueError, TypeError, KeyError, AttributeError) as problem:
            raise InvalidField("index", "is of another version") from problem

    def with_entries(
        self, entries: Iterable[Entry], unreadable: Iterable[int], last: int
    ) -> Segment:
        """Return it with what follows in the journal, up to entry ``last``."""
        starts, ends, opened = list(self.starts), list(self.ends), list(self.opened)
        for entry in entries:
            if isinstance(entry.event, CellStarted):
                starts.append(_start(entry, entry.event))
            elif isinstance(entry.event, CellFinished):
                ends.append(_end(entry, entry.event))
            elif isinstance(entry.event, SessionOpened):
                owner = entry.event.session.owner
                opened.append((owner.user, owner.agent))
        return Segment(
            last=last,
            starts=tuple(starts),
            ends=tuple(ends),
            unreadable=(*self.unreadable, *unreadable),
            opened=tuple(opened),
        )


def _start(entry: Entry, event: CellStarted) -> StartRow:
    row = {
        "number": entry.number,
        "time": entry.time,
        "request_id": event.request_id,
        "execution_count": event.execution_count,
        "is_cell": event.is_cell,
    }
    known = event.gateway
    return StartRow(**row) if known is None else StartRow(**row, **_facts(known))  # type: ignore[arg-type]


def _facts(known: StartFacts) -> dict[str, object]:
    caller = known.caller
    return {
        "source_digest": known.source_digest,
        "user": known.session.owner.user,
        "agent": known.session.owner.agent,
        "caller_user": None if caller is None else caller.user,
        "caller_agent": None if caller is None else caller.agent,
        "workspace": known.session.workspace,
        "environment": known.environment.id,
        "connectors": known.credentials.connectors,
        "connector_secret": known.credentials.connector_secret,
    }


def _end(entry: Entry, event: CellFinished) -> EndRow:
    outputs, handler = event.outputs, event.handler
    witness = None if handler is None else handler.witness
    return EndRow(
        number=entry.number,
        time=entry.time,
        request_id=event.request_id,
        status=event.status,
        failure=event.failure,
        commit=None if event.head is None else event.head.digest,
        outputs=(*(outputs.view or ()), *(() if outputs.blob is None else (outputs.blob,))),
        got_connectors=None if witness is None else witness.connectors,
        files=() if handler is None else _files(handler),
    )


def _files(handler: HandlerFacts) -> tuple[FileRow, ...]:
    return tuple(
        FileRow(path=each.path, change=each.change, digest=each.digest) for each in handler.files
    )


def _slim(data: dict[str, object]) -> dict[str, object]:
    """Return an object without fields that are None, or empty where that says nothing."""
    return {
        name: [_slim(each) if isinstance(each, dict) else each for each in value]
        if isinstance(value, list)
        else value
        for name, value in data.items()
        if value is not None and (value != [] or name == "got_connectors")
    }


def _end_row(row: dict[str, Any]) -> EndRow:
    files = tuple(FileRow(**each) for each in row.pop("files", ()))
    return EndRow(**_tuples(row), files=files)


def _tuples(row: dict[str, Any]) -> dict[str, Any]:
    """Return a row's fields; ids and digests of a row are tuples."""
    for name in ("connectors", "got_connectors", "outputs"):
        if name in row:
            row[name] = tuple(row[name])
    return row


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(body).hexdigest().encode("ascii")
