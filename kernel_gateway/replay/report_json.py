"""A report for programs; ``report.schema.json`` beside this module says what it holds."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kernel_gateway.replay.cells import Execution
from kernel_gateway.replay.verdicts import PartVerdict, Reason, Verdict

if TYPE_CHECKING:
    from kernel_gateway.replay.report import ComparedCell, Report

SCHEMA = 1


def report_json(report: Report) -> dict[str, Any]:
    """Return the report as JSON."""
    return {
        "schema": SCHEMA,
        "replay_id": report.replay_id,
        "trail": asdict(report.trail),
        "mode": report.mode,
        "replayer": report.replayer,
        "started": report.started,
        "finished": report.finished,
        "network": report.network,
        "parameters": dict(report.parameters),
        "rules": [
            {"file": name, "sha256": digest} for name, digest in report.rules.sources.items()
        ],
        "notes": list(report.notes),
        "counts": {str(standing): count for standing, count in report.counts.items()},
        "cells": [_cell(cell) for cell in report.cells],
    }


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Return a verdict as JSON."""
    return {
        "verdict": str(verdict.standing),
        "reasons": _reasons(verdict.reasons),
        "outputs": _part(verdict.outputs),
        "files": _part(verdict.files),
        "state": _part(verdict.state),
        "first_difference": None if verdict.first is None else asdict(verdict.first),
    }


def _cell(cell: ComparedCell) -> dict[str, Any]:
    pair = cell.pair
    return {
        "number": pair.number,
        "cell_id": pair.cell_id,
        "execution_count": pair.execution_count,
        "tags": list(pair.tags),
        "recorded": _execution(pair.recorded),
        "replayed": _execution(pair.replayed),
        **verdict_json(cell.verdict),
    }


def _execution(execution: Execution | None) -> dict[str, Any] | None:
    if execution is None:
        return None
    return {
        "status": execution.status,
        "ename": execution.ename,
        "duration_s": execution.duration_s,
        "outputs": len(execution.outputs),
        "files": dict(execution.files),
    }


def _part(part: PartVerdict | None) -> dict[str, Any] | None:
    if part is None:
        return None
    return {"verdict": str(part.standing), "reasons": _reasons(part.reasons)}


def _reasons(reasons: tuple[Reason, ...]) -> list[dict[str, str]]:
    return [asdict(reason) for reason in reasons]
