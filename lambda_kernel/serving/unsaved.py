"""What a cell changed that could not be committed, in words."""

from __future__ import annotations

import logging

from lambda_kernel.contract import snapshot_report
from lambda_kernel.serving import manifest, storing
from lambda_kernel.serving.errors import (
    CellEnded,
    PayloadTooLarge,
    SnapshotTooLarge,
    StorageUnavailable,
)
from lambda_kernel.serving.line import Cell

logger = logging.getLogger(__name__)

_AT_THE_COMMIT = (StorageUnavailable, SnapshotTooLarge, PayloadTooLarge)


def told(cell: Cell, ended: CellEnded) -> str:
    """Return which changes of a cell that ran to its end are not stored; empty where none were.

    Nothing of the cell may run any more.
    """
    if not cell.started or not cell.invocation.commit or not isinstance(ended, _AT_THE_COMMIT):
        return ""
    parts = []
    if cell.end is not None and cell.end.snapshot is not None:
        parts.append(f"variables: {snapshot_report.summary(cell.end.snapshot.changed)}")
    files = _files(cell)
    if files is not None:
        parts.append(f"files: {snapshot_report.summary(files)}")
    return f"; what it changed: {'; '.join(parts)}" if parts else ""


def _files(cell: Cell) -> dict[str, str] | None:
    changes = cell.changes
    if changes is None:
        try:
            after, _ = storing.scan(cell.plan, cell.mirrored, cell.container.cache)
        except (CellEnded, OSError):
            logger.warning("what a cell did to files cannot be told", exc_info=True)
            return None
        changes = manifest.difference(cell.mirrored.tree, after)
    files: dict[str, str] = {upload.path: upload.change for upload in changes.uploads}
    return files | dict.fromkeys(changes.deletions, "deleted")
