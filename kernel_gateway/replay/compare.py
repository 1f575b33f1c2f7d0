"""A recorded cell held against its replay."""

from __future__ import annotations

from collections.abc import Mapping

from kernel_gateway.replay.cells import CellPair, Execution
from kernel_gateway.replay.compare_outputs import bounded, compared_outputs
from kernel_gateway.replay.markers import Markers
from kernel_gateway.replay.outputs import text_of
from kernel_gateway.replay.rules import Rules
from kernel_gateway.replay.verdicts import (
    COMPARED,
    NOT_RUN,
    FirstDifference,
    PartVerdict,
    Reason,
    Standing,
    Verdict,
)

MAX_MESSAGE_CHARACTERS = 200
AS_DECLARED = (Standing.IDENTICAL, Standing.EQUIVALENT, Standing.DECLARED)


def compared(pair: CellPair, rules: Rules) -> Verdict:
    """Return how near the replay of a cell came to its record, and why.

    How it ended decides first: `failed`, `fixed`. Else the worse of outputs and files is the
    cell's verdict. State is reported and never decides: equal values are often pickled to other
    bytes (what an object has cached, the order of a set), and a value that matters is in the
    outputs or files of this cell or a later one. A cell without a file or connector that it had
    when it was recorded is `unavailable` where it does not come out the same.
    """
    markers = Markers.of(pair.source, pair.tags)
    if pair.replayed is None:
        return _not_run(pair.reason)
    if markers.skips:
        reason = Reason(code="declared", detail="nbval-skip")
        return Verdict(standing=Standing.SKIPPED, reasons=(reason,))
    if pair.recorded is None:
        reason = Reason(code="never-ended", detail="the record has no end of this cell")
        return Verdict(standing=Standing.NOT_REPLAYABLE, reasons=(reason,))
    recorded, replayed = pair.recorded, pair.replayed
    outputs, first = _outputs(recorded, replayed, markers, rules)
    files = _compared_names(recorded.files, replayed.files, "file")
    state = None
    if recorded.state is not None and replayed.state is not None:
        state = _compared_names(recorded.state, replayed.state, "state")
    standing, reasons = _ending(recorded, replayed, markers)
    if standing is None:
        parts = [outputs.standing, files.standing]
        standing = max(parts, key=COMPARED.index)
    if (pair.missing or pair.withheld) and standing not in AS_DECLARED:
        # It is not known what the cell would have done with them.
        standing = Standing.UNAVAILABLE
    return Verdict(
        standing=standing,
        reasons=reasons + _conditions(pair),
        outputs=outputs,
        files=files,
        state=state,
        first=first,
    )


def _conditions(pair: CellPair) -> tuple[Reason, ...]:
    """Return in what a cell began otherwise than when it was recorded."""
    reasons = [
        Reason(code="input-missing", where=path, detail=why) for path, why in pair.missing.items()
    ]
    reasons += [
        Reason(code="connector-withheld", where=each, detail="--with-connectors gives its values")
        for each in pair.withheld
    ]
    if pair.after is not None:
        detail = f"cell {pair.after} was run without files that are not kept any more"
        reasons.append(Reason(code="after-input-missing", detail=detail))
    return bounded(reasons)


def _not_run(reason: str) -> Verdict:
    word, _, detail = reason.partition(":")
    for standing in NOT_RUN:
        if word.strip() == standing:
            return Verdict(
                standing=standing, reasons=(Reason(code="not-run", detail=detail.strip()),)
            )
    raise ValueError(f"a cell that was not run has no such reason: {reason!r}")


def _outputs(
    recorded: Execution, replayed: Execution, markers: Markers, rules: Rules
) -> tuple[PartVerdict, FirstDifference | None]:
    verdict, first = compared_outputs(recorded.outputs, replayed.outputs, rules)
    if markers.ignores_output and verdict.standing is Standing.DIFFERENT:
        reasons = (Reason(code="declared", detail="nbval-ignore-output"), *verdict.reasons)
        verdict = PartVerdict(standing=Standing.DECLARED, reasons=reasons)
    return verdict, first


def _ending(
    recorded: Execution, replayed: Execution, markers: Markers
) -> tuple[Standing | None, tuple[Reason, ...]]:
    """Return the verdict that how a cell ended gives, None where outputs and files decide."""
    if recorded.status == replayed.status:
        if recorded.ename == replayed.ename:
            return None, ()
        reason = _ended("error-differs", recorded, replayed)
        return (None if markers.ignores_output else Standing.DIFFERENT), (reason,)
    reason = _ended("status-differs", recorded, replayed)
    is_raise = {recorded.status, replayed.status} == {"ok", "error"}
    if is_raise and markers.may_raise:
        # Whether it raises is an output as any other then: nbval compares it unless told not to.
        return (None if markers.ignores_output else Standing.DIFFERENT), (reason,)
    if replayed.status == "ok":
        return Standing.FIXED, (reason,)
    if recorded.status == "ok" or replayed.status == "lost":
        return Standing.FAILED, (reason,)
    return Standing.DIFFERENT, (reason,)


def _ended(code: str, recorded: Execution, replayed: Execution) -> Reason:
    ends = [
        end.status if end.ename is None else f"{end.status} ({end.ename[:80]}{_message(end)})"
        for end in (recorded, replayed)
    ]
    return Reason(code=code, detail=" became ".join(ends))


def _message(end: Execution) -> str:
    """Return what the exception said, on one line, with a colon before it."""
    for output in reversed(end.outputs):
        if output.get("output_type") == "error" and output.get("ename") == end.ename:
            text = " ".join(text_of(output.get("evalue", ""))[:MAX_MESSAGE_CHARACTERS].split())
            return f": {text}" if text else ""
    return ""


def _compared_names(
    recorded: Mapping[str, str | None], replayed: Mapping[str, str | None], kind: str
) -> PartVerdict:
    """Return how digests by name compare; ``kind`` is ``file`` or ``state``."""
    reasons = []
    for name in sorted(recorded.keys() | replayed.keys()):
        if name not in replayed:
            reasons.append(Reason(code=f"{kind}-missing", where=name))
        elif name not in recorded:
            reasons.append(Reason(code=f"{kind}-added", where=name))
        elif recorded[name] != replayed[name]:
            reasons.append(_changed(kind, name, recorded[name], replayed[name]))
    standing = Standing.DIFFERENT if reasons else Standing.IDENTICAL
    return PartVerdict(standing=standing, reasons=bounded(reasons))


def _changed(kind: str, name: str, one: str | None, other: str | None) -> Reason:
    if one is None:
        return Reason(code=f"{kind}-not-deleted", where=name)
    if other is None:
        return Reason(code=f"{kind}-deleted", where=name)
    return Reason(code=f"{kind}-differs", where=name, detail=f"{one[:12]} became {other[:12]}")
