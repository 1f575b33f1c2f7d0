"""``/api/garbage``: what nobody needs any more, of all users together: for admins."""

from __future__ import annotations

import json
from dataclasses import asdict

from kernel_gateway.errors import NotFound
from kernel_gateway.garbage import GarbageCollector
from kernel_gateway.web.base import GatewayHandler, endpoint


class GarbageHandler(GatewayHandler):
    """GET says what would be deleted, POST deletes it."""

    auth_resource = "garbage"
    _track_activity = False

    @endpoint
    async def get(self) -> None:
        """Say what is garbage; delete nothing."""
        await self._collect(dry_run=True)

    @endpoint
    async def post(self) -> None:
        """Delete garbage and say what it was."""
        await self._collect(dry_run=False)

    async def _collect(self, *, dry_run: bool) -> None:
        collector: GarbageCollector | None = self.settings["garbage_collector"]
        if collector is None:
            raise NotFound("nobody collects garbage here")
        report = await collector.collect(dry_run=dry_run)
        self.finish(json.dumps(asdict(report)))
