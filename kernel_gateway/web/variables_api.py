"""``/api/kernels/{id}/variables``: what a session holds, for agents and user interfaces."""

from __future__ import annotations

import json

from kernel_gateway.errors import BadRequest
from kernel_gateway.web.base import GatewayHandler, endpoint

TOTAL_HEADER = "Lambda-Kernel-Total"
DEFAULT_LIMIT = 1000
MAX_LIMIT = 10_000
MAX_OFFSET = 10_000_000


class VariablesHandler(GatewayHandler):
    """The variables of one kernel."""

    auth_resource = "kernels"

    @endpoint
    async def get(self, kernel_id: str) -> None:
        """List them by name, without values; with ``repr``, say what one of them looks like."""
        kernel = self.own_kernel(kernel_id)
        name = self.get_query_argument("repr", None, strip=False)
        if name is not None:
            self.finish(json.dumps(await kernel.represent(name)))
            return
        limit = self._number("limit", DEFAULT_LIMIT, MAX_LIMIT)
        offset = self._number("offset", 0, MAX_OFFSET)
        found = await kernel.variables()
        self.set_header(TOTAL_HEADER, str(len(found)))
        self.finish(json.dumps([each.to_dict() for each in found[offset : offset + limit]]))

    def _number(self, name: str, default: int, highest: int) -> int:
        text = self.get_query_argument(name, None)
        if text is None:
            return default
        if not (text.isascii() and text.isdigit() and len(text) < 10 and int(text) <= highest):
            raise BadRequest(f"{name}: must be a number from 0 to {highest:,}")
        return int(text)
