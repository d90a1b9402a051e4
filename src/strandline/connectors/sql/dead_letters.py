"""Store dead letters in a database table beside the panes, and redrive marks in tables of their own."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
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
_LETTERS_AT_ONCE: Final = 5_000
_RECORDS_AT_ONCE: Final = 200
"""Letters that are read at once; fewer with their records, of which each may be large."""
_ROWS_PER_STATEMENT: Final = 500
"""Rows per statement, since a statement takes a limited number of values."""


@dataclass(frozen=True, slots=True)
class TableLetters:
    """A dead-letter table and its database. Each call is one transaction; a job may write in between."""

    place: str
    table: str
    connect: Callable[[], Dialect]
    connect_to_read: Callable[[], Dialect] | None = None
    """Opens the database so that nothing can be written, where it can."""

    @property
    def name(self) -> str:
        return f"{self.place}, table {self.table}"

    def read(self) -> pl.DataFrame:
        with self._reading() as database:
            found, marks = self._envelopes(database), self._redriven(database)
        return marked(pl.DataFrame(found, schema=PUBLIC, orient="row"), marks)

    def pages(self, *, raw: bool = True, id_: str | None = None) -> Iterator[pl.DataFrame]:
        """Read the letters some at a time, each time in a short transaction; without their records unless `raw`."""
        last, seen = -1, set[int]()
        while True:
            with self._reading() as database:
                if not database.traits.row_id:
                    break
                rows = self._page(database, last, raw=raw, id_=id_)
                if not rows:
                    return
                last = rows[-1][0]
                letters = pl.DataFrame([row[1:] for row in rows], schema=PUBLIC, orient="row")
                marks = self._redriven(database, letters["id"].drop_nulls().to_list())
            new = [each is None or hash(each) not in seen for each in letters["id"]]
            seen |= {hash(each) for each in letters["id"] if each is not None}
            yield marked(letters.filter(pl.Series(new, dtype=pl.Boolean)), marks)
        letters = self.read()
        yield letters if id_ is None else letters.filter(pl.col("id") == id_)

    def begun(self) -> Redrive | None:
        with self._reading() as database:
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
        """Read the letters. The table is created with its first letter."""
        known = self._shown(database)
        return database.execute(f"SELECT {', '.join(known)} FROM {database.quoted(self.table)}") if known else []

    def _page(self, database: Dialect, last: int, *, raw: bool, id_: str | None) -> list[tuple[Any, ...]]:
        """Read the letters after a row, each after its row number."""
        known = self._shown(database, () if raw else ("raw",))
        if not known:
            return []
        number, which = database.traits.row_id, "" if id_ is None else " AND id = ?"
        most = _RECORDS_AT_ONCE if raw else _LETTERS_AT_ONCE
        query = (
            f"SELECT {', '.join([number, *known])} FROM {database.quoted(self.table)} WHERE {number} > ?{which} "
            f"ORDER BY {number} LIMIT {most}"
        )
        return database.execute(query, [last, *([] if id_ is None else [id_])])

    def _shown(self, database: Dialect, without: Collection[str] = ()) -> list[str]:
        """Return the expression of each field. A table of an earlier version may lack columns."""
        columns = database.columns(self.table).keys() - set(without)
        shown = [(database.milliseconds if name in TIMES else database.quoted)(name) for name in PUBLIC]
        known = [column if name in columns else "NULL" for name, column in zip(PUBLIC, shown, strict=True)]
        return known if columns else []

    def _redriven(self, database: Dialect, ids: Sequence[str] | None = None) -> dict[str, str]:
        """Read the redrive marks, of all letters or of these, without creating tables."""
        if not database.columns(_MARKS):
            return {}
        query = f"SELECT id, redrive FROM {_MARKS} WHERE letters = ?"
        if ids is None:
            return dict(database.execute(query, [self.table]))
        found: dict[str, str] = {}
        for some in _parts(ids):
            which = ", ".join("?" * len(some))
            found |= dict(database.execute(f"{query} AND id IN ({which})", [self.table, *some]))
        return found

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

    def _transaction(self) -> AbstractContextManager[Dialect]:
        return _transaction_of(self.connect)

    def _reading(self) -> AbstractContextManager[Dialect]:
        return _transaction_of(self.connect_to_read or self.connect)


@contextmanager
def _transaction_of(connect: Callable[[], Dialect]) -> Iterator[Dialect]:
    database = connect()
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
