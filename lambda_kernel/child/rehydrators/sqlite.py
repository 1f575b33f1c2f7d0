"""SQLite: a database in memory is stored, a file is opened again."""

from __future__ import annotations

import sqlite3
from typing import Any

from lambda_kernel.child.rehydrators.places import require_kept
from lambda_kernel.child.rehydrators.registry import NotCarried

_SETTINGS = ("foreign_keys", "busy_timeout", "recursive_triggers", "temp_store", "cache_size")


def reduce_connection(connection: Any) -> Any:
    """Carry its databases and settings."""
    try:
        in_transaction = connection.in_transaction
        listed = _rows(connection, "PRAGMA database_list")
    except sqlite3.ProgrammingError:
        return make_closed, (type(connection),)
    if in_transaction:
        raise NotCarried("its transaction is not finished", "{name}.commit()")
    _refuse_own_functions(connection)
    if _rows(connection, "SELECT name FROM sqlite_temp_master"):
        raise NotCarried("it has temporary tables", "drop them, or make them ordinary tables")
    databases = [_database(connection, name, path) for _, name, path in listed if name != "temp"]
    state = {
        "isolation_level": connection.isolation_level,
        "text_factory": connection.text_factory,
        "row_factory": connection.row_factory,
        "settings": {name: _rows(connection, f"PRAGMA {name}")[0][0] for name in _SETTINGS},
    }
    kinds = _detect_types(connection)
    return make_connection, (type(connection), databases, kinds), state, None, None, _set_state


def make_connection(cls: Any, databases: list[tuple[str, str, Any]], kinds: int) -> Any:
    """Return a connection to the same databases."""
    (_, path, content), *others = databases
    connection = _connect(cls, path, kinds)
    if content is not None:
        connection.deserialize(content)
    for name, path, content in others:
        connection.execute(f'ATTACH ? AS "{name}"', (path,))
        if content is not None:
            connection.deserialize(content, name=name)
    return connection


def make_closed(cls: Any) -> Any:
    """Return a closed connection."""
    connection = _connect(cls, ":memory:", 0)
    connection.close()
    return connection


def _connect(cls: Any, path: str, kinds: int) -> Any:
    return sqlite3.connect(path, detect_types=kinds, check_same_thread=False, factory=cls)


def _set_state(connection: Any, state: dict[str, Any]) -> None:
    for name, value in state.pop("settings").items():
        connection.execute(f"PRAGMA {name} = {value}")
    for name, value in state.items():
        setattr(connection, name, value)


def _database(connection: Any, name: str, path: str) -> tuple[str, str, Any]:
    # What was deserialized has a name that is no path.
    if path.startswith("/"):
        return name, require_kept(path, "keep the file in the working directory"), None
    content = connection.serialize(name=name)
    return name, ":memory:", content if len(content) else None


def _rows(connection: Any, query: str) -> list[tuple[Any, ...]]:
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = None
    return cursor.execute(query).fetchall()


def _refuse_own_functions(connection: Any) -> None:
    query = "SELECT DISTINCT name FROM pragma_function_list WHERE builtin = 0"
    plain = sqlite3.connect(":memory:")
    try:
        added = set(_rows(connection, query)) - set(_rows(plain, query))
    finally:
        plain.close()
    if added:
        names = ", ".join(sorted(name for (name,) in added))
        raise NotCarried(
            f"it has functions of its process ({names})",
            "connect and create them in the cell that uses them",
        )


def _detect_types(connection: Any) -> int:
    # No attribute tells; how it treats names and declared types does.
    kinds = 0
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = None
    cursor.execute('SELECT 1 AS "a [b]"')
    if cursor.description[0][0] == "a":
        kinds |= sqlite3.PARSE_COLNAMES
    sqlite3.register_converter("lkgprobe", lambda raw: "converted")
    cursor.execute("CREATE TEMP TABLE lkg_probe (a lkgprobe)")
    level, connection.isolation_level = connection.isolation_level, None
    cursor.execute("INSERT INTO lkg_probe VALUES (1)")
    rows = cursor.execute("SELECT a FROM lkg_probe").fetchall()
    connection.isolation_level = level
    cursor.execute("DROP TABLE lkg_probe")
    return kinds | (sqlite3.PARSE_DECLTYPES if rows == [("converted",)] else 0)
