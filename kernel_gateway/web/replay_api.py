"""``POST /api/replays``: the cells of a trail run again, as events or as one report."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from tornado.iostream import StreamClosedError

from kernel_gateway.audit.facts import Owner
from kernel_gateway.errors import BadRequest, Conflict, Forbidden, GatewayError, NotFound
from kernel_gateway.kernels.identity import Identity, may_execute
from kernel_gateway.replay.cells import CellPair
from kernel_gateway.replay.compare import compared
from kernel_gateway.replay.pins import VersionedFiles
from kernel_gateway.replay.recorded import (
    JournalSource,
    RecordedTrail,
    SentSource,
    TrailSource,
    read,
)
from kernel_gateway.replay.replaying import Event, run
from kernel_gateway.replay.rules import Rules
from kernel_gateway.replay.running import Replay
from kernel_gateway.replay.wire import ReplayBody, pair_to_dict
from kernel_gateway.web.base import endpoint
from kernel_gateway.web.execute_api import EVENT_STREAM, HEARTBEAT, HEARTBEAT_S
from kernel_gateway.web.replay_notes import note_of_origin, notes_of
from kernel_gateway.web.trail_api import JournalHandler
from lambda_kernel.contract import keys
from lambda_kernel.contract.schema import InvalidField, encode

NOT_YOURS = "connectors are those of the agent that was recorded, which only its user replays with"
NOT_PROVEN = "connectors: this gateway has no journal of the kernel, and a file may name any agent"


class ReplaysHandler(JournalHandler):
    """Replays; one lasts as long as its request."""

    def initialize(self) -> None:
        """Begin without a caller that is gone."""
        self._gone = asyncio.Event()
        self._notes: list[str] = []

    def on_connection_close(self) -> None:
        """Have the replay end when its caller is gone."""
        super().on_connection_close()
        self._gone.set()

    @endpoint
    async def post(self) -> None:
        """Replay, and answer with an event for each cell, or with a report at the end."""
        body = ReplayBody.read(self.json_object())
        replay = await self._replay(body)
        self._notes = await self._notes_of(replay)
        if EVENT_STREAM in self.request.headers.get("Accept", ""):
            await self._stream(replay)
        else:
            await self._answer(replay)

    async def _replay(self, body: ReplayBody) -> Replay:
        """Return the replay that is asked for.

        Raises:
            BadRequest, NotFound, Forbidden, Conflict: why not.
            StorageError: S3 does not answer.
        """
        request = body.request
        source = await self._source(body)
        trail = await read(source)
        if trail.kernel_id != body.kernel_id or body.head not in (None, trail.digest):
            raise Conflict("the trail does not end with the entry that is named: tampered")
        request.selected(trail.cells)
        owner = self._owner(trail)
        is_theirs = owner is not None and may_execute(self.identity, owner)
        # What a caller brings along may name anything: only its own is believed, and only of a
        # trail that somebody has signed. Else a stranger's code would read the caller's files.
        is_believed = isinstance(source, JournalSource) or (is_theirs and body.verified)
        readable = keys.user_prefix(owner.user) if owner is not None and is_believed else None
        replayer = self.identity.as_owner
        if request.has_connectors:
            if owner is None or not is_theirs:
                raise Forbidden(NOT_YOURS)
            if not isinstance(source, JournalSource):
                # A secret goes by the name of the agent, which under this user may not exist.
                raise Forbidden(NOT_PROVEN)
            replayer = owner
        files: VersionedFiles = self.settings["workspace_files"]
        return Replay(
            registry=self.registry,
            files=files,
            trail=trail,
            source=source,
            request=request,
            replayer=replayer,
            caller=self.caller,
            readable=readable,
        )

    async def _notes_of(self, replay: Replay) -> list[str]:
        facts = replay.trail.facts
        derived = None if facts is None else facts.session.derived_from
        origin = [] if derived is None else [await note_of_origin(derived, self._journal)]
        return notes_of(replay) + origin

    async def _source(self, body: ReplayBody) -> TrailSource:
        is_here = await self.registry.services.recorder.opened(body.kernel_id).open() > 0
        if body.trail and not is_here:
            return SentSource(await asyncio.to_thread(body.signed))
        journal = await self._journal(body.kernel_id)
        count = await journal.open()
        number = body.entries or count
        if not count:
            raise NotFound(f"kernel {body.kernel_id} has run nothing")
        if number > count or number < 1:
            raise Conflict(f"the journal has {count} entries, not {number}: tampered")
        return JournalSource(journal, number)

    def _owner(self, trail: RecordedTrail) -> Identity | None:
        found: Owner | None = None if trail.facts is None else trail.facts.session.owner
        try:
            return None if found is None else Identity(user=found.user, agent=found.agent)
        except InvalidField as problem:
            raise BadRequest(f"the trail's owner: {problem}") from problem

    async def _stream(self, replay: Replay) -> None:
        self.set_header("Content-Type", f"{EVENT_STREAM}; charset=utf-8")
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Accel-Buffering", "no")
        self.write(_event("replay", _model(replay, self._notes)))
        try:
            async with aclosing(run(replay)) as events:
                async for event in self._until_gone(events):
                    self.write(HEARTBEAT if event is None else _event_of(event))
                    await self.flush()
            self.write(_event("end", {"kernels": replay.kernel_ids}))
        except StreamClosedError:
            return
        except GatewayError as problem:
            kind = type(problem).__name__
            self.write(_event("failed", {"message": str(problem), "error": kind}))
        self.finish(set_content_type=f"{EVENT_STREAM}; charset=utf-8")

    async def _answer(self, replay: Replay) -> None:
        rules = await asyncio.to_thread(Rules.load)
        cells: list[dict[str, Any]] = []
        async with aclosing(run(replay)) as events:
            async for event in self._until_gone(events):
                if isinstance(event, CellPair):
                    verdict = encode(await asyncio.to_thread(compared, event, rules))
                    count = event.execution_count
                    cells.append({"number": event.number, "execution_count": count, **verdict})
        if self._gone.is_set():
            return
        cells.sort(key=lambda cell: cell["number"])
        answer = {**_model(replay, self._notes), "kernels": replay.kernel_ids, "cells": cells}
        self.finish(json.dumps(answer))

    async def _until_gone(self, events: AsyncIterator[Event]) -> AsyncIterator[Event | None]:
        """Yield events until the caller is gone; None where it waits long for one."""
        gone = asyncio.create_task(self._gone.wait())
        getting = asyncio.ensure_future(anext(events, None))
        try:
            while True:
                await asyncio.wait(
                    {gone, getting}, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED
                )
                if gone.done():
                    return
                if not getting.done():
                    yield None
                    continue
                event = getting.result()
                if event is None:
                    return
                yield event
                getting = asyncio.ensure_future(anext(events, None))
        finally:
            gone.cancel()
            getting.cancel()
            await asyncio.gather(gone, getting, return_exceptions=True)


def _model(replay: Replay, notes: list[str]) -> dict[str, Any]:
    trail = replay.trail
    facts = trail.facts
    return {
        "replay_id": replay.replay_id,
        "kernel_id": trail.kernel_id,
        "entries": trail.number,
        "head": trail.digest,
        "cells_count": len(trail.cells),
        "owner": None if facts is None else encode(facts.session.owner),
        "environment": "" if facts is None else facts.environment.id,
        "mode": "pinned" if replay.request.is_pinned else "sequential",
        "replayer": replay.replayer.user,
        "network": "none",
        "prefix": keys.replay_prefix(replay.replayer.user, replay.replay_id),
        "notes": notes,
    }


def _event_of(event: Event) -> bytes:
    if isinstance(event, CellPair):
        return _event("cell", pair_to_dict(event))
    return _event("begun", encode(event))


def _event(name: str, data: Any) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()
