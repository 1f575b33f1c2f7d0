"""Connector values that a cell prints are replaced by their names, on their way out.

Found are values of 8 characters or more, whole, as they are and as Python, JSON and HTML commonly
spell them, also across the chunks of one stream. Not found are parts of a value, other encodings
(base64, hex, URL), values in binary data, and values that a cell takes apart on purpose: whoever
runs a cell may read its connectors. This keeps them out of notebooks and records by accident.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from typing import Any

MIN_CHARACTERS = 8
MAX_DEPTH = 200


class Masker:
    """Replaces values by ``[NAME]``."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._labels: dict[str, str] = {}
        for name, value in variables.items():
            if len(value) >= MIN_CHARACTERS:
                for spelling in _spellings(value):
                    self._labels.setdefault(spelling, f"[{name}]")
        # Longest first: of two values that begin alike, the whole of the longer one goes.
        self._values = sorted(self._labels, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, self._values)))
        first = "".join(re.escape(value[0]) for value in self._values)
        self._beginning = re.compile(f"[{first}]") if first else self._pattern

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to look for."""
        return not self._values

    def text(self, text: str) -> str:
        """Return ``text`` with every value replaced."""
        if not any(value in text for value in self._values):
            return text
        return self._pattern.sub(lambda match: self._labels[match.group()], text)

    def json(self, value: Any, depth: int = 0) -> Any:
        """Return plain JSON with every value in its texts and names replaced."""
        if not self._values:
            return value
        if isinstance(value, str):
            return self.text(value)
        if depth > MAX_DEPTH:
            # Nothing legible is so deep; nothing unseen goes out.
            return None
        if isinstance(value, dict):
            return {self.text(k): self.json(item, depth + 1) for k, item in value.items()}
        if isinstance(value, list):
            return [self.json(item, depth + 1) for item in value]
        return value

    def split(self, text: str) -> tuple[str, str]:
        """Return what of ``text`` can be shown, replaced, and its end that must wait.

        The end is what may be the beginning of a value; it is shorter than the longest value.
        """
        boundary = self._boundary(text, 0)
        shown, position = [], 0
        for match in self._pattern.finditer(text):
            if match.start() >= boundary:
                break
            shown += [text[position : match.start()], self._labels[match.group()]]
            position = match.end()
        if position > boundary:
            boundary = self._boundary(text, position)
        return "".join([*shown, text[position:boundary]]), text[boundary:]

    def _boundary(self, text: str, position: int) -> int:
        longest = len(self._values[0]) - 1
        for match in self._beginning.finditer(text, max(position, len(text) - longest)):
            tail = text[match.start() :]
            if any(len(tail) < len(value) and value.startswith(tail) for value in self._values):
                return match.start()
        return len(text)


class MaskedStream:
    """One output stream: what may be the beginning of a value waits for what follows."""

    def __init__(self, masker: Masker) -> None:
        self._masker = masker
        self._held = ""

    def feed(self, text: str) -> str:
        """Return what may be shown of what came so far."""
        shown, self._held = self._masker.split(self._held + text)
        return shown

    def flush(self) -> str:
        """Return what was held back: nothing follows it."""
        held, self._held = self._held, ""
        return self._masker.text(held)


def _spellings(value: str) -> list[str]:
    return [
        value,
        repr(value)[1:-1],
        ascii(value)[1:-1],
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        html.escape(value),
    ]
