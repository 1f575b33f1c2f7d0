"""A journal as a notebook: what people read, with the signed entries in it that prove it.

It is a view. What is evidence is the envelopes in ``cell.metadata.lambda_kernel.audit``; source and
outputs can be held against them, Markdown cannot.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Any

from kernel_gateway.audit.chain import (
    CellFinished,
    CellStarted,
    Entry,
    Event,
    SignedEntry,
)
from kernel_gateway.audit.events import SessionOpened
from kernel_gateway.audit.facts import RunsIn, Session
from kernel_gateway.audit.grouping import belongs
from kernel_gateway.audit.journal import ContentMissing, Journal
from kernel_gateway.audit.notebook_reading import MISSING
from kernel_gateway.audit.provenance import Committed, statement
from kernel_gateway.audit.references import lists_of
from kernel_gateway.audit.stored_outputs import Said
from kernel_gateway.audit.telling import told, who_text
from kernel_gateway.audit.view import plain_text, shown_outputs

VIEW_SCHEMA = 1
READ_AHEAD_COUNT = 16
OFF_LOOP_CHARACTERS = 64 * 1024
"""A cell whose entries are larger is written elsewhere, or every other kernel would wait."""

COVER = """\
# What ran in kernel `{kernel_id}`

{facts}

Every code cell holds the signed entries of the kernel's journal about it, in its metadata under
`lambda_kernel.audit`. Only they, and the source and outputs that agree with them, are evidence:
**this text and every other Markdown cell is not.** To check all of it:

    kernel-gateway trail verify THIS_FILE.ipynb --keys KEYS.json

`kernel-gateway keys export`, run by who runs the gateway, prints the keys. That entries were cut
off at the end cannot be seen in a file alone; `--journal` compares it with the journal.
"""


async def trail_chunks(journal: Journal) -> AsyncIterator[str]:
    """Yield the notebook of a whole journal, JSON in ASCII, with one cell in memory.

    Raises:
        StorageError: S3 does not answer, or something is missing there.
    """
    last_number = await journal.open()
    if not last_number:
        yield json.dumps({"cells": [], **_ending(None, None)})
        return
    first, last, stored = await asyncio.gather(
        journal.signed(1), journal.signed(last_number), journal.stored_blobs()
    )
    yield '{"cells": [\n' + json.dumps(_cover(first, last.entry))
    ended: dict[str, str] = {}
    async for group in groups(journal, last_number):
        if group[0].entry.number == 1 and isinstance(group[0].entry.event, SessionOpened):
            continue  # which the cover holds
        _note_ends(ended, group)
        yield ",\n" + await _text(journal, group, stored)
    missing = [text for text in ended.values() if text]
    if missing:
        yield ",\n" + json.dumps(_markdown("incomplete", _incomplete(missing)))
    rest = json.dumps(_ending(first, last))
    yield "\n], " + rest[1:]


async def statements(journal: Journal, workspaces: str) -> AsyncIterator[bytes]:
    """Yield what a whole journal states of each cell, JSON; see `provenance.statement`.

    Args:
        journal: whose cells.
        workspaces: the bucket of the users' files.

    Raises:
        StorageError: S3 does not answer, or something is missing there.
    """
    before = Committed()
    async for group in groups(journal, await journal.open()):
        made = await asyncio.to_thread(statement, group, workspaces, before)
        before.note(group)
        if made is not None:
            yield json.dumps(made, separators=(",", ":")).encode("ascii")


async def groups(journal: Journal, last_number: int) -> AsyncGenerator[list[SignedEntry], None]:
    """Yield the entries up to a number, those of one cell together (raises StorageError)."""
    group: list[SignedEntry] = []
    async with aclosing(_read_ahead(journal, last_number)) as entries:
        async for signed in entries:
            if group and not belongs(signed.entry, group[0].entry, group[-1].entry):
                yield group
                group = []
            group.append(signed)
    if group:
        yield group


async def _read_ahead(journal: Journal, last_number: int) -> AsyncGenerator[SignedEntry, None]:
    """Yield the entries in order, while the next ones are on their way."""
    numbers = iter(range(1, last_number + 1))
    reading = deque(
        asyncio.create_task(journal.signed(number)) for number in islice(numbers, READ_AHEAD_COUNT)
    )
    try:
        while reading:
            signed = await reading[0]
            reading.popleft()
            for number in islice(numbers, 1):
                reading.append(asyncio.create_task(journal.signed(number)))
            yield signed
    finally:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)


def _note_ends(ended: dict[str, str], group: Sequence[SignedEntry]) -> None:
    """Keep what is said of each cell that has no end so far, in order."""
    for signed in group:
        event = signed.entry.event
        if isinstance(event, CellStarted):
            what = f"`[{event.execution_count}]`" if event.is_cell else "a comm message"
            ended[event.request_id] = f"- {what} (entry {signed.entry.number}, {signed.entry.time})"
        elif isinstance(event, CellFinished):
            ended.pop(event.request_id, None)


def _incomplete(missing: Sequence[str]) -> str:
    return "**Incomplete**: of these it is not known how they ended.\n\n" + "\n".join(missing)


async def _text(journal: Journal, group: Sequence[SignedEntry], stored: frozenset[str]) -> str:
    """Return the cell of a group as JSON (raises StorageError)."""
    absent = [digest for each in group for digest in lists_of(each.entry.event)]
    absent = [digest for digest in absent if digest not in stored]
    first, last = group[0].entry.event, group[-1].entry.event
    said: Said | None = Said()
    is_large = sum(len(each.envelope.payload) for each in group) > OFF_LOOP_CHARACTERS
    if isinstance(first, CellStarted) and first.is_cell and isinstance(last, CellFinished):
        is_large = is_large or last.outputs.blob is not None
        try:
            said = await journal.said(last.outputs)
        except ContentMissing:
            said = None
    if is_large:
        return await asyncio.to_thread(lambda: json.dumps(_cell(group, said, absent)))
    return json.dumps(_cell(group, said, absent))


def _cell(group: Sequence[SignedEntry], said: Said | None, absent: Sequence[str]) -> dict[str, Any]:
    """Return the cell of a group.

    Args:
        group: entries.
        said: what it published, None where that is not there.
        absent: other objects that these entries name and that are not stored.
    """
    first = group[0].entry
    started = first.event
    entries = [each.envelope.to_json() for each in group]
    if not isinstance(started, CellStarted) or not started.is_cell:
        text = "\n\n".join(told(each.entry.event, each.entry.time) for each in group)
        return _markdown(_cell_id(first), text, entries, absent)
    last = group[-1].entry
    finished = last.event if isinstance(last.event, CellFinished) else None
    outputs: list[dict[str, Any]] = []
    audit: dict[str, Any] = {"entries": entries} | ({"absent": absent} if absent else {})
    if said is None:
        audit["content"] = MISSING
    elif finished is not None:
        outputs = shown_outputs(said.messages, finished.outputs.blob)
        audit |= {"salt": said.salt} if said.salt else {}
    return {
        "cell_type": "code",
        "id": _cell_id(first),
        "execution_count": started.execution_count,
        "source": started.source,
        "outputs": outputs,
        "metadata": {
            "execution": _times(first, last if finished is not None else None),
            "lambda_kernel": {
                "cell_id": None if started.cell_id is None else plain_text(started.cell_id),
                "status": "incomplete" if finished is None else finished.status,
                "audit": audit,
            },
        },
    }


def _times(first: Entry, last: Entry | None) -> dict[str, str]:
    """Return the times of a cell where nbclient and JupyterLab put them."""
    times = {"iopub.status.busy": first.time, "iopub.execute_input": first.time}
    if last is not None:
        times |= {"shell.execute_reply": last.time, "iopub.status.idle": last.time}
    return times


def _cell_id(entry: Entry) -> str:
    return f"entry-{entry.number}"


def _markdown(
    cell_id: str, text: str, entries: Sequence[dict[str, Any]] = (), absent: Sequence[str] = ()
) -> dict[str, Any]:
    audit = {"entries": list(entries)} | ({"absent": list(absent)} if absent else {})
    return {
        "cell_type": "markdown",
        "id": cell_id,
        "source": text,
        "metadata": {"lambda_kernel": {"audit": audit}},
    }


def _cover(first: SignedEntry, last: Entry) -> dict[str, Any]:
    """Return the first cell, with the entry that says who began the session, where there is one."""
    begin, event = first.entry, first.entry.event
    facts = [f"- entries: {last.number}, from {begin.time} to {last.time}"]
    known = _known(event)
    if known is not None:
        session, runs_in = known
        agent = f", agent `{session.owner.agent}`" if session.owner.agent else ""
        facts += [
            f"- owner: user `{session.owner.user}`{agent}",
            f"- workspace: `{session.workspace}`",
            f"- environment: `{runs_in.id}`, Python {runs_in.python}",
        ]
        if session.forked_from is not None:
            facts.append(f"- began with the variables of kernel `{session.forked_from}`")
    entries = []
    if isinstance(event, SessionOpened):
        facts.append(f"- started{who_text(event.actor)}, {event.session.created}")
        entries = [first.envelope.to_json()]
    text = COVER.format(kernel_id=begin.kernel_id, facts="\n".join(facts))
    return _markdown("cover", text, entries)


def _known(event: Event | None) -> tuple[Session, RunsIn] | None:
    if isinstance(event, SessionOpened):
        return event.session, event.environment
    facts = event.gateway if isinstance(event, CellStarted) else None
    return None if facts is None else (facts.session, facts.environment)


def _ending(first: SignedEntry | None, last: SignedEntry | None) -> dict[str, Any]:
    known = _known(None if first is None else first.entry.event)
    name = "lambda-python" if known is None else known[0].spec_name
    language: dict[str, Any] = {"name": "python", "file_extension": ".py"}
    language |= {"mimetype": "text/x-python", "pygments_lexer": "ipython3"}
    if known is not None:
        language["version"] = known[1].python
    trail: dict[str, Any] = {"schema": VIEW_SCHEMA}
    if last is not None:
        trail |= {
            "kernel_id": last.entry.kernel_id,
            "entries": last.entry.number,
            "head": last.digest,
        }
    return {
        "metadata": {
            "kernelspec": {"name": name, "display_name": name, "language": "python"},
            "language_info": language,
            "lambda_kernel": {"trail": trail},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
