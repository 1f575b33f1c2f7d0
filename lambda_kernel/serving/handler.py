"""One invocation as a straight line: narrow, rehydrate, run, persist; then the outcome."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING

from lambda_kernel.contract import frames
from lambda_kernel.contract.frames import FrameKind, FrameWriter
from lambda_kernel.contract.invocation import INLINE_MANIFEST_BYTES, Invocation
from lambda_kernel.contract.outcome import Outcome, Status
from lambda_kernel.serving import events, leftovers
from lambda_kernel.serving.committing import abandon, persist
from lambda_kernel.serving.errors import CellEnded, CredentialsExpired, InvalidRequest, ProbeFailed
from lambda_kernel.serving.line import ByteStream, Cell
from lambda_kernel.serving.mirror import MirrorPlan
from lambda_kernel.serving.runtime_api import Event
from lambda_kernel.serving.steps import narrow, rehydrate, run
from lambda_kernel.serving.witnessing import attachments

if TYPE_CHECKING:
    from lambda_kernel.serving.container import Container

logger = logging.getLogger(__name__)

WORKSPACE_SHARE = 0.9
"""Of the ephemeral storage; the rest is for HOME and what is on its way."""


def handle(event: Event, response: ByteStream, container: Container) -> bool:
    """Run one invocation and stream its frames; False where the container is spent.

    Raises:
        InvalidField: not even the keys of the answer's frames can be made of the event.
    """
    begun = container.clock()
    container.count.reset()
    container.use(container.execution_role)
    try:
        invocation = events.read(event.body, container.store, container.settings.stack)
    except InvalidRequest as error:
        events.refuse(event, response, container.frame_key, str(error))
        return True
    cell = _cell(event, response, container, invocation, begun)
    outcome = _follow_the_line(cell)
    is_whole = outcome.status in (Status.OK, Status.ERROR) and not cell.answered
    if is_whole and cell.end is not None:
        cell.send_reply(cell.end.reply)
    # A small commit rides along: the gateway need not read it back for the next cell.
    small = len(cell.commit) <= INLINE_MANIFEST_BYTES
    riding = [cell.commit] if outcome.committed and small else []
    riding += attachments(cell)
    response.send(cell.writer.write(FrameKind.OUTCOME, outcome.to_dict(), riding))
    if not cell.tainted:
        container.zygotes.prepare()
    logger.info(
        "invocation",
        extra={"aws_request_id": event.aws_request_id, "status": outcome.status.value}
        | {f"{name}_ms": took for name, took in cell.timings_ms.items()},
    )
    return not (cell.tainted or cell.spent)


def _cell(
    event: Event, response: ByteStream, container: Container, invocation: Invocation, begun: float
) -> Cell:
    limits = invocation.limits
    left_s = limits.timeout_s
    if event.deadline_ms:
        left_s = min(left_s, event.deadline_ms / 1000 - container.wall_clock())
    key = frames.invocation_key(container.frame_key, invocation.request_id, invocation.nonce)
    return Cell(
        container=container,
        invocation=invocation,
        event=event,
        begun=begun,
        begun_ms=int(container.wall_clock() * 1000),
        deadline=begun + left_s - limits.commit_grace_s,
        writer=FrameWriter(key),
        key=key,
        response=response,
        plan=_plan(container, invocation),
    )


def _plan(container: Container, invocation: Invocation) -> MirrorPlan:
    settings = container.settings
    tags: dict[str, str] = {}
    if invocation.run is not None:
        tags = {"run": invocation.run, "kernel": invocation.kernel_id}
        if invocation.scope.agent is not None:
            tags["agent"] = invocation.scope.agent
    return MirrorPlan(
        bucket=settings.stack.workspaces,
        root=invocation.write_prefix,
        source=None if invocation.pinned is None else invocation.pinned.inputs,
        projects=invocation.projects,
        governed=settings.stack.governed_read_prefix,
        tags=tags,
        cell=leftovers.stamp(invocation),
        workdir=invocation.workdir,
        max_bytes=int(settings.ephemeral_bytes * WORKSPACE_SHARE),
    )


def _follow_the_line(cell: Cell) -> Outcome:
    status, message = Status.PROCESS_DIED, ""
    try:
        _check_probe(cell)
        cell.container.zygotes.prepare()
        with cell.step("narrow"):
            narrow(cell)
        with cell.step("rehydrate"):
            rehydrate(cell)
        with cell.step("run"):
            run(cell)
        with cell.step("persist"):
            persist(cell)
        status, message = cell.reply_status, cell.message
    except CellEnded as ended:
        cell.spent = isinstance(ended, CredentialsExpired)
        status, message = ended.status, str(ended)
        with cell.step("persist"):
            message += abandon(cell, ended)
    except BaseException:
        abandon(cell)
        raise
    finally:
        _close(cell)
    return cell.outcome(status, message)


def _check_probe(cell: Cell) -> None:
    shortfall = cell.container.shortfall
    if shortfall is not None:
        raise ProbeFailed(shortfall)


def _close(cell: Cell) -> None:
    # What was narrowed for this invocation is not used for anything else.
    cell.container.use(None)
    if cell.session is not None:
        cell.session.close()
    if cell.snapshot_out >= 0:
        os.close(cell.snapshot_out)
