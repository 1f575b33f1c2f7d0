"""What ``kernel-gateway replay`` does: verify, have a gateway replay, compare, report."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from securesystemslib.signer import Key

from kernel_gateway.audit.notebook_reading import TrailFile, read_trail
from kernel_gateway.audit.verifying import TAMPERED, Report
from kernel_gateway.client.endpoint import ApiError, BadInput, Conflict, Endpoint, NoSuchThing
from kernel_gateway.errors import BadRequest
from kernel_gateway.messaging.message import utc_text
from kernel_gateway.replay import report as reports
from kernel_gateway.replay.cells import CellPair
from kernel_gateway.replay.compare import compared
from kernel_gateway.replay.parameters import value_of
from kernel_gateway.replay.report import ComparedCell, TrailIdentity
from kernel_gateway.replay.rules import Rules
from kernel_gateway.replay.verdicts import NOT_RUN, Standing, Verdict
from kernel_gateway.replay.wire import pair_from_dict
from kernel_gateway.terminal import harmless, harmless_lines
from kernel_gateway.web.progress import CellProgress
from kernel_gateway.web.rest_client import RestClient
from kernel_gateway.web.trail_command import bounded, verified_file
from kernel_gateway.web.trail_command import shown as verification_shown
from kernel_gateway.whole_files import check_folder
from lambda_kernel.contract.schema import encode

OK, DIFFERENT, COULD_NOT_RUN, NOTHING = 0, 1, 4, 5
"""Exit codes; that of a trail that was tampered with is verifying.TAMPERED."""

FAILING = {
    "different": {Standing.DIFFERENT, Standing.FIXED},
    "failed": {Standing.FAILED},
    "equivalent": {Standing.EQUIVALENT},
}
SHOWN_REASONS = 3
UNSIGNED = (
    "nobody has signed this trail, and this gateway has no journal of its kernel: anybody can have "
    "written what it says, its owner and outputs too"
)
HOW_UNSIGNED = "--unsigned runs it nevertheless, without opening any file or variable of yours"
NOT_OPENED = "Whatever owner it names, no file or variable of yours was opened for it."
UNSIGNED_HERE = (
    "WARNING: nobody has signed this trail: only the gateway's own journal, which holds the same "
    "entries, speaks for it."
)


class ReplayEnded(ApiError):
    """Nothing was run; the text says why.

    Attributes:
        exit_code: what a script is told.
    """

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


@dataclass(slots=True, kw_only=True)
class Replayed:
    """What a gateway said of a replay.

    Attributes:
        model: of the replay, see openapi.yaml.
        started, finished: ISO 8601, UTC.
        parameters: that were set.
        cells: in the order of the trail; without outputs where no report needs them.
        kernel_ids: of the kernels that ran it.
    """

    model: dict[str, Any] = field(default_factory=dict)
    started: str = ""
    finished: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    cells: list[ComparedCell] = field(default_factory=list)
    kernel_ids: list[str] = field(default_factory=list)

    @property
    def standings(self) -> list[Standing]:
        """What became of each cell."""
        return [cell.verdict.standing for cell in self.cells]


def verified(file: Path, trail: TrailFile, keys: Mapping[str, Key]) -> Report:
    """Return what the trail in a file proves.

    Raises:
        ReplayEnded: nobody should run it: it was tampered with, or is empty.
        ConfigError: what stands beside it cannot be read.
    """
    report = verified_file(file, trail, keys)
    if report.exit_code == TAMPERED:
        raise ReplayEnded(f"nothing was run: {verification_shown(report)}", TAMPERED)
    if report.kernel_id is None:
        raise ReplayEnded("the trail has no entries: there is nothing to replay", NOTHING)
    return report


def replay(
    endpoint: Endpoint, options: argparse.Namespace, report: Report, file: Path, rules: Rules
) -> Replayed:
    """Have a gateway replay a verified trail, show which cell runs, and compare.

    Args:
        endpoint: which gateway.
        options: of the command line.
        report: what was found of the trail.
        file: the trail, for a gateway that does not have its journal.
        rules: what may differ.

    Raises:
        ReplayEnded: the gateway's journal says otherwise, or nobody speaks for the trail.
        BadRequest: the request is wrong.
        ApiError: the gateway refused, or could not go on.
    """
    body = _body_of(options, report)
    keeps_outputs = options.report is not None
    warning = "" if report.key_ids else UNSIGNED_HERE
    try:
        try:
            found = _replay(endpoint, body, rules, keeps_outputs=keeps_outputs)
        except NoSuchThing:
            if not report.key_ids and not options.unsigned:
                raise ReplayEnded(
                    f"nothing was run: {UNSIGNED}; {HOW_UNSIGNED}", TAMPERED
                ) from None
            warning = "" if report.key_ids else f"WARNING: {UNSIGNED}. {NOT_OPENED}"
            sent = {**body, "trail": _payloads(file), "verified": bool(report.key_ids)}
            found = _replay(endpoint, sent, rules, keeps_outputs=keeps_outputs)
    except Conflict as problem:
        raise ReplayEnded(f"nothing was run: {problem}", TAMPERED) from problem
    except BadInput as problem:
        raise BadRequest(str(problem)) from problem
    if warning:
        found.model["notes"].insert(0, warning)
    return found


def _body_of(options: argparse.Namespace, report: Report) -> dict[str, Any]:
    return {
        "kernel_id": report.kernel_id,
        "entries": report.head_number,
        "head": report.head_digest,
        "mode": options.mode,
        "begin": options.begin,
        "only": list(options.only),
        "parameters": {name: value_of(text) for name, text in options.parameters},
        "network": options.network,
        "connectors": options.with_connectors,
        "keep_files": not options.discard,
    }


def _replay(
    endpoint: Endpoint, body: Mapping[str, Any], rules: Rules, *, keeps_outputs: bool
) -> Replayed:
    found = Replayed(started=_now(), parameters=body["parameters"])
    progress = CellProgress()
    is_whole = False
    try:
        for name, data in RestClient(endpoint).events("/api/replays", body):
            if name == "replay":
                found.model = data
            elif name == "begun":
                first_line = harmless(data["source"].lstrip().partition("\n")[0])
                progress.begin(data["place"], data["count"], first_line)
            elif name == "cell":
                pair = pair_from_dict(data)
                verdict = compared(pair, rules)
                found.cells.append(
                    ComparedCell(pair=pair if keeps_outputs else _bare(pair), verdict=verdict)
                )
            elif name == "end":
                found.kernel_ids, is_whole = data["kernels"], True
            elif name == "failed":
                raise ApiError(f"the replay ended early: {data['message']}")
    finally:
        progress.end()
    if not is_whole:
        raise ApiError("the replay ended early: the connection to the gateway was lost")
    found.finished = _now()
    found.cells.sort(key=lambda cell: cell.pair.number)
    return found


def exit_code(standings: Collection[Standing], fail_on: Iterable[str]) -> int:
    """Return what a script is told.

    Args:
        standings: of all cells.
        fail_on: names in FAILING.
    """
    ran = [each for each in standings if each not in NOT_RUN]
    if not ran:
        return COULD_NOT_RUN if Standing.UNAVAILABLE in standings else NOTHING
    failing = set().union(*(FAILING[name] for name in fail_on))
    if failing & set(ran):
        return DIFFERENT
    # What could not be looked at is not known to be the same.
    return COULD_NOT_RUN if Standing.UNAVAILABLE in standings else OK


def shown(found: Replayed) -> str:
    """Return what came of a replay for people."""
    good = {Standing.IDENTICAL, Standing.EQUIVALENT}
    lines = [
        line
        for cell in found.cells
        if cell.verdict.standing not in good
        for line in _lines(cell.pair, cell.verdict)
    ]
    counts = Counter(found.standings)
    listed = ", ".join(f"{counts[each]} {each}" for each in Standing if counts[each])
    lines.append(f"{len(found.cells)} cells replayed ({found.model['mode']}): {listed or 'none'}")
    lines += found.model["notes"]
    return harmless_lines(lines)


def as_json(found: Replayed) -> str:
    """Return what came of a replay for programs."""
    cells = [
        {
            "number": cell.pair.number,
            "execution_count": cell.pair.execution_count,
            **encode(cell.verdict),
        }
        for cell in found.cells
    ]
    return json.dumps({**found.model, "kernels": found.kernel_ids, "cells": cells}, indent=2)


def check_report(folder: Path) -> None:
    """Make sure, before anything is run, that a report can be written (raises ConfigError)."""
    check_folder(folder, is_made=True)


def write_report(folder: Path, found: Replayed, rules: Rules, proven: Report) -> None:
    """Write the report of a replay that kept its outputs (raises ConfigError)."""
    model = found.model
    owner = model["owner"] or {"user": "", "agent": None}
    trail = TrailIdentity(
        kernel_id=model["kernel_id"],
        head=model["head"],
        entries=model["entries"],
        user=owner["user"],
        agent=owner["agent"],
        environment=model["environment"],
        verified=verification_shown(proven).partition("\n")[0],
        keys=tuple(sorted(proven.key_ids)),
    )
    ran = f"It ran in the kernels {', '.join(found.kernel_ids)}." if found.kernel_ids else ""
    report = reports.Report(
        replay_id=model["replay_id"],
        trail=trail,
        mode=model["mode"],
        replayer=model["replayer"],
        started=found.started,
        finished=found.finished,
        cells=tuple(found.cells),
        network=model["network"],
        parameters=found.parameters,
        rules=rules,
        notes=tuple(note for note in (*model["notes"], ran) if note),
    )
    reports.write(folder, report)


def _lines(pair: CellPair, verdict: Verdict) -> list[str]:
    reasons = verdict.all_reasons[:SHOWN_REASONS]
    why = "; ".join(" ".join(filter(None, (r.code, r.where, r.detail))) for r in reasons)
    lines = [f"cell {pair.number} [{pair.execution_count}] {verdict.standing}: {why}"]
    if verdict.first is not None:
        lines.append(f"    recorded: {verdict.first.recorded or ''}"[:200])
        lines.append(f"    replayed: {verdict.first.replayed or ''}"[:200])
    return lines


def _bare(pair: CellPair) -> CellPair:
    return replace(pair, recorded=None, replayed=None)


def _payloads(file: Path) -> list[str]:
    trail = read_trail(bounded(file))
    return [data["payload"] for cell in trail.cells for data in cell.envelopes or ()]


def _now() -> str:
    return utc_text(datetime.now(UTC))
