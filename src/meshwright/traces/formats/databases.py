"""Databases (SQLite) that profilers write: the reader of each is chosen by its tables."""

import contextlib
import sqlite3

from ...errors import InputError
from . import nsys, rocpd
from .collector import Collector
from .events import TraceHead
from .opening import Source
from .sqlite_tables import opened_base, tables_in


def collected(source: Source) -> tuple[Collector, TraceHead, str]:
    """Return the events of a database, what stands beside them, and a note for the reader; InputError if none."""
    try:
        with contextlib.closing(opened_base(source)) as connection:
            tables = tables_in(connection)
            collect = rocpd.collected if rocpd.is_rocpd(tables) else nsys.collected
            return collect(source, connection, tables)
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter: damaged names in its message
        raise InputError(f"{source}: not an SQLite export of nsys or rocprofv3: {error}") from None
