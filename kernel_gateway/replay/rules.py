"""Named rules for what may differ between two runs although nothing is wrong.

Outputs are untrusted: patterns are RE2's, whose time is linear in the text.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from importlib.resources import files
from itertools import islice
from pathlib import Path
from typing import Any

import re2

from kernel_gateway.errors import ConfigError
from kernel_gateway.replay.tolerance import Floats

MAX_TEXT_BYTES = 2_000_000
"""Rules are not applied to a longer text: it is the same, or it differs."""
MAX_MATCHES = 50_000
"""A rule replaces so many in one text; each takes some 20 µs. What comes later differs, or not."""
MAX_FILE_BYTES = 1 << 20
_FIELDS = frozenset({"name", "pattern", "replacement", "in", "why", "example"})
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_GROUP = re.compile(rb"\\([0-9])")
_HEADER = re.compile(r"^[ \t]*\[\[[ \t]*rule[ \t]*\]\]", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    r"""One kind of text that may differ.

    Attributes:
        name: as the report calls it.
        pattern: what it replaces.
        replacement: by what; ``\1`` is the pattern's first group.
        kinds: where it applies; ``*`` stands for any text.
        why: for readers.
    """

    name: str
    pattern: re2._Regexp
    replacement: bytes
    kinds: tuple[str, ...] = ("*",)
    why: str = ""

    def applies_to(self, kind: str) -> bool:
        """Return whether it is for this MIME type, stream or part of an error."""
        return any(fnmatchcase(kind, each) for each in self.kinds)

    def replaced(self, text: bytes) -> tuple[bytes, list[bytes]]:
        """Return a text with its matches replaced, and these."""
        pieces: list[bytes] = []
        found: list[bytes] = []
        end = 0
        for match in islice(self.pattern.finditer(text), MAX_MATCHES):
            begin, match_end = match.span()
            pieces += text[end:begin], self._instead_of(match)
            found.append(text[begin:match_end])
            end = match_end
        pieces.append(text[end:])
        return b"".join(pieces), found

    def _instead_of(self, match: re2._Match) -> bytes:
        if b"\\" not in self.replacement:
            return self.replacement
        return _GROUP.sub(lambda group: match.group(int(group[1])) or b"", self.replacement)


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """What rules make of two texts.

    Attributes:
        is_same: whether the texts are the same after them.
        reasons: codes of what that took, ``sanitised:<rule>`` or ``floats-close``; where they
            still differ, of the rules that found something else in each.
    """

    is_same: bool
    reasons: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """All that apply.

    Attributes:
        rules: in the order in which they are applied.
        floats: how far numbers may be apart.
        sources: names of the files, and the SHA-256 (hex) of each.
    """

    rules: tuple[Rule, ...] = ()
    floats: Floats = field(default_factory=Floats)
    sources: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def load(cls, paths: Iterable[Path] = ()) -> Rules:
        """Return the rules that come with this package, and those of files.

        Raises:
            ConfigError: a file cannot be read, or is wrong; the text says which rule and line.
        """
        own = files("kernel_gateway.replay").joinpath("rules.toml").read_bytes()
        rules = cls().with_file("rules.toml", own)
        for path in paths:
            try:
                if path.exists() and not path.is_file():
                    raise ConfigError(f"{path}: is no file")
                with path.open("rb") as file:
                    data = file.read(MAX_FILE_BYTES + 1)
            except OSError as problem:
                raise ConfigError(f"{path}: {problem.strerror}") from problem
            rules = rules.with_file(str(path), data)
        return rules

    def with_file(self, name: str, data: bytes) -> Rules:
        """Return these rules and those of a file in TOML.

        Raises:
            ConfigError: see `load`.
        """
        if len(data) > MAX_FILE_BYTES:
            raise ConfigError(f"{name}: larger than the {MAX_FILE_BYTES:,} bytes that are read")
        try:
            text = data.decode("utf-8")
            table = tomllib.loads(text)
        except UnicodeDecodeError as problem:
            raise ConfigError(f"{name}: not UTF-8, at byte {problem.start}") from None
        except tomllib.TOMLDecodeError as problem:
            raise ConfigError(f"{name}: {problem}") from None
        _refuse_unknown(table, {"rule", "floats", "without"}, name)
        known = {rule.name: rule for rule in self.rules}
        for left_out in _texts(table, "without", name):
            if known.pop(left_out, None) is None:
                raise ConfigError(f"{name}: without: there is no rule {left_out!r}")
        lines = [text.count("\n", 0, found.start()) + 1 for found in _HEADER.finditer(text)]
        found = _tables(table, name)
        for index, each in enumerate(found):
            # Headers inside a long string count too: no line is better than a wrong one.
            line = f", line {lines[index]}" if len(lines) == len(found) else ""
            rule = _rule(each, f"{name}{line}: rule {each.get('name', index + 1)!r}")
            known[rule.name] = rule
        floats = _floats(table["floats"], name) if "floats" in table else self.floats
        digest = hashlib.sha256(data).hexdigest()
        return Rules(
            rules=tuple(known.values()), floats=floats, sources={**self.sources, name: digest}
        )

    def sanitised(self, text: str, kind: str) -> str:
        """Return a text of this kind with all that may differ replaced."""
        data = as_bytes(text)
        if len(data) > MAX_TEXT_BYTES:
            return text
        for rule in self.rules:
            if rule.applies_to(kind):
                data, _ = rule.replaced(data)
        return data.decode("utf-8")

    def likeness(self, one: str, other: str, kind: str) -> Likeness:
        """Return whether two texts of this kind are the same after the rules."""
        if one == other:
            return Likeness(is_same=True)
        lines, other_lines = as_bytes(one).split(b"\n"), as_bytes(other).split(b"\n")
        if len(lines) == len(other_lines):
            # A page of megabytes differs in a few lines only.
            differ = [pair for pair in zip(lines, other_lines, strict=True) if pair[0] != pair[1]]
            found = self._likeness([a for a, _ in differ], [b for _, b in differ], kind)
            if found.is_same:
                return found
        return self._likeness(lines, other_lines, kind)

    def _likeness(self, lines: list[bytes], other_lines: list[bytes], kind: str) -> Likeness:
        data, others = b"\n".join(lines), b"\n".join(other_lines)
        if max(len(data), len(others)) > MAX_TEXT_BYTES:
            return Likeness(is_same=False, reasons=("too-large-for-rules",))
        used: list[str] = []
        for rule in self.rules:
            if not rule.applies_to(kind):
                continue
            data, found = rule.replaced(data)
            others, others_found = rule.replaced(others)
            if found != others_found:
                used.append(f"sanitised:{rule.name}")
            if data == others:
                return Likeness(is_same=True, reasons=tuple(used))
        if self.floats.is_set and self.floats.close(data, others):
            return Likeness(is_same=True, reasons=(*used, "floats-close"))
        return Likeness(is_same=False, reasons=tuple(used))


def as_bytes(text: str) -> bytes:
    """Return text in UTF-8; what cannot be written so (lone surrogates) by its number."""
    return text.encode("utf-8", "backslashreplace")


def _rule(table: Mapping[str, Any], where: str) -> Rule:
    _refuse_unknown(table, _FIELDS, where)
    for name in ("name", "pattern", "replacement", "why"):
        if not isinstance(table.get(name), str):
            raise ConfigError(f"{where}: {name} must be there, and be a text")
    if not _NAME.fullmatch(table["name"]):
        raise ConfigError(f"{where}: name must be small letters, digits and single hyphens")
    pattern = _pattern(table["pattern"], where)
    replacement = as_bytes(table["replacement"])
    for group in _GROUP.findall(replacement):
        if int(group) > pattern.groups:
            raise ConfigError(
                f"{where}: replacement names group {int(group)}, pattern has {pattern.groups}"
            )
    kinds = tuple(_texts(table, "in", where)) or ("*",)
    rule = Rule(
        name=table["name"],
        pattern=pattern,
        replacement=replacement,
        kinds=kinds,
        why=table["why"],
    )
    _check_example(rule, _texts(table, "example", where), where)
    return rule


def _pattern(text: str, where: str) -> re2._Regexp:
    options = re2.Options()
    options.log_errors = False
    try:
        pattern = re2.compile(as_bytes(text), options)
    except re2.error as problem:
        said = problem.args[0]
        said = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
        hint = " (RE2 has no lookaround and no back references)" if "(?" in said else ""
        raise ConfigError(f"{where}: pattern: {said}{hint}") from None
    if pattern.search(b"") is not None:
        raise ConfigError(f"{where}: pattern matches an empty text, so it would match everywhere")
    return pattern


def _check_example(rule: Rule, example: list[str], where: str) -> None:
    if not example:
        return
    if len(example) != 2:
        raise ConfigError(f"{where}: example must be two texts")
    one, other = (rule.replaced(as_bytes(text))[0] for text in example)
    if one != other:
        shown = " and ".join(repr(each.decode("utf-8")) for each in (one, other))
        raise ConfigError(f"{where}: the two texts of its example still differ: {shown}")


def _floats(table: object, name: str) -> Floats:
    if not isinstance(table, dict):
        raise ConfigError(f"{name}: floats must be a table")
    _refuse_unknown(table, {"relative", "absolute"}, f"{name}: floats")
    for key, value in table.items():
        if type(value) not in (int, float) or not 0 <= value < 1e300:
            raise ConfigError(f"{name}: floats.{key} must be a number that is not negative")
    return Floats(**{key: float(value) for key, value in table.items()})


def _tables(table: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = table.get("rule", [])
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise ConfigError(f"{name}: each rule begins with a line [[rule]]")
    return found


def _texts(table: Mapping[str, Any], key: str, where: str) -> list[str]:
    found = table.get(key, [])
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ConfigError(f"{where}: {key} must be a list of texts")
    return found


def _refuse_unknown(table: Mapping[str, Any], known: set[str] | frozenset[str], where: str) -> None:
    unknown = sorted(set(table) - known)
    if unknown:
        raise ConfigError(
            f"{where}: {unknown[0]!r} is not known; there are {', '.join(sorted(known))}"
        )
