"""The outputs of a recorded cell held against those of its replay."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from kernel_gateway.audit.view import output_digest
from kernel_gateway.replay.images import (
    IMAGE_FORMATS,
    UnreadableImage,
    compared_pixels,
    decoded,
)
from kernel_gateway.replay.outputs import (
    Output,
    OutputPair,
    data_of,
    side_by_side,
    text_of,
    traceback_of,
)
from kernel_gateway.replay.rules import Rules
from kernel_gateway.replay.verdicts import FirstDifference, PartVerdict, Reason, Standing

MAX_REASONS = 200
MAX_LINES_TRIED = 500
"""So many lines that differ are tried with the rules to find the first that counts."""
BINARY = ("image/", "audio/", "video/", "application/pdf", "application/octet-stream")


def compared_outputs(
    recorded: Sequence[Output], replayed: Sequence[Output], rules: Rules
) -> tuple[PartVerdict, FirstDifference | None]:
    """Return how near the replayed outputs came to the recorded, and the first line that differs.

    The verdict is identical, equivalent or different.
    """
    try:
        if _digests(recorded) == _digests(replayed):
            return PartVerdict(standing=Standing.IDENTICAL), None
        comparison = _Comparison(rules)
        for pair in side_by_side(recorded, replayed):
            comparison.take(pair)
        if not comparison.differs and _turns(recorded) != _turns(replayed):
            comparison.is_like("stream-coalesced", "")
        if not comparison.reasons:
            comparison.is_like("written-otherwise", "", "the same in another form")
    except RecursionError:
        reason = Reason(code="not-comparable", detail="nested too deeply")
        return PartVerdict(standing=Standing.DIFFERENT, reasons=(reason,)), None
    standing = Standing.DIFFERENT if comparison.differs else Standing.EQUIVALENT
    return PartVerdict(standing=standing, reasons=bounded(comparison.reasons)), comparison.first


def bounded(reasons: Sequence[Reason]) -> tuple[Reason, ...]:
    """Return reasons, the last of too many said in a number."""
    if len(reasons) <= MAX_REASONS:
        return tuple(reasons)
    more = Reason(code="more", detail=f"{len(reasons) - MAX_REASONS + 1:,} reasons more")
    return (*reasons[: MAX_REASONS - 1], more)


def _digests(outputs: Sequence[Output]) -> list[str]:
    return [output_digest(output) for output in outputs]


def _turns(outputs: Sequence[Output]) -> list[str | None]:
    """Return in which order streams and other outputs stand."""
    return [
        text_of(output.get("name")) if output.get("output_type") == "stream" else None
        for output in outputs
    ]


class _Comparison:
    """Collects what is not the same.

    Attributes:
        reasons: in the order of the outputs.
        differs: whether one of them is more than a rule allows.
        first: the first line that differs.
    """

    def __init__(self, rules: Rules) -> None:
        self.reasons: list[Reason] = []
        self.differs = False
        self.first: FirstDifference | None = None
        self._rules = rules

    def is_like(self, code: str, where: str, detail: str = "") -> None:
        """Note something that is not the same and does not count."""
        self.reasons.append(Reason(code=code, where=where, detail=detail))

    def is_other(self, code: str, where: str, detail: str = "") -> None:
        """Note a difference."""
        self.differs = True
        self.reasons.append(Reason(code=code, where=where, detail=detail))

    def take(self, pair: OutputPair) -> None:
        """Compare the two of a pair."""
        one, other = pair.recorded, pair.replayed
        if one is None or other is None:
            self._take_single(pair)
            return
        kind, other_kind = one.get("output_type"), other.get("output_type")
        if kind != other_kind:
            self.is_other("type-differs", pair.where, f"{kind} became {other_kind}")
        elif kind == "stream":
            self._text(pair.where, f"stream/{pair.where}", one.get("text"), other.get("text"))
        elif kind == "error":
            self._error(pair.where, one, other)
        elif kind in ("display_data", "execute_result"):
            self._display(pair.where, one, other)
        else:
            self._text(pair.where, "application/json", dict(one), dict(other))

    def _take_single(self, pair: OutputPair) -> None:
        is_missing = pair.replayed is None
        self.is_other("output-missing" if is_missing else "output-added", pair.where)
        shown = _shown_line(pair.recorded or pair.replayed or {})
        self._note_first(pair.where, *((shown, None) if is_missing else (None, shown)))

    def _error(self, where: str, one: Output, other: Output) -> None:
        name, other_name = text_of(one.get("ename")), text_of(other.get("ename"))
        if name != other_name:
            self.is_other("error-differs", where, f"{name[:80]} became {other_name[:80]}")
            self._note_first(where, _shown_line(one), _shown_line(other))
            return
        self._text(f"{where}, message", "error/evalue", one.get("evalue"), other.get("evalue"))
        where = f"{where}, traceback"
        self._text(where, "error/traceback", traceback_of(one), traceback_of(other))

    def _display(self, where: str, one: Output, other: Output) -> None:
        if one.get("execution_count") != other.get("execution_count"):
            self.is_like("execution-count", where)
        data, other_data = data_of(one), data_of(other)
        for mime in sorted(data.keys() - other_data.keys()):
            self.is_other("mime-missing", where, mime[:200])
        for mime in sorted(other_data.keys() - data.keys()):
            self.is_other("mime-added", where, mime[:200])
        for mime in sorted(data.keys() & other_data.keys(), key=_most_readable_first):
            self._mime(f"{where}, {mime[:200]}", mime, data[mime], other_data[mime])
        metadata, other_metadata = (text_of(each.get("metadata") or {}) for each in (one, other))
        where = f"{where}, metadata"
        self._text(where, "application/json", metadata, other_metadata, code="metadata-differs")

    def _mime(self, where: str, mime: str, one: object, other: object) -> None:
        text, other_text = text_of(one), text_of(other)
        if mime in IMAGE_FORMATS:
            self._image(where, mime, text, other_text)
        elif mime.startswith(BINARY) and mime != "image/svg+xml":
            if text != other_text:
                self.is_other("bytes-differ", where)
        else:
            self._text(where, mime, text, other_text)

    def _image(self, where: str, mime: str, one: str, other: str) -> None:
        # Programs break base64 into lines, or add one.
        one, other = "".join(one.split()), "".join(other.split())
        if one == other:
            return
        try:
            found = compared_pixels(decoded(one, mime), decoded(other, mime))
        except UnreadableImage as problem:
            self.is_other("bytes-differ", where, f"not compared by pixels: {problem}")
            return
        if found.is_same:
            self.is_like("pixels-equal", where)
        else:
            self.is_other("pixels-differ", where, str(found))

    def _text(
        self, where: str, kind: str, one: object, other: object, code: str = "text-differs"
    ) -> None:
        text, other_text = text_of(one), text_of(other)
        if text == other_text:
            return
        likeness = self._rules.likeness(text, other_text, kind)
        if likeness.is_same:
            for reason in likeness.reasons:
                self.is_like(reason, where)
            return
        number, line, other_line = self._first_line(text, other_text, kind)
        detail = f"from line {number:,}"
        if "too-large-for-rules" in likeness.reasons:
            detail += "; too large for rules"
        self.is_other(code, where, detail)
        self._note_first(where, line, other_line)

    def _first_line(
        self, text: str, other_text: str, kind: str
    ) -> tuple[int, str | None, str | None]:
        """Return number and text of the first line that differs after the rules."""
        fallback = None
        tried = 0
        lines, others = text.split("\n"), other_text.split("\n")
        for number, (line, other) in enumerate(zip_longest(lines, others), 1):
            if line == other:
                continue
            fallback = fallback or (number, line, other)
            tried += 1
            if tried > MAX_LINES_TRIED:
                break
            if None in (line, other) or not self._rules.likeness(line, other, kind).is_same:
                return number, line, other
        return fallback or (1, None, None)

    def _note_first(self, where: str, recorded: str | None, replayed: str | None) -> None:
        if self.first is None:
            cut = [None if line is None else line[:500] for line in (recorded, replayed)]
            self.first = FirstDifference(where=where, recorded=cut[0], replayed=cut[1])


def _most_readable_first(mime: str) -> tuple[bool, str]:
    return mime != "text/plain", mime


def _shown_line(output: Output) -> str:
    """Return the first line of what an output shows."""
    kind = output.get("output_type")
    if kind == "stream":
        text = text_of(output.get("text"))
    elif kind == "error":
        text = f"{text_of(output.get('ename'))}: {text_of(output.get('evalue'))}"
    else:
        data = data_of(output)
        text = text_of(data.get("text/plain", ", ".join(sorted(data))))
    return text.split("\n", 1)[0]
