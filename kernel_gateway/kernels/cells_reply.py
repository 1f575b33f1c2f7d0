"""The answer to cells_request: what a page that was loaded again has to show of a kernel's cells.

Source: our own message, beside those of the Jupyter messaging spec. A page reaches a kernel's
websocket through every proxy, also where that lets no other request of ours pass.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kernel_gateway.audit.journal import Journal
from kernel_gateway.kernels.cell import Call, Cell
from kernel_gateway.kernels.past import PastCell, past_cells
from kernel_gateway.kernels.transcript import Transcript, as_sent
from kernel_gateway.messaging.backlog import rough_bytes
from kernel_gateway.messaging.message import OutMessage

DEFAULT_LAST = 20
MAX_LAST = 100
MAX_BYTES = 6 * 1024 * 1024
"""Of codes and messages in one reply: JupyterLab's server takes none over 10 MiB from a gateway."""

Model = dict[str, Any]


async def cells_content(
    asked: dict[str, Any],
    journal: Journal,
    open_cells: Callable[[], Sequence[Call]],
    said: Callable[[], Transcript | None],
) -> Model:
    """Return the content of cells_reply. What the running cell says later comes after the reply.

    So nothing may be awaited between the return and the sending.

    Args:
        asked: the request's content; ``last`` = so many finished cells, 20 if missing, at most 100.
        journal: of the kernel; settled.
        open_cells: returns what runs, if anything, and what waits behind it.
        said: returns what the running cell has said.

    Raises:
        GatewayError: the journal cannot be read.
    """
    last_count = max(0, min(asked.get("last", DEFAULT_LAST), MAX_LAST))
    while True:
        before = open_cells()
        past = await past_cells(journal, last_count=last_count + 1)
        finished = await _finished(past, journal, last_count)
        # A cell that ended meanwhile is in the journal now, and nowhere else.
        if all(call in open_cells() for call in before):
            break
    running, cells = said(), [call for call in open_cells() if isinstance(call, Cell)]
    models = finished + [_open(cell, running) for cell in cells]
    _fit(models)
    return {"status": "ok", "cells": models}


async def _finished(past: Sequence[PastCell], journal: Journal, last_count: int) -> list[Model]:
    ended = [cell for cell in past if cell.finished is not None]
    return [await _from_journal(c, journal) for c in ended[max(0, len(ended) - last_count) :]]


async def _from_journal(cell: PastCell, journal: Journal) -> Model:
    started, event = cell.started, await journal.end_of_cell(cell.number)
    messages = [as_sent(message, started.header) for message in event.outputs.messages]
    return {
        "msg_id": started.msg_id,
        "cell_id": started.cell_id,
        "code": started.content.get("code"),
        "execution_count": started.execution_count,
        "status": event.status,
        "finished": cell.finished_time,
        "left_out_count": event.outputs.dropped_count,
        "messages": messages,
    }


def _open(cell: Cell, running: Transcript | None) -> Model:
    message = cell.message
    is_running = running is not None and running.parent is message.header
    cell_id = message.metadata.get("cellId")
    return {
        "msg_id": message.msg_id,
        "cell_id": cell_id if isinstance(cell_id, str) else None,
        "code": message.content.get("code"),
        "execution_count": cell.count or None,
        "status": "running" if is_running else "queued",
        "finished": None,
        "left_out_count": running.dropped_count if running is not None and is_running else 0,
        "messages": list(running.messages or ()) if running is not None and is_running else [],
    }


def _fit(models: Iterable[Model]) -> None:
    """Leave out the oldest messages of all that are too much, and say how many of each cell."""
    left_bytes = MAX_BYTES
    for model in reversed(list(models)):
        left_bytes -= len(model["code"] or "")
        kept: list[Model] = []
        messages: list[OutMessage] = model["messages"]
        for message in reversed(messages):
            left_bytes -= rough_bytes(message)
            if left_bytes < 0:
                break
            kept.append(_as_told(message))
        model["left_out_count"] += len(messages) - len(kept)
        model["messages"] = kept[::-1]


def _as_told(message: OutMessage) -> Model:
    return {"header": message.header, "metadata": message.metadata, "content": message.content}
