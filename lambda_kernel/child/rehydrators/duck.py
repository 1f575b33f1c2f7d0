"""DuckDB: a database in memory is copied into a file of bytes, a file is opened again."""

from __future__ import annotations

import importlib
import tempfile
import uuid
import weakref
from pathlib import Path
from typing import Any

from lambda_kernel.child.rehydrators.places import require_kept
from lambda_kernel.child.rehydrators.registry import NotCarried

_MARK = "lkg_mark_"
_first: dict[str, weakref.ref[Any]] = {}


def reduce_connection(connection: Any) -> Any:
    """Carry what it is connected to."""
    try:
        cursor = connection.cursor()
    except Exception:  # noqa: BLE001  (the error's class is the library's)
        return make_closed, ()
    _refuse_transaction(connection)
    # Temporary tables are seen by their own connection only.
    _refuse_of_the_process(connection)
    listed = cursor.execute(
        "SELECT database_name, path FROM duckdb_databases() WHERE NOT internal"
    ).fetchall()
    mark = next((name for name, _ in listed if name.startswith(_MARK)), None)
    other = _first[mark]() if mark in _first else None
    if other is not None and other is not connection:
        # Two connections to one database stay two connections to one database.
        return make_cursor, (other,)
    if mark is None:
        mark = _MARK + uuid.uuid4().hex
        cursor.execute(f"ATTACH ':memory:' AS {mark}")
        _first[mark] = weakref.ref(connection)
    current = cursor.execute("SELECT current_database()").fetchone()[0]
    databases = [
        _database(cursor, name, path) for name, path in listed if not name.startswith(_MARK)
    ]
    databases.sort(key=lambda database: database[0] != current)
    return make_connection, (databases,)


def make_connection(databases: list[tuple[str, str | None, bytes | None]]) -> Any:
    """Return a connection to the same databases."""
    duckdb = importlib.import_module("duckdb")
    (name, path, content), *others = databases
    connection = duckdb.connect(path or ":memory:")
    if content is not None:
        _fill(connection, name, content)
    for name, path, content in others:
        connection.execute(f"ATTACH '{path or ':memory:'}' AS \"{name}\"")
        if content is not None:
            _fill(connection, name, content)
    return connection


def make_cursor(connection: Any) -> Any:
    """Return another connection to the same database."""
    return connection.cursor()


def make_closed() -> Any:
    """Return a closed connection."""
    connection = importlib.import_module("duckdb").connect(":memory:")
    connection.close()
    return connection


def _database(cursor: Any, name: str, path: str | None) -> tuple[str, str | None, bytes | None]:
    if path:
        cursor.execute(f'CHECKPOINT "{name}"')
        return name, require_kept(path, "keep the file in the working directory"), None
    with tempfile.TemporaryDirectory(prefix="lkg-") as folder:
        copy = Path(folder, "copy.duckdb")
        cursor.execute(f"ATTACH '{copy}' AS lkg_copy")
        cursor.execute(f'COPY FROM DATABASE "{name}" TO lkg_copy')
        cursor.execute("DETACH lkg_copy")
        return name, None, copy.read_bytes()


def _fill(connection: Any, name: str, content: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="lkg-") as folder:
        copy = Path(folder, "copy.duckdb")
        copy.write_bytes(content)
        connection.execute(f"ATTACH '{copy}' AS lkg_copy (READ_ONLY)")
        connection.execute(f'COPY FROM DATABASE lkg_copy TO "{name}"')
        connection.execute("DETACH lkg_copy")


def _refuse_transaction(connection: Any) -> None:
    try:
        connection.begin()
    except Exception as error:
        if "transaction" not in str(error):
            raise
        raise NotCarried("its transaction is not finished", "{name}.commit()") from None
    connection.rollback()


def _refuse_of_the_process(connection: Any) -> None:
    temporary = connection.execute(
        "SELECT table_name FROM duckdb_tables() WHERE temporary UNION ALL "
        "SELECT view_name FROM duckdb_views() WHERE temporary AND NOT internal"
    ).fetchall()
    if temporary:
        names = ", ".join(name for (name,) in temporary)
        raise NotCarried(
            f"it has temporary or registered tables ({names})",
            "make them ordinary tables: CREATE TABLE t AS FROM ...",
        )
