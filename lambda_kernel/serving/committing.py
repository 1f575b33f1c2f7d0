"""The step after user code: sweep, store what changed, commit, leave nothing; or undo."""

from __future__ import annotations

import logging
import os

from lambda_kernel.contract import keys
from lambda_kernel.contract.commit import Commit, digest_of
from lambda_kernel.contract.invocation import Head
from lambda_kernel.contract.schema import InvalidField
from lambda_kernel.contract.snapshot_report import SnapshotReport
from lambda_kernel.serving import child_messages, leftovers, manifest, storing, trees, unsaved
from lambda_kernel.serving.child_messages import ChildMessage
from lambda_kernel.serving.errors import (
    CellEnded,
    CellProcessDied,
    CommitConflict,
    PayloadTooLarge,
    PreconditionFailed,
    StorageUnavailable,
)
from lambda_kernel.serving.homes import HomeTooLarge
from lambda_kernel.serving.line import Cell
from lambda_kernel.serving.manifest import Tree
from lambda_kernel.serving.reports import Draft, drafts_of
from lambda_kernel.serving.segments import NotSealable, Segment, StillWritten, seal
from lambda_kernel.serving.standing import Standing

logger = logging.getLogger(__name__)

MAX_REPLY_BYTES = 16 * 1024 * 1024


def persist(cell: Cell) -> None:
    """Step 8: sweep; store what changed; commit; remove what is left.

    Raises:
        CellEnded: the cell did not commit.
    """
    container = cell.container
    _sweep(cell)
    if not cell.invocation.commit or cell.end is None or cell.end.snapshot is None:
        container.homes.distrust(cell.invocation.scope)
        _clean(cell)
        return
    _check_reply(cell.end.reply)
    saving = container.pool.start(_save_home, cell)
    try:
        drafts = _drafts(cell, cell.end.snapshot)
        after, notices = storing.scan(cell.plan, cell.mirrored, container.cache)
        for notice in notices:
            cell.output.notice(f"[workspace] {notice}")
        _save_variables(cell, drafts)
        _upload_changes(cell, after)
    finally:
        container.pool.wait(saving)
    if cell.message:
        cell.output.notice(f"[home] {cell.message}")
    cleaning = container.pool.start(_clean, cell)
    try:
        _commit(cell, after)
    finally:
        container.pool.wait(cleaning)
    if cell.announced:
        _withdraw(cell)
    _publish_home(cell)


def leftovers_of(cell: Cell) -> leftovers.Session:
    """Return where what lost cells had stored is looked for."""
    stack = cell.container.settings.stack
    return leftovers.Session(
        store=cell.container.store,
        workspaces=stack.workspaces,
        state=stack.state,
        invocation=cell.invocation,
        parent=cell.parent,
        tags=cell.plan.tags,
    )


def _withdraw(cell: Cell) -> None:
    try:
        leftovers.withdraw(leftovers_of(cell))
    except StorageUnavailable:
        # Nobody reads it any more: the commit is above it.
        logger.warning("a list of deletions could not be removed", exc_info=True)


def _sweep(cell: Cell) -> None:
    container = cell.container
    clean = container.sweeper.sweep_processes()
    container.zygotes.verify()
    # Our own limits cannot be raised again once they were lowered.
    if not clean or Standing.of(os.getpid()) != container.standing:
        cell.tainted = True
    container.cache.cell_ran()


def _drafts(cell: Cell, report: SnapshotReport) -> list[Draft]:
    """Return the objects that the child leaves; nobody can change what it wrote any more."""
    try:
        drafts = drafts_of(report, cell.namespace, cell.invocation.limits.snapshot_bytes)
        seal(cell.snapshot_out, report.size_bytes)
    except StillWritten as error:
        cell.tainted = True
        raise CellProcessDied("a process of the cell survived its end") from error
    except (InvalidField, NotSealable) as error:
        raise CellProcessDied(f"what the cell's process left makes no sense: {error}") from error
    return drafts


def _save_variables(cell: Cell, drafts: list[Draft]) -> None:
    assert cell.end is not None  # noqa: S101
    assert cell.end.snapshot is not None  # noqa: S101
    written, cell.snapshot_out = Segment(cell.snapshot_out), -1
    pinned = cell.invocation.pinned
    try:
        cell.saved = cell.container.snapshots.save(
            cell.invocation.scope,
            written,
            drafts,
            cell.end.snapshot.index,
            cell.namespace,
            {} if pinned is None else pinned.chunks,
        )
    finally:
        written.release()


def _upload_changes(cell: Cell, after: Tree) -> None:
    container = cell.container
    changes = cell.changes = manifest.difference(cell.mirrored.tree, after)
    gone = [*changes.deletions, *(f"{path}/" for path in changes.removed_folders)]
    if gone:
        versions = cell.mirrored.versions
        leftovers.announce(leftovers_of(cell), {path: versions.get(path) for path in gone})
        cell.announced = True
    if changes.count:
        storing.store_changes(
            container.store,
            cell.plan,
            cell.mirrored,
            changes,
            container.cache,
            container.pool,
            cell.stored,
        )
        for notice in cell.stored.notices:
            cell.output.notice(f"[workspace] {notice}")


def _save_home(cell: Cell) -> None:
    try:
        cell.saved_home = cell.container.homes.save(cell.invocation.scope)
    except HomeTooLarge as problem:
        cell.message = str(problem)


def _commit(cell: Cell, after: Tree) -> None:
    invocation, container = cell.invocation, cell.container
    assert cell.end is not None  # noqa: S101
    assert cell.saved is not None  # noqa: S101
    files = cell.files = storing.committed_files(cell.plan, after, cell.mirrored, cell.stored)
    outcome = cell.outcome(cell.reply_status)
    commit = Commit(
        kernel_id=invocation.kernel_id,
        scope_hash=invocation.scope.hash,
        seq=invocation.seq,
        parent=invocation.parent_head,
        parent_kernel_id=invocation.parent_kernel_id,
        request_id=invocation.request_id,
        execution_count=invocation.execution_count,
        files=files,
        home_head=outcome.home_head,
        namespace=cell.saved.namespace,
        outcome=outcome,
        reply=cell.end.reply.to_dict(),
    )
    body = cell.commit = commit.to_bytes()
    key = keys.commit_key(invocation.scope, invocation.kernel_id, invocation.seq)
    bucket = container.settings.stack.state
    try:
        container.store.put(bucket, key, body, if_absent=True)
    except PreconditionFailed as error:
        # A PUT that was sent again after its answer was lost meets itself.
        if container.store.get(bucket, key) != body:
            raise CommitConflict(
                f"another writer has committed under number {invocation.seq}: this cell is lost"
            ) from error
    cell.head = Head(seq=invocation.seq, digest=digest_of(body))


def _publish_home(cell: Cell) -> None:
    if cell.saved_home is None:
        return
    try:
        for notice in cell.container.homes.publish(cell.invocation.scope, cell.saved_home):
            cell.output.notice(f"[home] {notice}")
    except StorageUnavailable:
        # The commit names it: the next cell of this kernel brings it in.
        logger.warning("the head of a HOME could not be written", exc_info=True)


def abandon(cell: Cell, ended: CellEnded | None = None) -> str:
    """Leave the session as it was: undo stored files, drop HOME; return what to tell of it."""
    container = cell.container
    if cell.ran:
        _sweep(cell)
    told = unsaved.told(cell, ended) if ended is not None else ""
    if cell.stored.changes:
        left = storing.roll_back(
            container.store, cell.plan, cell.mirrored, cell.stored, container.pool
        )
        versions = ", ".join(f"{c.path} ({c.version_id})" for c in cell.stored.changes)
        told += f"; stored before that, not part of the session, kept as versions: {versions}"
        if left:
            told += f"; still visible in the workspace: {', '.join(left)}"
    cell.saved_home = None
    if cell.ran:
        container.homes.distrust(cell.invocation.scope)
    _clean(cell)
    return told


def _clean(cell: Cell) -> None:
    """Remove everything on disk but HOMEs that may stay."""
    container = cell.container
    if not cell.invocation.scope.home_is_kept:
        container.homes.discard(cell.invocation.scope)
    try:
        trees.remove(cell.plan.workdir)
    except OSError:
        logger.warning("a working directory cannot be removed")
        cell.tainted = True
    if not container.sweeper.sweep_files(container.homes.on_disk):
        cell.tainted = True
    container.cache.settle()


def _check_reply(reply: ChildMessage) -> None:
    size = child_messages.size_of(reply.content)
    if size > MAX_REPLY_BYTES:
        raise PayloadTooLarge(
            f"the reply of the cell measures {size / 1e6:.1f} MB, "
            f"the limit is {MAX_REPLY_BYTES / 1e6:.1f} MB"
        )
