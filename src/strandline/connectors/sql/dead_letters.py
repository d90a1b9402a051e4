"""Dead letters in a table of a database, beside the panes, with the marks of redrives in tables of their own."""

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

Each = TypeVar("Each")

_BEGUN: Final = "strandline_redrives"
_MARKS: Final = "strandline_redriven"
_COLUMNS: Final = {_BEGUN: ("letters", "id", "ids", "before", "began"), _MARKS: ("letters", "id", "redrive", "at")}
_KEYS: Final = {_BEGUN: ("letters",), _MARKS: ("letters", "id")}
_AT_ONCE: Final = 500
"""Rows of one statement, since a statement has only so many values."""


@dataclass(frozen=True, slots=True)
class TableLetters:
    """A table, and how its database is reached. Each call is a transaction of its own; a job may write meanwhile."""

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
        with self._alone() as database:
            refuse_overlap(redrive, self._begun(database), self._redriven(database), self.name)
            facts = [self.table, redrive.id, json.dumps(redrive.letters), json.dumps(redrive.before), now()]
            _insert(database, _BEGUN, [facts])

    def marks(self, redrive: Redrive, sent: Sequence[str]) -> Marks | None:  # noqa: ARG002 - no source shares its transactions
        return None

    def finish(self, redrive: Redrive, sent: Sequence[str]) -> None:
        with self._alone() as database:
            _insert(database, _MARKS, [[self.table, each, redrive.id, now()] for each in sent])
            database.execute(f"DELETE FROM {_BEGUN} WHERE letters = ? AND id = ?", [self.table, redrive.id])

    def drop(self, ids: Sequence[str]) -> int:
        with self._transaction() as database:
            if not database.columns(self.table):
                return 0
            gone: set[str] = set()
            for some in _parts(ids):
                which = ", ".join("?" * len(some))
                ask = f"DELETE FROM {database.quoted(self.table)} WHERE id IN ({which}) RETURNING id"
                gone |= {id_ for (id_,) in database.execute(ask, some)}
            return len(gone)

    def close(self) -> None:
        pass

    def _envelopes(self, database: Dialect) -> list[tuple[Any, ...]]:
        """The table comes with its first letter; one of an earlier version may lack columns."""
        columns = database.columns(self.table)
        if not columns:
            return []
        shown = [(database.milliseconds if name in TIMES else database.quoted)(name) for name in PUBLIC]
        known = [told if name in columns else "NULL" for name, told in zip(PUBLIC, shown, strict=True)]
        return database.execute(f"SELECT {', '.join(known)} FROM {database.quoted(self.table)}")

    def _redriven(self, database: Dialect) -> dict[str, str]:
        """Who only looks makes no tables."""
        if not database.columns(_MARKS):
            return {}
        return dict(database.execute(f"SELECT id, redrive FROM {_MARKS} WHERE letters = ?", [self.table]))

    def _begun(self, database: Dialect) -> Redrive | None:
        if not database.columns(_BEGUN):
            return None
        ask = f"SELECT id, ids, {database.quoted('before')} FROM {_BEGUN} WHERE letters = ?"
        found = database.execute(ask, [self.table])
        return None if not found else Redrive(found[0][0], tuple(json.loads(found[0][1])), json.loads(found[0][2]))

    @contextmanager
    def _alone(self) -> Iterator[Dialect]:
        """A transaction that no other of its kind overlaps, with the tables that it needs."""
        with self._transaction() as database:
            if database.traits.alone:
                database.execute(database.traits.alone)
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
    """Adds rows, but those whose keys are there."""
    names = ", ".join(map(database.quoted, _COLUMNS[table]))
    for some in _parts(rows):
        each = f"({', '.join('?' * len(_COLUMNS[table]))})"
        told = [value for row in some for value in row]
        ask = f"INSERT INTO {table} ({names}) VALUES {', '.join([each] * len(some))} ON CONFLICT DO NOTHING"
        database.execute(ask, told)


def _parts(rows: Sequence[Each]) -> list[Sequence[Each]]:
    return [rows[start : start + _AT_ONCE] for start in range(0, len(rows), _AT_ONCE)]
