"""A cell as it was recorded and as it was replayed. Pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kernel_gateway.audit.answers import Answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Execution:
    """One execution of a cell.

    Attributes:
        status: ``ok``, ``error`` or ``lost``.
        ename: the exception or failure it ended with, None for none.
        outputs: nbformat 4.5 outputs in order, large ones brought in; as the child says.
        files: SHA-256 (hex) of each file it created or modified, None for one it deleted, by path
            in the workspace.
        state: digest of each variable that it made or changed, by name; None = not known.
        duration_s: from start to end, None = not known.
        answers: what its user answered it.
    """

    status: str
    ename: str | None = None
    outputs: tuple[dict[str, Any], ...] = ()
    files: Mapping[str, str | None] = field(default_factory=dict)
    state: Mapping[str, str] | None = None
    duration_s: float | None = None
    answers: tuple[Answer, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CellPair:
    """A recorded cell and its replay.

    Attributes:
        number: its place among the trail's cells, from 1.
        cell_id: the front end's id, None where it gave none.
        execution_count: the number that it showed.
        source: its code.
        tags: of the notebook's cell; `nbval`'s are honoured.
        recorded: the execution in the trail; None where the cell never ended.
        replayed: the execution now; None where it was not run.
        reason: why it was not run; ``""`` where it was. One of ``unavailable: <what is missing>``,
            ``not-replayable: <why>``, ``skipped: <why>``.
        missing: why files that the cell found when it was recorded were not there now, by path.
        withheld: ids of connectors whose values it could read when it was recorded, and not now.
        after: the number of the first cell before it, in the same session, that missed files.
    """

    number: int
    cell_id: str | None
    execution_count: int
    source: str
    tags: tuple[str, ...] = ()
    recorded: Execution | None
    replayed: Execution | None
    reason: str = ""
    missing: Mapping[str, str] = field(default_factory=dict)
    withheld: tuple[str, ...] = ()
    after: int | None = None
