"""Whether a trail proves what it shows: signatures, chain, and the notebook against both. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from securesystemslib.signer import Key

from kernel_gateway.audit.chain import (
    CellFinished,
    CellStarted,
    Entry,
    Outputs,
    digest_of,
    epoch_after,
)
from kernel_gateway.audit.envelopes import Envelope
from kernel_gateway.audit.facts import DerivedFrom
from kernel_gateway.audit.grouping import belongs, incomplete
from kernel_gateway.audit.later_events import (
    CellsUnrecorded,
    ContentRemoved,
    gap_text,
    removal_text,
)
from kernel_gateway.audit.notebook_reading import TrailCell, TrailFile
from kernel_gateway.audit.references import blobs_of, lists_of
from kernel_gateway.audit.signing import BadSignature, UnknownKey, check_signature
from kernel_gateway.audit.view import output_digest, source_text
from lambda_kernel.contract.schema import InvalidField

OK, UNPROVEN, TAMPERED = 0, 1, 3
"""Exit codes. Source: audit.md, "Replay"."""
TEXT_CHARACTERS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that a trail of ours cannot have.

    Attributes:
        kind: one word, such as ``source-changed``.
        cell: its place in the file, from 1; None where it is no cell's.
        text: what is wrong.
    """

    kind: str
    cell: int | None
    text: str


@dataclass(slots=True, kw_only=True)
class Report:
    """What was found.

    Attributes:
        kernel_id: whose trail it is, None where no entry could be read.
        cell_count, entry_count: how many were looked at.
        head_number, head_digest: of the newest entry.
        key_ids: of the keys that signed.
        blobs: digests of the objects that entries name, as they say, each with the number of one.
        unsigned_count: entries that nobody signed: an earlier version wrote them.
        incomplete: cells of which it is not known how they ended.
        removed: cells whose outputs were removed on purpose, and by whom, for people.
        unproven: what could not be checked, for people.
        problems: in the order of the file.
        is_against_journal: the end was compared with the journal.
        derived_from: what it says that its cells are a replay of, None for none.
    """

    kernel_id: str | None = None
    cell_count: int = 0
    entry_count: int = 0
    head_number: int = 0
    head_digest: str = ""
    key_ids: set[str] = field(default_factory=set)
    blobs: dict[str, int] = field(default_factory=dict)
    unsigned_count: int = 0
    incomplete: list[CellStarted] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    unproven: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    is_against_journal: bool = False
    derived_from: DerivedFrom | None = None

    @property
    def exit_code(self) -> int:
        """0 = all is proven, 1 = something cannot be, 3 = something was changed."""
        if self.problems:
            return TAMPERED
        return UNPROVEN if self.unsigned_count or self.unproven else OK

    def add(self, kind: str, cell: int | None, text: str) -> None:
        """Note a problem."""
        # What a file says of itself must not look like a line of ours.
        self.problems.append(
            Problem(kind=kind, cell=cell, text=" ".join(text.split())[:TEXT_CHARACTERS])
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """An entry, its digest, and the cell of the file that holds it."""

    entry: Entry
    digest: str
    cell: TrailCell


def verify(trail: TrailFile, keys: Mapping[str, Key]) -> Report:
    """Return what a file proves by itself.

    Args:
        trail: the file.
        keys: public keys that are trusted, by id.
    """
    report = Report(cell_count=len(trail.cells))
    held = [each for cell in trail.cells for each in _opened(cell, keys, report)]
    report.entry_count = len(held)
    for each in held:
        for digest in blobs_of(each.entry.event):
            report.blobs.setdefault(digest, each.entry.number)
    if held:
        kernels = Counter(each.entry.kernel_id for each in held)
        report.kernel_id = kernels.most_common(1)[0][0]
        own = [each for each in held if _is_own(each, report)]
        _check_chain(own, report)
        _check_view(trail.cells, own, report)
        ours = sorted((each.entry for each in own), key=lambda entry: entry.number)
        report.incomplete = incomplete(ours)
        report.derived_from = _derived_from(ours)
    else:
        _check_view(trail.cells, [], report)
    _check_claims(trail, report)
    # The first bad cell is what is wanted; what follows from it comes later.
    report.problems.sort(key=lambda problem: (problem.cell is None, problem.cell or 0))
    return report


def _check_claims(trail: TrailFile, report: Report) -> None:
    """Note what the file says of itself as a whole, and its entries do not."""
    count = trail.claimed_count
    if count is not None and report.head_number < count:
        report.add(
            "truncated",
            None,
            f"the file says that it has {count} entries, the last here is {report.head_number}",
        )
    if trail.claimed_kernel not in (None, report.kernel_id):
        report.add("foreign", None, "the file says that it is of another kernel than its entries")
    is_end = count == report.head_number
    if is_end and trail.claimed_head not in (None, report.head_digest):
        report.add("replaced", None, "the file says that its last entry is another one")


def _derived_from(entries: Sequence[Entry]) -> DerivedFrom | None:
    started = (each.event for each in entries if isinstance(each.event, CellStarted))
    facts = next((each.gateway for each in started if each.gateway is not None), None)
    return None if facts is None else facts.session.derived_from


def compare_with_journal(report: Report, number: int, digest: str) -> None:
    """Note where a file does not end as the journal does.

    Args:
        report: of the file.
        number: of the journal's newest entry.
        digest: of its bytes.
    """
    report.is_against_journal = True
    if report.head_number < number:
        report.add(
            "truncated",
            None,
            f"the journal has {number} entries and the file ends with entry {report.head_number}: "
            "it was cut off, or exported before the others were written",
        )
    elif report.head_number > number:
        report.add(
            "truncated-journal",
            None,
            f"the journal ends with entry {number}, the file with entry {report.head_number}: "
            "entries of the journal are missing",
        )
    elif report.head_digest != digest:
        report.add("replaced", None, f"entry {number} of the journal is another one")


def _opened(cell: TrailCell, keys: Mapping[str, Key], report: Report) -> Iterator[_Held]:
    for data in cell.envelopes or ():
        try:
            envelope = Envelope.from_json(data)
            payload = envelope.payload_bytes
            if envelope.signatures:
                report.key_ids.add(check_signature(envelope, keys))
            elif report.key_ids:
                report.add("unsigned", cell.number, "an entry after signed ones is not signed")
                continue
            else:
                report.unsigned_count += 1
            # Read only now: what nobody has signed is not worth the risk.
            yield _Held(entry=Entry.from_bytes(payload), digest=digest_of(payload), cell=cell)
        except UnknownKey as problem:
            report.add("unknown-key", cell.number, f"an entry is {problem}")
        except BadSignature:
            report.add("entry-changed", cell.number, "an entry is not what was signed")
        except InvalidField as problem:
            report.add("malformed", cell.number, f"an entry cannot be read: {problem}")


def _is_own(held: _Held, report: Report) -> bool:
    if held.entry.kernel_id == report.kernel_id:
        return True
    report.add("foreign", held.cell.number, "an entry is that of another kernel")
    return False


def _check_chain(held: Sequence[_Held], report: Report) -> None:
    """Note entries that are missing, twice there, in another order, or of another chain."""
    everywhere = {each.entry.number for each in held}
    seen: set[int] = set()
    before: _Held | None = None
    for each in held:
        entry, cell = each.entry, each.cell.number
        number = 0 if before is None else before.entry.number
        if entry.number in seen:
            report.add("duplicated", cell, f"entry {entry.number} stands here once more")
            continue
        if entry.number < number:
            report.add("reordered", cell, f"entry {entry.number} stands after entry {number}")
        elif entry.number > number + 1:
            _note_gap(number, entry.number, everywhere, cell, report)
        elif before is not None:
            _check_link(before, each, report)
        seen.add(entry.number)
        before = each
        if entry.number > report.head_number:
            report.head_number, report.head_digest = entry.number, each.digest


def _note_gap(
    number: int, next_number: int, everywhere: set[int], cell: int, report: Report
) -> None:
    missing = [n for n in (number + 1, next_number - 1) if n not in everywhere]
    if not missing:
        report.add("reordered", cell, f"entry {next_number} stands after entry {number}")
        return
    what = "" if number else ": the beginning"
    report.add(
        "dropped", cell, f"entries between {number} and {next_number} are missing before it{what}"
    )


def _check_link(before: _Held, each: _Held, report: Report) -> None:
    if each.entry.previous != before.digest:
        report.add(
            "replaced",
            each.cell.number,
            f"entry {each.entry.number} does not follow the entry {before.entry.number} that "
            "stands before it: one of the two is of another chain",
        )
    elif each.entry.epoch < epoch_after(before.entry):
        report.add("replaced", each.cell.number, "an entry has an older epoch than that before it")


def _check_view(cells: Sequence[TrailCell], held: Sequence[_Held], report: Report) -> None:
    """Note where the notebook shows something else than its entries."""
    by_cell: dict[int, list[Entry]] = {}
    for each in held:
        by_cell.setdefault(each.cell.number, []).append(each.entry)
    removals = _removals(held, report)
    before: list[Entry] = []
    for cell in cells:
        entries = by_cell.get(cell.number, [])
        if not entries:
            if cell.kind != "markdown" and not cell.envelopes:
                report.add("inserted", cell.number, f"a {cell.kind} cell without an entry")
            continue
        if any(not belongs(e, entries[0], last) for last, e in pairwise(entries)):
            report.add("moved", cell.number, "entries of several cells stand in one")
        elif before and _goes_on(entries[0], before):
            report.add("moved", cell.number, "an entry of the cell before it stands here")
        _check_cell(cell, entries, removals, report)
        _note_absent(cell, entries, report)
        before = entries


def _goes_on(entry: Entry, before: Sequence[Entry]) -> bool:
    return entry.number == before[-1].number + 1 and belongs(entry, before[0], before[-1])


def _removals(held: Sequence[_Held], report: Report) -> dict[str, ContentRemoved]:
    """Return what was removed, by digest, and note what was never recorded."""
    found = {}
    for each in held:
        event = each.entry.event
        if isinstance(event, ContentRemoved):
            found.update(dict.fromkeys(event.blobs, event))
        elif isinstance(event, CellsUnrecorded):
            report.unproven.append(f"cell {each.cell.number} of the file: {gap_text(event)}")
    return found


def _note_absent(cell: TrailCell, entries: Sequence[Entry], report: Report) -> None:
    """Note lists that entries name and nobody has: a gateway that is killed may leave that."""
    report.unproven += [
        f"content-missing: cell {cell.number} of the file: {digest}, which entry {entry.number} "
        "names (its policy, packages or files), was not stored when this was exported"
        for entry in entries
        for digest in lists_of(entry.event)
        if digest in cell.absent
    ]


def _check_cell(
    cell: TrailCell,
    entries: Sequence[Entry],
    removals: Mapping[str, ContentRemoved],
    report: Report,
) -> None:
    started = entries[0].event
    if not isinstance(started, CellStarted) or not started.is_cell:
        if cell.kind != "markdown":
            report.add("inserted", cell.number, f"a {cell.kind} cell with an entry of no cell")
        return
    if cell.kind != "code":
        report.add("source-changed", cell.number, f"a cell that ran is shown as {cell.kind}")
        return
    if source_text(cell.data.get("source")) != started.source:
        report.add("source-changed", cell.number, "its source is not what ran")
    if cell.data.get("execution_count") != started.execution_count:
        report.add("count-changed", cell.number, f"it ran as [{started.execution_count}]")
    finished = entries[-1].event
    status = finished.status if isinstance(finished, CellFinished) else "incomplete"
    if cell.claimed_status not in (None, status):
        report.add("status-changed", cell.number, f"it ended as {status}, the file says otherwise")
    kept = finished.outputs if isinstance(finished, CellFinished) else Outputs(view=())
    removal = removals.get(kept.blob or "")
    if removal is not None and not cell.data.get("outputs"):
        where = f"cell {cell.number} of the file, [{started.execution_count}]"
        report.removed.append(f"{where}: {removal_text(removal)}")
    elif cell.is_missing and kept.blob is not None:
        text = "what it said was not there when this was exported, and no entry says who removed it"
        report.add("content-missing", cell.number, text)
    elif kept.view is None:
        report.unproven.append(f"cell {cell.number}: its outputs are not held by a signed digest")
    else:
        _check_outputs(cell, kept.view, cell.salt if kept.is_salted else "", report)


def _check_outputs(cell: TrailCell, view: Sequence[str], salt: str, report: Report) -> None:
    outputs = cell.data.get("outputs")
    if not isinstance(outputs, list) or not all(isinstance(each, dict) for each in outputs):
        report.add("output-changed", cell.number, "its outputs are no list")
        return
    if len(outputs) != len(view):
        text = f"it had {len(view)} outputs, {len(outputs)} are here"
        kind = "output-dropped" if len(outputs) < len(view) else "output-inserted"
        report.add(kind, cell.number, text)
        return
    for number, (output, digest) in enumerate(zip(outputs, view, strict=True), 1):
        try:
            is_same = output_digest(output, salt) == digest
        except RecursionError:
            is_same = False
        if not is_same:
            report.add("output-changed", cell.number, f"output {number} is not what it said")
