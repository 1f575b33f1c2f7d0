"""Settings of the process and of the interpreter."""

from __future__ import annotations

import decimal
import locale
import os
import sys
from typing import Any


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask


class Limits:
    """umask, recursion limit, digits of integers."""

    name = "limits"

    def __init__(self) -> None:
        self._before = self._read()

    def collect(self) -> dict[str, int] | None:
        """Return what differs."""
        return {k: v for k, v in self._read().items() if v != self._before[k]} or None

    def apply(self, carried: dict[str, int]) -> list[str]:
        """Set them."""
        if "umask" in carried:
            os.umask(carried["umask"])
        if "recursion" in carried:
            sys.setrecursionlimit(carried["recursion"])
        if "digits" in carried:
            sys.set_int_max_str_digits(carried["digits"])
        return []

    @staticmethod
    def _read() -> dict[str, int]:
        return {
            "umask": _umask(),
            "recursion": sys.getrecursionlimit(),
            "digits": sys.get_int_max_str_digits(),
        }


class Locale:
    """``locale.setlocale``."""

    name = "locale"

    def __init__(self) -> None:
        self._before = locale.setlocale(locale.LC_ALL)

    def collect(self) -> str | None:
        """Return the locale."""
        now = locale.setlocale(locale.LC_ALL)
        return None if now == self._before else now

    def apply(self, carried: str) -> list[str]:
        """Set it."""
        try:
            locale.setlocale(locale.LC_ALL, carried)
        except locale.Error:
            return [f"[state] the locale {carried!r} does not exist here"]
        return []


class Decimals:
    """The decimal context that cells compute in.

    Cells run in copies of this process's context: the object made here is the one they change.
    """

    name = "decimal"

    def __init__(self) -> None:
        self._before = _parts(decimal.getcontext())

    def collect(self) -> dict[str, Any] | None:
        """Return what differs."""
        now = _parts(decimal.getcontext())
        return {k: v for k, v in now.items() if v != self._before[k]} or None

    def apply(self, carried: dict[str, Any]) -> list[str]:
        """Set it."""
        context = decimal.getcontext()
        for name, value in carried.items():
            if name in ("traps", "flags"):
                signals: Any = getattr(context, name)
                for signal in signals:
                    signals[signal] = signal.__name__ in value
            else:
                setattr(context, name, value)
        return []


def _parts(context: decimal.Context) -> dict[str, Any]:
    return {
        "prec": context.prec,
        "rounding": context.rounding,
        "Emin": context.Emin,
        "Emax": context.Emax,
        "capitals": context.capitals,
        "clamp": context.clamp,
        "traps": [signal.__name__ for signal, on in context.traps.items() if on],
        "flags": [signal.__name__ for signal, on in context.flags.items() if on],
    }
