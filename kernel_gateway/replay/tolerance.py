"""Numbers that may differ a little, where a file of rules says so."""

from __future__ import annotations

import math
from dataclasses import dataclass

import re2

_NUMBER = re2.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_MARKS_OF_A_FLOAT = (b".", b"e", b"E")


@dataclass(frozen=True, slots=True, kw_only=True)
class Floats:
    """How far two numbers may be apart.

    Attributes:
        relative: to the greater of the two.
        absolute: in itself.
    """

    relative: float = 0.0
    absolute: float = 0.0

    @property
    def is_set(self) -> bool:
        """Return whether any two numbers that differ can be close."""
        return self.relative > 0 or self.absolute > 0

    def close(self, one: bytes, other: bytes) -> bool:
        """Return whether two texts are the same but for floats that are close, and for spaces."""
        numbers, others = _NUMBER.findall(one), _NUMBER.findall(other)
        if len(numbers) != len(others) or _between(one) != _between(other):
            return False
        return all(map(self._is_close, numbers, others))

    def _is_close(self, one: bytes, other: bytes) -> bool:
        if one == other:
            return True
        if not (_is_float(one) or _is_float(other)):
            return False
        return math.isclose(float(one), float(other), rel_tol=self.relative, abs_tol=self.absolute)


def _is_float(number: bytes) -> bool:
    return any(mark in number for mark in _MARKS_OF_A_FLOAT)


def _between(text: bytes) -> list[list[bytes]]:
    """Return the words between the numbers: a table's columns are as wide as its numbers."""
    return [piece.split() for piece in _NUMBER.split(text)]
