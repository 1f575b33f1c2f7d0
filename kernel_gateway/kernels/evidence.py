"""What the journal says of a cell beside request and outputs, from what is at hand; asks nobody."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING

from kernel_gateway.audit.events import SessionOpened
from kernel_gateway.audit.facts import (
    Credentials,
    EndFacts,
    HandlerFacts,
    Inputs,
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
from lambda_kernel.contract.commit import Commit, CommittedFile
from lambda_kernel.contract.invocation import Invocation
from lambda_kernel.contract.keys import Stack
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.session_policy import duration_s, session_policy
from lambda_kernel.contract.witness import Witness

if TYPE_CHECKING:
    from kernel_gateway.kernels.services import KernelServices

VERSION = metadata.version("lambda-kernel-gateway")
REQUEST_ID = "{request_id}"
"""Stands in the stored text of a policy for the one thing that is another for each cell."""

Keep = Callable[[bytes], str]
KeepList = Callable[[str, bytes | None], str | None]

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
    keep = partial(services.recorder.keep, record.kernel_id)
    return StartFacts(
        session=_session(record),
        caller=request.caller,
        source_digest=_digest(str(code)) if is_cell else None,
        environment=runs_in(environment, services),
        credentials=_credentials(invocation, stack, keep),
        seeds=invocation.seeds,
        gateway_version=VERSION,
        idempotency=request.idempotency,
        queued_ms=round((time.monotonic() - request.received_s) * 1000),
    )


def opening(
    record: KernelRecord, environment: Environment, services: KernelServices
) -> SessionOpened | None:
    """Return what says who started a kernel, None where nobody knows."""
    if record.opened_by is None:
        return None
    return SessionOpened(
        session=_session(record),
        environment=runs_in(environment, services),
        actor=record.opened_by,
        gateway_version=VERSION,
    )


def runs_in(environment: Environment, services: KernelServices) -> RunsIn:
    """Return where the cells of an environment run."""
    return RunsIn(
        id=environment.id,
        function=services.stack.function_name(environment.id),
        handler_digest=services.dispatcher.handler_digest,
        python=services.python_of(environment),
        memory_mb=environment.memory_mb,
        tier=environment.tier,
    )


def end_facts(settled: Settled, timings_ms: Mapping[str, float]) -> EndFacts:
    """Return what the gateway knows of a cell that has ended."""
    trouble = settled.trouble
    return EndFacts(
        code_started=str(trouble.started if trouble is not None else Started.YES),
        timings_ms=dict(timings_ms),
    )


def handler_facts(settled: Settled, keep: Keep, keep_list: KeepList) -> HandlerFacts | None:
    """Return what the serving process said of a cell, None where nothing is known of it.

    Args:
        settled: how it ended.
        keep: stores an object beside the journal and returns its digest.
        keep_list: the same for a list of files, see `FileLists.keep`.
    """
    outcome = settled.outcome
    if outcome is None:
        return None
    witness, attached = outcome.witness, settled.attached
    packages = None if witness is None else attached.get(witness.container.packages)
    return HandlerFacts(
        status=str(outcome.status),
        files=outcome.files,
        workspace=_workspace(settled, keep_list),
        inputs=None if witness is None else _inputs(witness, attached, keep_list),
        packages=None if packages is None else keep(packages),
        witness=witness,
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


def _credentials(invocation: Invocation, stack: Stack, keep: Keep) -> Credentials:
    agent, policy = invocation.scope.agent, session_policy(invocation, stack)
    template = policy.replace(invocation.request_id, REQUEST_ID)
    return Credentials(
        role_arn=stack.role_arn(stack.scoped_role),
        role_session_name=invocation.role_session_name,
        policy_digest=_digest(policy),
        policy_template=keep(template.encode()),
        duration_s=duration_s(invocation.limits.timeout_s),
        connector_secret=None if agent is None else stack.connector_secret(agent),
        connectors=invocation.connectors,
    )


def _inputs(witness: Witness, attached: Mapping[str, bytes], keep_list: KeepList) -> Inputs | None:
    listed = witness.inputs
    if listed is None:
        return None
    body = attached.get(listed.digest)
    is_long = listed.count > LISTED_FILES
    has_blob = is_long and (body is not None or witness.inputs_as_committed)
    return Inputs(
        count=listed.count,
        digest=listed.digest,
        as_committed=witness.inputs_as_committed,
        files=_files(body) if body is not None and not is_long else (),
        blob=keep_list(listed.digest, body) if has_blob else None,
    )


def _files(body: bytes) -> tuple[CommittedFile, ...]:
    return tuple(
        CommittedFile(key=key, version_id=version_id, digest=digest, size_bytes=size_bytes)
        for key, version_id, digest, size_bytes in json.loads(body)["files"]
    )


def _workspace(settled: Settled, keep_list: KeepList) -> Workspace | None:
    witness = None if settled.outcome is None else settled.outcome.witness
    if witness is not None and witness.leaves is not None:
        leaves = witness.leaves
        body = settled.attached.get(leaves.digest)
        has_blob = body is not None or leaves == witness.inputs
        blob = keep_list(leaves.digest, body) if has_blob else None
        return Workspace(count=leaves.count, blob=blob)
    stored = settled.stored
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
