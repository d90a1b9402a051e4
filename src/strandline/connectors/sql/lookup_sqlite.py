"""Look rows up in a table of a SQLite file, which other processes may write meanwhile."""

import sqlite3
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from strandline.connectors.sql.lookup_columns import refuse_missing_columns, refuse_other_types
from strandline.connectors.sql.read_only_sqlite import connect_to_read
from strandline.connectors.sql.sqlite import affinity_of
from strandline.errors import InvalidStep, LookupFailed, LookupUnavailable
from strandline.formats.lookup_rows import columns_of, typed_rows
from strandline.model import ddl
from strandline.model.arguments import checked
from strandline.ports.local_path import local_path
from strandline.ports.lookups import REQUEST_SECONDS

_VARIABLES: Final = 30_000
"""SQLite takes 32,766 values in a statement."""
_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_INTERRUPT)


@dataclass(frozen=True, slots=True)
class SqliteLookup:
    """A SQLite file and its table, with the columns that are read."""

    path: str
    table: str
    columns: str

    @property
    def name(self) -> str:
        return f"lookup_sqlite({self.table!r})"

    @property
    def table_columns(self) -> Mapping[str, str]:
        return ddl.parse(self.columns)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return ()

    @property
    def most_keys(self) -> None:
        return None

    def check(self, keys: Sequence[str]) -> None:  # noqa: ARG002 - all columns are checked
        table = OpenSqliteLookup(self, (), ())
        try:
            found = table.types()
        finally:
            table.close()
        what = f"the table {self.table!r} of {self.path}"
        refuse_missing_columns(what, found, self.table_columns)
        refuse_other_types(what, found, self.table_columns, _fits)

    def open(self, keys: Sequence[str], columns: Sequence[str]) -> "OpenSqliteLookup":
        return OpenSqliteLookup(self, tuple(keys), tuple(columns))


@checked
def lookup_sqlite(path: str | Path, columns: str, *, table: str) -> SqliteLookup:
    """Look rows up in a SQLite file: `lookup_sqlite("shop.db", "user_id long, name string", table="users")`."""
    columns_of(columns, "lookup_sqlite")
    if not table:
        raise InvalidStep("the table has no name", hint='as in table="users"')
    return SqliteLookup(local_path(path, "sqlite"), table, columns)


class OpenSqliteLookup:
    """A connection to read for each thread."""

    def __init__(self, lookup: SqliteLookup, keys: tuple[str, ...], columns: tuple[str, ...]) -> None:
        self._lookup, self._keys, self._names = lookup, keys, (*keys, *columns)
        self._local = threading.local()
        self._opened: list[sqlite3.Connection] = []

    def types(self) -> dict[str, str]:
        """Return the table's columns with their declared types; raise if there is no such table."""
        rows = self._execute(f"PRAGMA table_info({_quoted(self._lookup.table)})", ())
        if not rows:
            raise LookupFailed(f"{self._lookup.path} has no table {self._lookup.table!r}", hint="check the name")
        return {str(row[1]): str(row[2]) for row in rows}

    def rows(self, keys: pl.DataFrame) -> pl.DataFrame:
        kinds = {name: self._lookup.table_columns[name] for name in self._names}
        found: list[tuple[object, ...]] = []
        for part in keys.iter_slices(max(1, _VARIABLES // len(self._keys))):
            found += self._execute(self._query(part.height), [each for row in part.rows() for each in row])
        return typed_rows(kinds, found)

    def _query(self, many: int) -> str:
        shown = ", ".join(f"t.{_quoted(name)}" for name in self._names)
        marks = ", ".join([f"({', '.join('?' * len(self._keys))})"] * many)
        equal = " AND ".join(f"t.{_quoted(name)} = w.column{place}" for place, name in enumerate(self._keys, 1))
        return f"SELECT {shown} FROM (VALUES {marks}) w JOIN {_quoted(self._lookup.table)} t ON {equal}"

    def _execute(self, statement: str, values: Sequence[object]) -> list[tuple[object, ...]]:
        path = self._lookup.path
        try:
            return self._connection().execute(statement, values).fetchall()
        except (sqlite3.Error, OSError) as problem:
            code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
            if code in _BUSY:
                raise LookupUnavailable(f"{path} cannot be read now", detail=str(problem)) from None
            raise LookupFailed(f"{path} cannot be read", detail=str(problem), hint="check path and table") from None

    def _connection(self) -> sqlite3.Connection:
        known: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if known is None:
            known = self._local.connection = connect_to_read(Path(self._lookup.path), REQUEST_SECONDS)
            # The reader's own limit counts from the moment at which it opens the file.
            known.set_progress_handler(None, 0)
            self._opened.append(known)
        return known

    def close(self) -> None:
        for each in self._opened:
            each.close()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _fits(kind: str, declared: str) -> bool:
    """Tell whether a column of a declared type may hold values of a type; SQLite itself types values."""
    found = affinity_of(declared)
    if found in ("BLOB", "NUMERIC"):
        return True
    match kind.partition("(")[0].lower():
        case "string" | "timestamp" | "timestamp_ntz" | "date":
            return found == "TEXT"
        case "double" | "float":
            return found in ("REAL", "INTEGER")
        case "decimal":
            return found in ("TEXT", "INTEGER")
        case "binary":
            return False
    return found == "INTEGER"
