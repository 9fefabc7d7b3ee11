"""Databases of profilers (SQLite): which profiler wrote one, and rows of a table whatever its version.

Tables are made as they are needed, and columns were added over the years; SQLite holds no column to its type.
"""

import sqlite3
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from ...errors import InputError
from .opening import Source

MAGIC = b"SQLite format 3\x00"
_TIMES = ("start", "end")


def opened_base(source: Source) -> sqlite3.Connection:
    """Return a connection to a database that is only read; damaged names in it become what can be read of them."""
    try:
        connection = sqlite3.connect(f"file:{quote(str(source.path))}?mode=ro&immutable=1", uri=True)
    except sqlite3.Error as error:
        raise InputError(f"{source}: not an SQLite export of a profiler: {error}") from None
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    return connection


def tables_in(connection: sqlite3.Connection) -> set[str]:
    """Return the names of tables and views."""
    return {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type IN ('table', 'view')")}


def _columns(connection: sqlite3.Connection, table: str) -> set[str]:
    return {row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')}


def rows(connection: sqlite3.Connection, table: str, wanted: dict[str, str]) -> Iterator[tuple[Any, ...]]:
    """Yield the wanted columns of a table, {column: what stands for it where this version has none}."""
    present = _columns(connection, table)
    chosen = ", ".join(f'"{name}"' if name in present else otherwise for name, otherwise in wanted.items())
    kinds = [(str, int) if otherwise == "NULL" else (int,) for otherwise in wanted.values()]
    absent = [None if o == "NULL" or name in _TIMES else int(o) for name, o in wanted.items()]
    for row in connection.execute(f'SELECT {chosen} FROM "{table}"'):
        if all(value is None or isinstance(value, kind) for value, kind in zip(row, kinds, strict=True)):
            yield tuple(other if value is None else value for value, other in zip(row, absent, strict=True))
