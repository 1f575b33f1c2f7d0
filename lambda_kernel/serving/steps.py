"""The steps before and while user code runs: narrow, rehydrate, run."""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import closing
from typing import Any

from lambda_kernel.contract.cell_protocol import CellLimits, CellRequest
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.session_policy import duration_s, session_policy
from lambda_kernel.serving import homes, leftovers, mirror, trees
from lambda_kernel.serving.cells import CellRun, ZygoteGone
from lambda_kernel.serving.child_messages import CellEnd
from lambda_kernel.serving.committing import leftovers_of
from lambda_kernel.serving.control import ControlWatch
from lambda_kernel.serving.errors import CellProcessDied, CellTimeout, InvalidRequest
from lambda_kernel.serving.limits import CellLimitsInForce
from lambda_kernel.serving.line import Cell
from lambda_kernel.serving.paging import Pager


def narrow(cell: Cell) -> None:
    """Step 5: credentials for this invocation alone.

    Raises:
        StorageUnavailable: STS refused or did not answer.
        InvalidRequest: the policy would be too long.
    """
    invocation, container = cell.invocation, cell.container
    try:
        policy = session_policy(invocation, container.settings.stack)
    except InvalidField as error:
        raise InvalidRequest(str(error)) from error
    credentials = container.assumer.assume(
        invocation.role_session_name, policy, duration_s(invocation.limits.timeout_s)
    )
    cell.credentials_expire = credentials.expires
    container.use(credentials)


def rehydrate(cell: Cell) -> None:
    """Step 6: working directory, HOME and variables, as the last commit left them.

    Raises:
        CellEnded: something cannot be brought in.
    """
    invocation, container = cell.invocation, cell.container
    secret = container.pool.start(container.connectors.values, invocation)
    try:
        _bring_in(cell)
    finally:
        # Also where something else is missing: no request outlives the session it was made for.
        values = container.pool.wait(secret)
    cell.use_connectors(values)


def _bring_in(cell: Cell) -> None:
    invocation, container = cell.invocation, cell.container
    scope, pool = invocation.scope, container.pool
    container.cache.claim(scope.user)
    # Another scope's HOME is put away while S3 is asked.
    clearing = pool.start(container.homes.clear_others, scope)
    listing = pool.start(
        mirror.list_stored, container.store, cell.plan, pool, container.cache.bounds
    )
    head = pool.start(container.homes.fetch_head, scope)
    waiting: list[Future[Any]] = [listing, head, clearing]
    try:
        cell.parent = container.snapshots.parent(invocation)
        pinned = invocation.pinned
        source = None if pinned is None else pinned.scope
        cell.session = container.snapshots.open(scope, cell.namespace, source)
    finally:
        listed, home_head, _ = pool.wait_all(waiting)
    committed = None if cell.parent is None else cell.parent.home_head
    if invocation.parent_kernel_id is not None:
        # A fork begins with the HOME of today, which may be long after that commit.
        committed = None
    container.homes.make_room(listed.size_bytes)
    restoring = pool.start(container.homes.restore, scope, home_head, committed)
    try:
        trees.make_folder(cell.plan.workdir)
        cell.mirrored = mirror.mirror_in(
            container.store,
            cell.plan,
            listed,
            container.cache,
            pool,
            lambda stamps: _undo(cell, stamps),
        )
    finally:
        cell.home = pool.wait(restoring)
    cell.has_inputs = True
    cell.home_head = container.homes.saved_digest(scope)
    container.cache.settle()


def _undo(cell: Cell, stamps: Mapping[str, str]) -> list[str]:
    if not cell.invocation.commit:
        # A cell of the same kernel may run beside a question: what it has stored is not lost yet.
        return []
    return leftovers.undo(leftovers_of(cell), stamps)


def run(cell: Cell) -> None:
    """Step 7: one child of a zygote; what it says streams to the client.

    Raises:
        CellEnded: it did not reply.
    """
    container, invocation = cell.container, cell.invocation
    cell.snapshot_out = os.memfd_create("snapshot-out", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    for notice in cell.mirrored.notices:
        cell.output.notice(f"[workspace] {notice}")
    for notice in cell.connectors.notices:
        cell.output.notice(f"[connectors] {notice}")
    shadowed = container.shadowable.intersection(homes.user_site_names(cell.home))
    overflow = container.settings.stack.overflow
    watch = ControlWatch(container.store, overflow, invocation.request_id, cell.key)
    cell.ran = True
    with watch.start(container.pool), closing(cell.output):
        limits = CellLimitsInForce(
            deadline=cell.deadline,
            kill_by=cell.deadline + invocation.limits.commit_grace_s / 2,
            timeout_s=invocation.limits.timeout_s - invocation.limits.commit_grace_s,
            memory_bytes=min(invocation.limits.memory_bytes, container.settings.memory_bytes),
            orders=watch.orders,
        )
        try:
            cell.end = _run_once(cell, limits, bare=bool(shadowed))
        except ZygoteGone:
            # Nothing of the user has run: this is no second execution.
            container.sweeper.sweep_processes()
            try:
                cell.end = _run_once(cell, limits, bare=bool(shadowed))
            except ZygoteGone as error:
                raise CellProcessDied("no process could be started for the cell") from error


def _run_once(cell: Cell, limits: CellLimitsInForce, *, bare: bool) -> CellEnd:
    container = cell.container
    if container.clock() >= limits.deadline:
        raise CellTimeout("the time was over before the cell could begin")
    zygote = container.zygotes.get(bare=bare)
    assert cell.session is not None  # noqa: S101
    pager = Pager(cell.session, container.pool)
    running = CellRun(
        zygote,
        container.sweeper,
        cell.output,
        limits,
        cell.send_started,
        cell.send_answer,
        pager,
        container.clock,
    )
    try:
        end = running.run(_request(cell), cell.session.snapshot_in, cell.snapshot_out)
        return end.masked(cell.masker)
    finally:
        cell.peak_memory_bytes = running.peak_memory_bytes
        if running.zygote_lost:
            container.zygotes.replace(zygote)


def _request(cell: Cell) -> CellRequest:
    invocation = cell.invocation
    return CellRequest(
        kind=invocation.kind,
        msg=invocation.msg,
        execution_count=invocation.execution_count,
        workdir=cell.plan.workdir,
        home=cell.home,
        environment={
            "LKG_CONTAINER_ID": cell.container.settings.container_id,
            "LKG_REQUEST_ID": invocation.request_id,
            **cell.connectors.variables,
        },
        seeds=invocation.seeds,
        limits=CellLimits(
            snapshot_bytes=invocation.limits.snapshot_bytes,
            input_timeout_s=invocation.limits.input_timeout_s,
        ),
    )
