"""``/api/trails``: which cells of all kernels wrote a file, used a connector, ran at a time.

Each caller finds cells of the kernels that it may see, also of those that have ended.
"""

from __future__ import annotations

import json
from typing import Any

from kernel_gateway.audit.index_rows import FileRow, StartRow
from kernel_gateway.audit.trail_query import FoundCell, TrailQuery
from kernel_gateway.kernels.identity import Identity, may_see
from kernel_gateway.web.base import GatewayHandler, endpoint

MATCHES_SHOWN = 20


class TrailsHandler(GatewayHandler):
    """Cells of all journals."""

    auth_resource = "kernels"
    _track_activity = False

    @endpoint
    async def get(self) -> None:
        """List those that the query's filters leave, the newest first."""
        arguments = self.request.query_arguments
        given = {name: self.get_query_argument(name) for name in arguments if name != "token"}
        query = TrailQuery.of_text(given)
        recorder = self.registry.services.recorder
        # What cells of this gateway have just said is on its way there.
        await recorder.flush()
        answer = await recorder.indexing.index.search(query, self._sees)
        model = {
            "cells": [_model(cell) for cell in answer.cells],
            "next": answer.cells[-1].cursor if answer.has_more else None,
            # Whose an entry is that cannot be read, nobody knows: which, is for admins.
            "complete": not answer.unreadable,
            "unreadable": answer.unreadable if self.identity.admin else {},
        }
        self.finish(json.dumps(model))

    def _sees(self, start: StartRow) -> bool:
        if start.user is None:
            return self.identity.admin
        return may_see(self.identity, Identity(user=start.user, agent=start.agent))


class TrailsIndexHandler(GatewayHandler):
    """The index that searches use, of all users together: for admins."""

    auth_resource = "trail-index"
    _track_activity = False

    @endpoint
    async def post(self) -> None:
        """Make it anew from the journals, and say of how many entries."""
        rebuilt = await self.registry.services.recorder.indexing.index.rebuild()
        model = {
            "kernels": rebuilt.kernels,
            "entries": rebuilt.entries,
            "unreadable": rebuilt.unreadable,
        }
        self.finish(json.dumps(model))


def _model(cell: FoundCell) -> dict[str, Any]:
    start, end = cell.start, cell.end
    files: tuple[FileRow, ...] = () if end is None else end.files
    caller = None
    if start.caller_user is not None:
        caller = {"user": start.caller_user, "agent": start.caller_agent}
    return {
        "kernel_id": cell.kernel_id,
        "entry": start.number,
        "end_entry": None if end is None else end.number,
        "kind": "cell" if start.is_cell else "comm",
        "execution_count": start.execution_count,
        "started": start.time,
        "finished": None if end is None else end.time,
        "status": cell.status,
        "failure": None if end is None else end.failure,
        "user": start.user,
        "agent": start.agent,
        "caller": caller,
        "workspace": start.workspace,
        "environment": start.environment,
        "files": len(files),
        "matched": list(cell.matched[:MATCHES_SHOWN]),
        "export": f"kernel-gateway trail export {cell.kernel_id}",
    }
