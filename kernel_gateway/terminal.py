"""Untrusted text on its way to a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable

_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?")
"""What moves a terminal's cursor, colours it, or tells it something."""


def harmless_lines(lines: Iterable[str]) -> str:
    """Return lines that quote untrusted code, none of which it can make two of."""
    return harmless("\n".join(re.sub(r"\s", " ", line) for line in lines))


def harmless(text: str) -> str:
    """Return text of untrusted code without what a terminal would obey or not show."""
    plain = _SEQUENCE.sub("", text)
    return "".join(char for char in plain if char in "\n\t" or char.isprintable())
