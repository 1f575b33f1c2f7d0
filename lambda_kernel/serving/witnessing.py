"""What this process says of an invocation for the audit trail, and the lists it refers to."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from lambda_kernel.contract.commit import CommittedFile
from lambda_kernel.contract.witness import (
    FileList,
    FileRow,
    Witness,
    file_list_bytes,
    file_list_of,
)
from lambda_kernel.serving import storing
from lambda_kernel.serving.governed import GOVERNED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lambda_kernel.serving.line import Cell

LISTED_FILES = 200
"""A commit with more files is not opened by the gateway for their names."""


class Inputs:
    """The files that a cell found.

    Args:
        cell: whose working directory is there.
    """

    def __init__(self, cell: Cell) -> None:
        found = storing.committed_files(
            cell.plan, cell.mirrored.tree, cell.mirrored, storing.Stored()
        )
        rows, versions = _rows(found), cell.mirrored.versions
        rows += [
            (_governed_key(cell, path), versions.get(path), state.digest, state.size_bytes)
            for path, state in cell.mirrored.governed.items()
        ]
        stored = file_list_bytes(rows)
        self.listed: FileList = file_list_of(stored, len(rows))
        before = () if cell.parent is None else cell.parent.files
        self.as_committed = cell.parent is not None and sorted(rows) == sorted(_rows(before))
        self.stored = stored


def inputs_of(cell: Cell) -> Inputs | None:
    """Return the files that a cell found, None where they were not brought in."""
    if cell.inputs is None and cell.has_inputs:
        cell.inputs = Inputs(cell)
    return cell.inputs


def witness_of(cell: Cell) -> Witness | None:
    """Return what was seen of a cell, None of a question, which the trail does not hold."""
    if not cell.invocation.commit:
        return None
    container, inputs, leaves = cell.container, inputs_of(cell), _leaves(cell)
    return Witness(
        begun_ms=cell.begun_ms,
        ended_ms=int(container.wall_clock() * 1000),
        container=replace(container.facts, function_arn=cell.event.function_arn),
        credentials_expire=cell.credentials_expire,
        connectors=cell.connectors.ids,
        secret=cell.connectors.secret,
        inputs=None if inputs is None else inputs.listed,
        inputs_as_committed=inputs is not None and inputs.as_committed,
        leaves=None if leaves is None else file_list_of(leaves, len(cell.files)),
        home=cell.home_head,
    )


def attachments(cell: Cell) -> list[bytes]:
    """Return the lists that a cell's witness or its commit refers to and nobody may have yet."""
    if not cell.invocation.commit:
        return []
    riding = [cell.container.packages.stored]
    inputs, leaves = inputs_of(cell), _leaves(cell)
    # What another kernel's cell committed stands beside that kernel's journal.
    is_fork = cell.invocation.parent_kernel_id is not None
    if inputs is not None and (is_fork or not inputs.as_committed):
        riding.append(inputs.stored)
    if leaves is not None and (inputs is None or leaves != inputs.stored):
        riding.append(leaves)
    return riding


def _leaves(cell: Cell) -> bytes | None:
    if len(cell.files) <= LISTED_FILES:
        return None
    inputs = inputs_of(cell)
    if inputs is not None and not cell.stored.changes and not cell.mirrored.governed:
        return inputs.stored
    return file_list_bytes(_rows(cell.files))


def _governed_key(cell: Cell, path: str) -> str:
    return f"{cell.plan.governed}{path.removeprefix(f'{GOVERNED}/')}"


def _rows(files: Iterable[CommittedFile]) -> list[FileRow]:
    return [(each.key, each.version_id, each.digest, each.size_bytes) for each in files]
