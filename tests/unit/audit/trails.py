"""Journals and trails made by hand, for tests."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kernel_gateway.audit.chain import (
    CellFinished,
    CellInterrupted,
    CellStarted,
    Event,
    KernelRestarted,
    Outputs,
    RecordedMessage,
    SessionClosed,
)
from kernel_gateway.audit.journal import Journal
from kernel_gateway.audit.key_folder import KeyFolder
from kernel_gateway.audit.trail import trail_chunks
from kernel_gateway.objects import MemoryObjectStore

KERNEL_ID = str(uuid.UUID(int=7))
OTHER_ID = str(uuid.UUID(int=8))
LARGE = "x" * 600_000


def message(msg_type: str, **content: Any) -> RecordedMessage:
    return RecordedMessage(
        header={"msg_type": msg_type, "msg_id": "m1", "session": "s"}, content=content
    )


def stream(text: str) -> RecordedMessage:
    return message("stream", name="stdout", text=text)


def ran(
    count: int, code: str, *said: RecordedMessage, status: Any = "ok", msg_type: str = ""
) -> list[Event]:
    """Return the two events of a cell."""
    header = {"msg_id": f"m{count}", "msg_type": msg_type or "execute_request", "session": "s"}
    content: dict[str, Any] = {"data": {}} if msg_type else {"code": code}
    return [
        CellStarted(
            request_id=f"r{count}", seq=count, parent=None, execution_count=count, timeout_s=9.0,
            header=header, content=content,
        ),
        CellFinished(
            request_id=f"r{count}", status=status,
            reply=message("execute_reply", status=status),
            outputs=Outputs(count=len(said), messages=said),
        ),
    ]  # fmt: skip


EVENTS: list[Event] = [
    *ran(1, "print('one')\nprint('two')", stream("one\ntwo\n")),
    *ran(
        2,
        "table",
        message(
            "execute_result",
            execution_count=2,
            data={"text/plain": "a\nb", "application/json": {"n": 1.0, "big": 2**60, "l": ["a"]}},
            metadata={},
        ),
        message("display_data", data={"text/html": "<b>1</b>\n<i>2</i>"}, metadata={}),
    ),
    *ran(3, "", msg_type="comm_msg"),
    ran(4, "wait()")[0],
    CellInterrupted(request_id="r4"),
    ran(
        4, "wait()",
        message("error", ename="KeyboardInterrupt", evalue="", traceback=["1", "2"]),
        status="error",
    )[1],
    KernelRestarted(),
    *ran(5, "print('x' * 600_000)", stream("before\n"), message("clear_output"), stream(LARGE)),
    *ran(6, "6 * 7", message("execute_result", execution_count=6, data={"text/plain": "42"})),
    SessionClosed(reason="shut down"),
]  # fmt: skip


async def a_journal(
    events: Sequence[Event],
    keys: KeyFolder | None,
    *,
    kernel_id: str = KERNEL_ID,
    store: MemoryObjectStore | None = None,
) -> Journal:
    """Return a journal that holds these events, signed if there are keys."""
    journal = Journal(store or MemoryObjectStore(), "records", kernel_id, is_new=True, sealer=keys)
    for event in events:
        await journal.append(event, epoch=0, time="2026-01-01T00:00:00.000000Z")
    return journal


async def trail_text(journal: Journal) -> str:
    return "".join([chunk async for chunk in trail_chunks(journal)])


async def a_trail(
    state_dir: Path, events: Sequence[Event] = EVENTS, kernel_id: str = KERNEL_ID
) -> dict[str, Any]:
    """Return the trail of these events, signed with the key of a state directory."""
    journal = await a_journal(events, KeyFolder(state_dir), kernel_id=kernel_id)
    found: dict[str, Any] = json.loads(await trail_text(journal))
    return found
