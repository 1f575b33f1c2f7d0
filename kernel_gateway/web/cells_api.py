"""``/api/kernels/{id}/cells``: what was run and what came out, whoever was connected."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from kernel_gateway.errors import BadRequest
from kernel_gateway.kernels.kernel import LambdaKernel
from kernel_gateway.kernels.past import PastCell, past_cells
from kernel_gateway.kernels.transcript import as_sent
from kernel_gateway.messaging.notebook_outputs import outputs_of
from kernel_gateway.web.base import GatewayHandler, endpoint

DEFAULT_LAST = 10
MAX_LAST = 1000


class CellsHandler(GatewayHandler):
    """The cells of one kernel."""

    auth_resource = "kernels"

    @endpoint
    async def get(self, kernel_id: str) -> None:
        """List the newest ones with their outputs, oldest first; one at a time in memory."""
        kernel = self.own_kernel(kernel_id)
        last_count = _count(self.get_query_argument("last", None))
        since = self.get_query_argument("since", None)
        await kernel.settle_past()
        cells = await past_cells(kernel.journal, last_count=last_count, since=since)
        self.set_header("Content-Type", "application/json")
        self.write("[")
        for number, cell in enumerate(cells):
            model = await _model(kernel, cell)
            self.write(("," if number else "") + await asyncio.to_thread(json.dumps, model))
            await self.flush()
        self.finish("]", set_content_type="application/json")


async def _model(kernel: LambdaKernel, cell: PastCell) -> dict[str, Any]:
    started, finished = cell.started, cell.finished
    model: dict[str, Any] = {
        "msg_id": started.msg_id,
        "cell_id": started.cell_id,
        "request_id": started.request_id,
        "execution_count": started.execution_count,
        "code": started.content.get("code"),
        "status": "running",
        "started": cell.started_time,
        "finished": cell.finished_time,
    }
    if finished is None:
        said = kernel.said_now(started.msg_id)
        so_far = (said.messages or ()) if said is not None else ()
        return model | {"outputs": outputs_of(so_far), "outputs_complete": False}
    outputs = (await kernel.journal.end_of_cell(cell.number)).outputs
    messages = [as_sent(message, started.header) for message in outputs.messages]
    return model | {
        "status": finished.status,
        "failure": finished.failure,
        "committed": finished.head is not None,
        "outputs": await asyncio.to_thread(outputs_of, messages),
        "outputs_complete": outputs.is_complete and not outputs.dropped_count,
    }


def _count(text: str | None) -> int:
    if text is None:
        return DEFAULT_LAST
    if not (text.isascii() and text.isdigit() and 0 < int(text[:9]) <= MAX_LAST and len(text) < 9):
        raise BadRequest(f"last: must be a number from 1 to {MAX_LAST:,}")
    return int(text)
