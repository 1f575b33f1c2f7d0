"""What a replay gave, as a value, and the folder that it is written to.

``report.json`` is for programs, ``report.html`` for people, ``replay.ipynb`` has the replayed
outputs with each cell's verdict.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nbformat

from kernel_gateway.replay.cells import CellPair
from kernel_gateway.replay.report_html import html_page
from kernel_gateway.replay.report_json import report_json
from kernel_gateway.replay.report_notebook import notebook_of
from kernel_gateway.replay.rules import Rules
from kernel_gateway.replay.verdicts import Standing, Verdict
from kernel_gateway.whole_files import write_together


@dataclass(frozen=True, slots=True, kw_only=True)
class TrailIdentity:
    """The trail that was replayed.

    Attributes:
        kernel_id: whose journal it is.
        head: digest of its last entry.
        entries: how many it has.
        user, agent: whose kernel it was.
        environment: id of the environment.
        verified: what its verification said, in a few words; ``""`` = it was not asked.
        keys: ids of the trusted keys that signed it; none = nobody has.
    """

    kernel_id: str
    head: str
    entries: int
    user: str
    agent: str | None = None
    environment: str = ""
    verified: str = ""
    keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCell:
    """A cell and what the comparison says of it."""

    pair: CellPair
    verdict: Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a replay gave.

    Attributes:
        replay_id: of this replay.
        trail: what was replayed.
        mode: ``sequential`` or ``pinned``.
        replayer: who replayed it.
        started, finished: ISO 8601, UTC.
        cells: in the order of the trail.
        network: what the cells might reach.
        parameters: what was set anew, by name.
        rules: which were applied.
        notes: what else a reader should know, a sentence each.
    """

    replay_id: str
    trail: TrailIdentity
    mode: str
    replayer: str
    started: str
    finished: str
    cells: tuple[ComparedCell, ...]
    network: str = "none"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    rules: Rules
    notes: tuple[str, ...] = ()

    @property
    def counts(self) -> dict[Standing, int]:
        """Return how many cells there are of each standing, in the order of the ladder."""
        found = Counter(cell.verdict.standing for cell in self.cells)
        return {standing: found[standing] for standing in Standing if found[standing]}


def write(folder: Path, report: Report) -> None:
    """Write ``report.json``, ``report.html`` and ``replay.ipynb`` into a folder, made if need be.

    An older report stays as it is until all of this one is written.

    Raises:
        ConfigError: they cannot be written.
    """
    texts = {
        "report.json": json.dumps(report_json(report), indent=2),
        "report.html": html_page(report),
        "replay.ipynb": nbformat.writes(notebook_of(report)),
    }
    write_together(folder, {name: text.encode("utf-8") for name, text in texts.items()})
