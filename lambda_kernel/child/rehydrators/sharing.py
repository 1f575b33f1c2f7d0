"""What live objects share with others, where the garbage collector does not see it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

_LEAVES = frozenset(
    {"_duckdb", "boto3", "botocore", "duckdb", "httpx", "sqlite3", "_io", "subprocess", "tempfile"}
)
"""Modules whose live objects are made again from plain values: nobody shares their insides."""

_TOGETHER = {
    "_duckdb": "DuckDBPyConnection",
    "duckdb": "DuckDBPyConnection",
    "duckdb.duckdb": "DuckDBPyConnection",
}
"""Types whose objects may share what only they know: a database in memory."""


def parts_of(value: Any, referents: Callable[[Any], list[Any]]) -> list[Any]:
    """Return the objects that ``value`` may share with others."""
    if issubclass(type(value), weakref.finalize):
        return [value.peek()]
    top = str(type(value).__module__).partition(".")[0]
    return [] if top in _LEAVES else referents(value)


def partners_of(value: Any) -> str | None:
    """Return what all objects that must be stored together with ``value`` have in common."""
    cls = type(value)
    module = str(cls.__module__)
    return module if _TOGETHER.get(module) == cls.__qualname__ else None
