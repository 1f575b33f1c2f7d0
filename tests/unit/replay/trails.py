"""Recorded cells, made up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from kernel_gateway.audit.chain import CellFinished, CellStarted, Outputs
from kernel_gateway.audit.facts import (
    Credentials,
    HandlerFacts,
    Inputs,
    Owner,
    RunsIn,
    Session,
    StartFacts,
    Workspace,
)
from kernel_gateway.replay.recorded import RecordedCell
from lambda_kernel.contract.commit import CommittedFile
from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.outcome import FileChange

ROOT = "users/u1/w/"
START = "2026-01-01T00:00:00.000000Z"


def facts(owner: Owner | None = None, **session: Any) -> StartFacts:
    return StartFacts(
        session=Session(
            owner=owner or Owner(user="u1"),
            spec_name="lambda-python",
            workspace="w",
            scope="agent",
            created=START,
            **session,
        ),
        environment=RunsIn(
            id="default", function="f", handler_digest="d", python="3.12", memory_mb=1, tier="x"
        ),
        credentials=Credentials(
            role_arn="r", role_session_name="s", policy_digest="p", duration_s=900
        ),
    )


def a_cell(
    number: int,
    *,
    tags: Sequence[str] = (),
    status: Literal["ok", "error", "lost"] | None = "ok",
    failure: str | None = None,
    msg_type: str = "execute_request",
    committed: bool = True,
    is_complete: bool = True,
    was_interrupted: bool = False,
    files: dict[str, str | None] | None = None,
    changes: Sequence[FileChange] = (),
    gateway: StartFacts | None = None,
    inputs: Inputs | None = None,
) -> RecordedCell:
    """Return a cell; ``files`` are the workspace behind it: version by path."""
    listed = tuple(
        CommittedFile(key=ROOT + path, version_id=version, digest="d", size_bytes=1)
        for path, version in (files or {}).items()
    )
    handler = HandlerFacts(
        status="ok",
        files=tuple(changes),
        workspace=Workspace(count=len(listed), files=listed),
        inputs=inputs,
    )
    finished = CellFinished(
        request_id=f"r{number}",
        status=status or "ok",
        failure=failure,
        head=Head(seq=number, digest="d") if committed else None,
        outputs=Outputs(is_complete=is_complete),
        handler=handler,
    )
    return RecordedCell(
        number=number,
        started=CellStarted(
            request_id=f"r{number}",
            seq=number,
            parent=None,
            execution_count=number,
            timeout_s=1.0,
            header={"msg_type": msg_type, "msg_id": f"m{number}", "session": "s"},
            metadata={"tags": list(tags)} if tags else {},
            content={"code": "pass"},
            gateway=gateway or facts(),
        ),
        finished=None if status is None else finished,
        finished_number=None if status is None else 2 * number,
        was_interrupted=was_interrupted,
    )


def change(path: str, what: Any, version: str) -> FileChange:
    return FileChange(path=path, change=what, key=ROOT + path, version_id=version, digest="d")
