"""Two texts laid side by side, line by line, within bounds whatever they are."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import groupby, zip_longest
from typing import Literal

from kernel_gateway.replay.rules import MAX_TEXT_BYTES, Rules
from kernel_gateway.replay.visible import visible

MAX_LINES = 400
"""So many lines of each text are shown, from just before the first that differs."""
MAX_LINE_CHARACTERS = 400
CONTEXT_LINES = 3
_BEFORE_DIFFERENCE = 60
_WORD = re.compile(r"\w+|\s+|[^\w\s]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """Text within a line, and whether it differs."""

    text: str
    is_changed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A line of one of the texts.

    Attributes:
        number: from 1.
        pieces: what stands there, safe to look at.
    """

    number: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Two lines that stand beside each other, or how many are left out.

    Attributes:
        kind: ``alike`` are lines that only the rules make equal.
        recorded, replayed: None where that text has no such line.
        left_out: how many lines are not shown here.
    """

    kind: Literal["same", "alike", "changed", "gap"]
    recorded: Side | None = None
    replayed: Side | None = None
    left_out: int = 0


def rows(recorded: str | None, replayed: str | None, kind: str, rules: Rules) -> list[Row]:
    """Return two texts of a kind (as rules know it) side by side: what differs, and lines around.

    A text that is None has no line.
    """
    lines, others = _lines(recorded), _lines(replayed)
    begin = max(_common_count(lines, others) - CONTEXT_LINES, 0)
    end, other_end = min(len(lines), begin + MAX_LINES), min(len(others), begin + MAX_LINES)
    shown, others_shown = lines[begin:end], others[begin:other_end]
    found = [Row(kind="gap", left_out=begin)] if begin else []
    found += _folded(list(_rows(shown, others_shown, begin + 1, kind, rules)))
    rest = max(len(lines) - end, len(others) - other_end)
    return found + ([Row(kind="gap", left_out=rest)] if rest > 0 else [])


def _lines(text: str | None) -> list[str]:
    return [] if text is None else text.removesuffix("\n").split("\n")


def _rows(
    lines: Sequence[str], others: Sequence[str], first: int, kind: str, rules: Rules
) -> Iterator[Row]:
    keys, other_keys = _keys(lines, kind, rules), _keys(others, kind, rules)
    matcher = SequenceMatcher(None, keys, other_keys, autojunk=False)
    for tag, begin, end, other_begin, other_end in matcher.get_opcodes():
        for index, other in zip_longest(range(begin, end), range(other_begin, other_end)):
            line = None if index is None else lines[index]
            other_line = None if other is None else others[other]
            pieces, other_pieces = _pieces(line, other_line)
            yield Row(
                kind="changed" if tag != "equal" else "same" if line == other_line else "alike",
                recorded=None if index is None else Side(number=first + index, pieces=pieces),
                replayed=None if other is None else Side(number=first + other, pieces=other_pieces),
            )


def _keys(lines: Sequence[str], kind: str, rules: Rules) -> list[str]:
    """Return what lines are compared by: themselves after the rules."""
    text = "\n".join(lines)
    if len(text) > MAX_TEXT_BYTES:
        return list(lines)
    keys = rules.sanitised(text, kind).split("\n")
    return keys if len(keys) == len(lines) else list(lines)


def _pieces(line: str | None, other: str | None) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    if line is None or other is None:
        return _whole(line or ""), _whole(other or "")
    if line == other:
        return _whole(line), _whole(line)
    start = max(_common_count(line, other) - _BEFORE_DIFFERENCE, 0)
    start = start if max(len(line), len(other)) > MAX_LINE_CHARACTERS else 0
    words, other_words = (_WORD.findall(_cut(each, start)) for each in (line, other))
    if len(words) == len(other_words):
        changed = [one != two for one, two in zip(words, other_words, strict=True)]
        return _joined(words, changed), _joined(other_words, changed)
    before = _common_count(words, other_words)
    after = _common_count(words[before:][::-1], other_words[before:][::-1])
    return (
        _joined(words, _middle(len(words), before, after)),
        _joined(other_words, _middle(len(other_words), before, after)),
    )


def _whole(line: str) -> tuple[Piece, ...]:
    return (Piece(text=visible(_cut(line, 0))),)


def _middle(count: int, before: int, after: int) -> list[bool]:
    return [before <= index < count - after for index in range(count)]


def _joined(words: Sequence[str], changed: Sequence[bool]) -> tuple[Piece, ...]:
    groups = groupby(zip(words, changed, strict=True), key=lambda pair: pair[1])
    return tuple(
        Piece(text=visible("".join(word for word, _ in group)), is_changed=is_changed)
        for is_changed, group in groups
    )


def _cut(line: str, start: int) -> str:
    end = start + MAX_LINE_CHARACTERS
    return ("…" if start else "") + line[start:end] + ("…" if end < len(line) else "")


def _folded(found: list[Row]) -> list[Row]:
    """Return rows with those that are the same, and far from what is not, left out."""
    near = [False] * len(found)
    for index, row in enumerate(found):
        if row.kind != "same":
            begin = max(index - CONTEXT_LINES, 0)
            end = min(index + CONTEXT_LINES + 1, len(found))
            near[begin:end] = [True] * (end - begin)
    shown: list[Row] = []
    for is_near, group in groupby(zip(near, found, strict=True), key=lambda pair: pair[0]):
        rows_here = [row for _, row in group]
        shown += rows_here if is_near else [Row(kind="gap", left_out=len(rows_here))]
    return shown


def _common_count(one: Sequence[str], other: Sequence[str]) -> int:
    count = 0
    for a, b in zip(one, other, strict=False):
        if a != b:
            break
        count += 1
    return count
