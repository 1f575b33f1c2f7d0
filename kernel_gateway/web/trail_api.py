"""``/api/kernels/{id}/trail…``: a kernel's audit trail, for its owner and for admins.

Also of a kernel that has ended: whose it was, its journal says. Who is no admin must own all that a
journal holds, should an id have been used more than once.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from kernel_gateway.audit import removal
from kernel_gateway.audit.chain import CellFinished
from kernel_gateway.audit.envelopes import Sealer
from kernel_gateway.audit.facts import Owner
from kernel_gateway.audit.journal import Journal
from kernel_gateway.audit.later_events import ContentRemoved
from kernel_gateway.audit.provenance import PAYLOAD_TYPE
from kernel_gateway.audit.references import blobs_of
from kernel_gateway.audit.trail import statements, trail_chunks
from kernel_gateway.errors import BadRequest, Conflict, Forbidden, GatewayError, NotFound
from kernel_gateway.kernels.identity import Identity, may_see
from kernel_gateway.kernels.state import ExecutionState
from kernel_gateway.web.base import GatewayHandler, endpoint
from lambda_kernel.contract import names
from lambda_kernel.contract.schema import InvalidField, decode

MAX_REASON_CHARACTERS = 500
FLUSH_CHARACTERS = 256 * 1024
"""So much of a file is sent at a time: a cell is seldom worth a packet of its own."""


class JournalHandler(GatewayHandler):
    """Base of handlers that read journals."""

    auth_resource = "kernels"
    _track_activity = False

    async def _journal(self, kernel_id: str) -> Journal:
        """Return the journal of a kernel that the caller may see, ended or not.

        Raises:
            NotFound: there is none for the caller.
            StorageError: S3 does not answer.
        """
        try:
            kernel = self.visible_kernel(kernel_id)
        except NotFound as unknown:
            return await self._ended(kernel_id, unknown)
        recorder = self.registry.services.recorder
        journal = kernel.journal if kernel.is_held else recorder.opened(kernel_id)
        if kernel.is_held:
            await kernel.settle_past()
            # What a cell has just said is on its way there.
            await journal.flush()
            await recorder.flush_objects()
        if not self._may_read(await self._owners(kernel_id)):
            raise Forbidden(
                f"kernel {kernel_id} goes on with the journal of another's kernel of this id, "
                "which only an admin may read"
            )
        return journal

    async def _ended(self, kernel_id: str, unknown: NotFound) -> Journal:
        try:
            names.check_kernel_id(kernel_id)
        except InvalidField:
            raise unknown from None
        if any(kernel.kernel_id == kernel_id for kernel in self.registry.all()):
            raise unknown
        journal = self.registry.services.recorder.opened(kernel_id)
        if not await journal.open():
            raise unknown
        owners = await self._owners(kernel_id)
        if not (self.identity.admin or (owners and self._may_read(owners))):
            raise unknown
        return journal

    async def _owners(self, kernel_id: str) -> frozenset[Owner | None]:
        if self.identity.admin:
            return frozenset()
        return await self.registry.services.recorder.indexing.index.owners(kernel_id)

    def _may_read(self, owners: frozenset[Owner | None]) -> bool:
        """Return whether the caller may read about each of a journal's sessions."""
        return all(
            owner is not None
            and may_see(self.identity, Identity(user=owner.user, agent=owner.agent))
            for owner in owners
        )

    async def _send(self, chunks: AsyncIterator[str], name: str, *, content_type: str) -> None:
        """Send a file as it is made; one that ends early is seen to be cut."""
        self.set_header("Content-Type", content_type)
        self.set_header("Content-Disposition", f'attachment; filename="{name}"')
        try:
            waiting_characters = 0
            async for chunk in chunks:
                self.write(chunk)
                waiting_characters += len(chunk)
                if waiting_characters >= FLUSH_CHARACTERS:
                    waiting_characters = 0
                    await self.flush()
        except GatewayError:
            stream = getattr(self.request.connection, "stream", None)
            if self._headers_written and stream is not None:
                # An answer that ends in order would be taken for all of it.
                stream.close()
            raise
        self.finish(set_content_type=content_type)


class TrailContentHandler(JournalHandler):
    """What cells have said, to be removed from the journal: for admins."""

    @endpoint
    async def post(self, kernel_id: str) -> None:
        """Delete it, after the journal says so; answer what went and what stands in entries."""
        if not self.identity.admin:
            raise Forbidden("only an admin removes content from an audit trail")
        body = self.json_object()
        asked = _asked(body)
        journal = await self._journal(kernel_id)
        found = await removal.find(journal, execution_count=asked.cell)
        epoch = self._epoch(kernel_id, journal)
        event = ContentRemoved(
            blobs=tuple(sorted(set(found.blobs.values()))),
            entries=tuple(sorted(found.blobs)),
            reason=asked.reason,
            user=self.identity.user,
            agent=self.identity.agent,
        )
        await self.registry.services.recorder.remove_content(
            kernel_id, journal, found, event if found.is_news else None, epoch=epoch
        )
        answer = {
            "entries": event.entries,
            "objects": len(event.blobs),
            "cells": found.execution_counts[::-1],
            "kept_in_entries": found.inline[::-1],
        }
        self.finish(json.dumps(answer))

    def _epoch(self, kernel_id: str, journal: Journal) -> int:
        """Return the epoch of the next entry (raises Conflict)."""
        try:
            kernel = self.visible_kernel(kernel_id)
        except NotFound:
            return journal.epoch
        if kernel.execution_state is ExecutionState.BUSY:
            # An entry between those of a cell would part them.
            raise Conflict("a cell runs in this kernel: interrupt it, or wait for its end")
        return max(kernel.record.epoch, journal.epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    reason: str
    cell: int | None = None


def _asked(body: Mapping[str, Any]) -> _Asked:
    try:
        asked = decode(_Asked, body, "body")
    except InvalidField as problem:
        raise BadRequest(str(problem)) from problem
    if not asked.reason.strip() or len(asked.reason) > MAX_REASON_CHARACTERS:
        raise BadRequest(f"body.reason: must be text, at most {MAX_REASON_CHARACTERS} characters")
    return asked


class TrailHandler(JournalHandler):
    """The trail as a notebook."""

    @endpoint
    async def get(self, kernel_id: str) -> None:
        """Send it, one cell at a time."""
        journal = await self._journal(kernel_id)
        await self._send(
            trail_chunks(journal), f"{kernel_id}.ipynb", content_type="application/x-ipynb+json"
        )


class StatementsHandler(JournalHandler):
    """The trail as one in-toto Statement per cell."""

    @endpoint
    async def get(self, kernel_id: str) -> None:
        """Send one a line, in a signed envelope where that is asked for."""
        is_signed = self.get_query_argument("signed", "false")
        if is_signed not in {"true", "false"}:
            raise BadRequest("signed: must be true or false")
        sealer = self.registry.services.recorder.sealer
        if is_signed == "true" and sealer is None:
            raise Conflict("signed: this gateway has no key; ask without it")
        journal = await self._journal(kernel_id)
        made = statements(journal, self.registry.services.stack.workspaces)
        await self._send(
            _lines(made, sealer if is_signed == "true" else None),
            f"{kernel_id}.intoto.jsonl",
            content_type="application/x-ndjson",
        )


class TrailHeadHandler(JournalHandler):
    """Where the journal ends."""

    @endpoint
    async def get(self, kernel_id: str) -> None:
        """Answer number and digest of the newest entry."""
        journal = await self._journal(kernel_id)
        number = await journal.open()
        digest = (await journal.signed(number)).digest if number else ""
        self.finish(json.dumps({"kernel_id": kernel_id, "number": number, "digest": digest}))


class TrailBlobHandler(JournalHandler):
    """All that a cell published, where a notebook only shows the beginning."""

    @endpoint
    async def get(self, kernel_id: str, number: str) -> None:
        """Answer an object that this entry names: the one of ``digest``, else the outputs."""
        journal = await self._journal(kernel_id)
        if not 0 < int(number) <= await journal.open():
            raise NotFound(f"the journal has no entry {number}")
        event = (await journal.signed(int(number))).entry.event
        asked = self.get_query_argument("digest", None)
        digest = event.outputs.blob if isinstance(event, CellFinished) else None
        if asked is not None:
            digest = asked if asked in blobs_of(event) else None
        if digest is None:
            raise NotFound(f"entry {number} names no such object")
        self.set_header("ETag", f'"{digest}"')
        self.finish(await journal.blob(digest), set_content_type="application/json")


async def _lines(made: AsyncIterator[bytes], sealer: Sealer | None) -> AsyncIterator[str]:
    async for each in made:
        line = each if sealer is None else await sealer.seal(each, PAYLOAD_TYPE)
        yield line.decode("ascii") + "\n"
