"""What the journal says of a cell beside request and outputs, from what is at hand; asks nobody."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernel_gateway.audit.facts import (
    Credentials,
    EndFacts,
    HandlerFacts,
    Owner,
    RunsIn,
    Session,
    StartFacts,
    Workspace,
)
from kernel_gateway.dispatch.settle import Settled
from kernel_gateway.environments.environment import Environment
from kernel_gateway.errors import Started
from kernel_gateway.kernels.record import KernelRecord
from kernel_gateway.messaging.message import InMessage
from lambda_kernel.contract.commit import Commit
from lambda_kernel.contract.invocation import Invocation
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.session_policy import duration_s, session_policy

if TYPE_CHECKING:
    from kernel_gateway.kernels.services import KernelServices

LISTED_FILES = 200
"""Of a workspace with more, the entry names the commit only."""
READ_BYTES = 128 * 1024
"""A larger commit is not opened for its list of files: the event loop would wait."""


def start_facts(
    record: KernelRecord,
    environment: Environment,
    services: KernelServices,
    invocation: Invocation,
    request: InMessage,
) -> StartFacts:
    """Return what the gateway knows of a cell that it is about to send."""
    stack = services.stack
    code = request.content.get("code")
    is_cell = request.msg_type == "execute_request" and isinstance(code, str)
    return StartFacts(
        session=_session(record),
        caller=request.caller,
        source_digest=_digest(str(code)) if is_cell else None,
        environment=RunsIn(
            id=environment.id,
            function=stack.function_name(environment.id),
            handler_digest=services.dispatcher.handler_digest,
            python=services.python_of(environment),
            memory_mb=environment.memory_mb,
            tier=environment.tier,
        ),
        credentials=_credentials(invocation, stack),
        seeds=invocation.seeds,
        idempotency=request.idempotency,
    )


def end_facts(settled: Settled, timings_ms: Mapping[str, float]) -> EndFacts:
    """Return what the gateway knows of a cell that has ended."""
    trouble = settled.trouble
    return EndFacts(
        code_started=str(trouble.started if trouble is not None else Started.YES),
        timings_ms=dict(timings_ms),
    )


def handler_facts(settled: Settled) -> HandlerFacts | None:
    """Return what the serving process said of a cell, None where nothing is known of it."""
    outcome = settled.outcome
    if outcome is None:
        return None
    return HandlerFacts(
        status=str(outcome.status),
        files=outcome.files,
        workspace=_workspace(settled.stored),
        home_head=outcome.home_head,
        lost=outcome.lost,
        probe=outcome.probe,
        timings_ms=outcome.timings_ms,
        peak_memory_bytes=outcome.peak_memory_bytes,
        container_id=outcome.container_id,
        aws_request_id=outcome.aws_request_id,
        message=outcome.message,
    )


def _session(record: KernelRecord) -> Session:
    options, origin = record.options, record.origin
    return Session(
        owner=Owner(user=record.owner.user, agent=record.owner.agent),
        spec_name=record.spec_name,
        workspace=options.workspace,
        projects=options.projects,
        run=options.run,
        scope=options.scope,
        created=record.created,
        restarts=record.restarts,
        forked_from=None if origin is None else origin.kernel_id,
        forked_at=None if origin is None else origin.head,
        prefix=options.prefix(record.owner),
        workdir_name=record.workdir_name,
        derived_from=None if options.replay is None else options.replay.derived_from,
    )


def _credentials(invocation: Invocation, stack: Stack) -> Credentials:
    agent = invocation.scope.agent
    return Credentials(
        role_arn=stack.role_arn(stack.scoped_role),
        role_session_name=invocation.role_session_name,
        policy_digest=_digest(session_policy(invocation, stack)),
        duration_s=duration_s(invocation.limits.timeout_s),
        connector_secret=None if agent is None else stack.connector_secret(agent),
        connectors=invocation.connectors,
    )


def _workspace(stored: bytes | None) -> Workspace | None:
    if stored is None or len(stored) > READ_BYTES:
        return None
    try:
        files = Commit.from_bytes(stored).files
    except InvalidField:
        return None
    return Workspace(count=len(files), files=files if len(files) <= LISTED_FILES else ())


def _digest(text: str) -> str:
    # What cannot be sent as it is, is refused before; a lone surrogate must not end this.
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
