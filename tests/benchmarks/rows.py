"""The lines that benchmarks print."""

from __future__ import annotations

from collections.abc import Callable

Row = Callable[..., object]


def row(name: str, value: str, *notes: str) -> None:
    """Print one line of the table."""
    print(f"{name:<58} {value:>14}   {'   '.join(notes)}", flush=True)
