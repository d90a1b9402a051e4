"""Store dead letters in a database table beside the panes, and redrive marks in tables of their own."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import polars as pl

from strandline.connectors.sql.dialect import Dialect
from strandline.formats.sink_columns import Column, Kind
from strandline.kernel.dead_letters import PUBLIC
from strandline.letters.store import TIMES, Marks, Redrive, marked, now, refuse_overlap

Item = TypeVar("Item")

_BEGUN: Final = "strandline_redrives"
_MARKS: Final = "strandline_redriven"
_COLUMNS: Final = {_BEGUN: ("letters", "id", "ids", "before", "began"), _MARKS: ("letters", "id", "redrive", "at")}
_KEYS: Final = {_BEGUN: ("letters",), _MARKS: ("letters", "id")}
_ROWS_PER_STATEMENT: Final = 500
"""Rows per statement, since a statement takes a limited number of values."""


@dataclass(frozen=True, slots=True)
class TableLetters:
    """A dead-letter table and its database. Each call is one transaction; a job may write in between."""

    place: str
    table: str
    connect: Callable[[], Dialect]

    @property
    def name(self) -> str:
        return f"{self.place}, table {self.table}"

    def read(self) -> pl.DataFrame:
        with self._transaction() as database:
            found, marks = self._envelopes(database), self._redriven(database)
        return marked(pl.DataFrame(found, schema=PUBLIC, orient="row"), marks)

    def begun(self) -> Redrive | None:
        with self._transaction() as database:
            return self._begun(database)

    def begin(self, redrive: Redrive) -> None:
        with self._exclusive_transaction() as database:
            refuse_overlap(redrive, self._begun(database), self._redriven(database), self.name)
            facts = [self.table, redrive.id, json.dumps(redrive.letters), json.dumps(redrive.before), now()]
            _insert(database, _BEGUN, [facts])

    def marks(self, redrive: Redrive, sent: Sequence[str]) -> Marks | None:  # noqa: ARG002 - no source shares its transactions
        return None

    def finish(self, redrive: Redrive, sent: Sequence[str]) -> None:
        with self._exclusive_transaction() as database:
            _insert(database, _MARKS, [[self.table, each, redrive.id, now()] for each in sent])
            database.execute(f"DELETE FROM {_BEGUN} WHERE letters = ? AND id = ?", [self.table, redrive.id])

    def drop(self, ids: Sequence[str]) -> int:
        with self._transaction() as database:
            if not database.columns(self.table):
                return 0
            gone: set[str] = set()
            for some in _parts(ids):
                which = ", ".join("?" * len(some))
                query = f"DELETE FROM {database.quoted(self.table)} WHERE id IN ({which}) RETURNING id"
                gone |= {id_ for (id_,) in database.execute(query, some)}
            return len(gone)

    def close(self) -> None:
        pass

    def _envelopes(self, database: Dialect) -> list[tuple[Any, ...]]:
        """Read the letters. The table is created with its first letter, and one of an earlier version may lack
        columns."""
        columns = database.columns(self.table)
        if not columns:
            return []
        shown = [(database.milliseconds if name in TIMES else database.quoted)(name) for name in PUBLIC]
        known = [column if name in columns else "NULL" for name, column in zip(PUBLIC, shown, strict=True)]
        return database.execute(f"SELECT {', '.join(known)} FROM {database.quoted(self.table)}")

    def _redriven(self, database: Dialect) -> dict[str, str]:
        """Read the redrive marks without creating tables."""
        if not database.columns(_MARKS):
            return {}
        return dict(database.execute(f"SELECT id, redrive FROM {_MARKS} WHERE letters = ?", [self.table]))

    def _begun(self, database: Dialect) -> Redrive | None:
        if not database.columns(_BEGUN):
            return None
        query = f"SELECT id, ids, {database.quoted('before')} FROM {_BEGUN} WHERE letters = ?"
        found = database.execute(query, [self.table])
        return None if not found else Redrive(found[0][0], tuple(json.loads(found[0][1])), json.loads(found[0][2]))

    @contextmanager
    def _exclusive_transaction(self) -> Iterator[Dialect]:
        """Run an exclusive transaction that first creates the redrive tables."""
        with self._transaction() as database:
            if database.traits.creation_lock:
                database.execute(database.traits.creation_lock)
            text = database.type_of(Column("", Kind.TEXT))
            for table, names in _COLUMNS.items():
                columns = ", ".join(f"{database.quoted(name)} {text}" for name in names)
                key = ", ".join(_KEYS[table])
                database.execute(f"CREATE TABLE IF NOT EXISTS {table} ({columns}, PRIMARY KEY ({key}))")
            yield database

    @contextmanager
    def _transaction(self) -> Iterator[Dialect]:
        database = self.connect()
        try:
            with database.transaction():
                yield database
        finally:
            database.close()


def _insert(database: Dialect, table: str, rows: Sequence[Sequence[str]]) -> None:
    """Insert rows whose keys are not in the table yet."""
    names = ", ".join(map(database.quoted, _COLUMNS[table]))
    for some in _parts(rows):
        each = f"({', '.join('?' * len(_COLUMNS[table]))})"
        values = [value for row in some for value in row]
        query = f"INSERT INTO {table} ({names}) VALUES {', '.join([each] * len(some))} ON CONFLICT DO NOTHING"
        database.execute(query, values)


def _parts(rows: Sequence[Item]) -> list[Sequence[Item]]:
    return [rows[start : start + _ROWS_PER_STATEMENT] for start in range(0, len(rows), _ROWS_PER_STATEMENT)]
