"""From a request and the facts of its kernel to an Invocation; decides only, touches nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from kernel_gateway.dispatch.failures import CellRefused
from kernel_gateway.errors import INVALID_CODE
from lambda_kernel.contract.invocation import CellMessage, Head, Invocation, Limits
from lambda_kernel.contract.pinned import Pinned
from lambda_kernel.contract.scope import Scope

HEADER_FIELDS = ("msg_id", "msg_type", "session", "username", "date", "version")
CONTENT_FIELDS = (
    "code",
    "silent",
    "store_history",
    "user_expressions",
    "allow_stdin",
    "stop_on_error",
)
COMM_FIELDS = ("comm_id", "target_name", "data")
LONGEST_COMMIT_GRACE_S = 45.0
COMMIT_GRACE_SHARE = 0.1
QUERY_TIMEOUT_S = 30.0
QUESTION_FIELDS = ("code", "cursor_pos", "detail_level", "name")


QueryKind = Literal["complete", "inspect", "variables"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFacts:
    """What a kernel contributes to the invocation of a cell; see Invocation's attributes."""

    kernel_id: str
    epoch: int
    seq: int
    head: Head | None
    head_kernel_id: str | None = None
    manifest: str | None
    scope: Scope
    workspace: str
    projects: tuple[str, ...]
    run: str | None
    write_prefix: str
    workdir_name: str
    execution_count: int
    limits: Limits
    seeds: Mapping[str, int] = field(default_factory=dict)
    pinned: Pinned | None = None


def checked_code(content: Mapping[str, Any]) -> str:
    """Return the code of an execute_request.

    NUL characters pass: Python itself refuses them, with a traceback the user understands.

    Raises:
        CellRefused: InvalidCode, for code that is missing, not text, or not Unicode text.
    """
    code = content.get("code")
    if not isinstance(code, str):
        raise CellRefused(INVALID_CODE, "content.code is missing or is not text")
    try:
        code.encode()
    except UnicodeEncodeError as problem:
        raise CellRefused(
            INVALID_CODE, f"content.code has a lone surrogate at character {problem.start}"
        ) from problem
    return code


def plan_cell(
    header: Mapping[str, Any],
    content: Mapping[str, Any],
    facts: CellFacts,
    *,
    request_id: str,
    nonce: str,
) -> Invocation:
    """Return the invocation of one execute_request.

    Args:
        header: of the request; only the fields of the spec go on.
        content: of the request; likewise.
        facts: of the kernel, at this moment.
        request_id: 32 hex digits, drawn for this cell.
        nonce: likewise.

    Raises:
        CellRefused: InvalidCode.
    """
    checked_code(content)
    sent = {name: content[name] for name in CONTENT_FIELDS if name in content}
    try:
        json.dumps(sent.get("user_expressions"), ensure_ascii=False, allow_nan=False).encode()
    except (UnicodeEncodeError, ValueError, TypeError) as problem:
        raise CellRefused(
            INVALID_CODE, "content.user_expressions is not plain Unicode JSON"
        ) from problem
    msg = CellMessage(header=_clean_header(header), content=sent)
    return _invocation(msg, facts, request_id=request_id, nonce=nonce)


def plan_query(
    kind: QueryKind,
    content: Mapping[str, Any],
    facts: CellFacts,
    *,
    request_id: str,
    nonce: str,
) -> Invocation:
    """Return an invocation that answers a question about the session, and changes nothing."""
    timeout_s = min(facts.limits.timeout_s, QUERY_TIMEOUT_S)
    limits = replace(
        facts.limits, timeout_s=timeout_s, commit_grace_s=timeout_s * COMMIT_GRACE_SHARE
    )
    sent = {name: content[name] for name in QUESTION_FIELDS if name in content}
    msg = CellMessage(header={}, content=sent)
    asking = _invocation(msg, facts, request_id=request_id, nonce=nonce)
    return replace(asking, kind=kind, commit=False, limits=limits)


def plan_comm(
    header: Mapping[str, Any],
    content: Mapping[str, Any],
    metadata: Mapping[str, Any],
    buffers: Sequence[bytes],
    facts: CellFacts,
    *,
    request_id: str,
    nonce: str,
) -> Invocation:
    """Return the invocation that gives a comm message to the session, and commits."""
    msg = CellMessage(
        header=_clean_header(header),
        content={name: content[name] for name in COMM_FIELDS if name in content},
        metadata=dict(metadata),
        buffers=tuple(base64.b64encode(part).decode("ascii") for part in buffers),
    )
    return replace(_invocation(msg, facts, request_id=request_id, nonce=nonce), kind="comm")


def limits_for(
    *,
    timeout_s: float,
    memory_bytes: int,
    output_bytes: int,
    snapshot_bytes: int,
    input_timeout_s: float,
    commit_grace_s: float | None = None,
) -> Limits:
    """Return the limits of a cell; by default with a commit grace that its timeout can afford."""
    if commit_grace_s is None:
        commit_grace_s = min(LONGEST_COMMIT_GRACE_S, timeout_s * COMMIT_GRACE_SHARE)
    return Limits(
        timeout_s=timeout_s,
        commit_grace_s=commit_grace_s,
        output_bytes=output_bytes,
        snapshot_bytes=snapshot_bytes,
        memory_bytes=memory_bytes,
        input_timeout_s=input_timeout_s,
    )


def _invocation(msg: CellMessage, facts: CellFacts, *, request_id: str, nonce: str) -> Invocation:
    return Invocation(
        request_id=request_id,
        kernel_id=facts.kernel_id,
        epoch=facts.epoch,
        seq=facts.seq,
        parent_head=facts.head,
        parent_kernel_id=facts.head_kernel_id,
        manifest=facts.manifest,
        scope=facts.scope,
        workspace=facts.workspace,
        projects=facts.projects,
        run=facts.run,
        workdir_name=facts.workdir_name,
        msg=msg,
        execution_count=facts.execution_count,
        limits=facts.limits,
        write_prefix=facts.write_prefix,
        seeds=dict(facts.seeds),
        pinned=facts.pinned,
        nonce=nonce,
    )


def _clean_header(header: Mapping[str, Any]) -> dict[str, Any]:
    # The child shows these to user code and to other clients: text only, no lone surrogates.
    return {
        name: value.encode("utf-8", "replace").decode()
        for name in HEADER_FIELDS
        if isinstance(value := header.get(name), str)
    }
