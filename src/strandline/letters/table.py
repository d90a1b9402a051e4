"""Dead letters in a table of a SQLite file, beside the panes, with the marks of redrives in tables of their own."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from strandline.errors import SetupError, SinkError
from strandline.kernel.letters import PUBLIC
from strandline.letters.store import KEPT, NEW, REDRIVE, REDRIVEN, STATE, Marks, Redrive, in_order, now

_BEGUN: Final = """CREATE TABLE IF NOT EXISTS strandline_redrives (
    letters TEXT PRIMARY KEY, id TEXT, ids TEXT, before TEXT, began TEXT)"""
_MARKS: Final = """CREATE TABLE IF NOT EXISTS strandline_redriven (
    letters TEXT, id TEXT, redrive TEXT, at TEXT, PRIMARY KEY (letters, id))"""
_TIMES: Final = ("event_time", "first_seen")


@dataclass(frozen=True, slots=True)
class TableLetters:
    """A file, and the table in it. Each call is a transaction of its own; a job may write at the same time."""

    path: str
    table: str

    @property
    def name(self) -> str:
        return f"{self.path}, table {self.table}"

    def read(self) -> pl.DataFrame:
        with self._transaction() as cursor:
            columns = self._columns(cursor)
            wanted = ", ".join(_quoted(name) if name in columns else f"NULL AS {_quoted(name)}" for name in PUBLIC)
            rows = []
            if columns:
                cursor.execute(f"SELECT {wanted} FROM {_quoted(self.table)}")  # noqa: S608 - quoted names
                rows = cursor.fetchall()
            cursor.execute("SELECT id, redrive FROM strandline_redriven WHERE letters = ?", [self.table])
            marked = dict(cursor.fetchall())
        written = {name: pl.String if name in _TIMES else kind for name, kind in PUBLIC.items()}
        found = pl.DataFrame(rows, schema=written, orient="row")
        times = [pl.col(name).str.to_datetime("%Y-%m-%d %H:%M:%S%.3f").dt.timestamp("ms") for name in _TIMES]
        marks = pl.Series(REDRIVE, [marked.get(each) for each in found["id"]], pl.String)
        state = pl.when(pl.col(REDRIVE).is_null()).then(pl.lit(NEW)).otherwise(pl.lit(REDRIVEN)).alias(STATE)
        return in_order(found.with_columns(*times, marks).with_columns(state).select(*KEPT))

    def begun(self) -> Redrive | None:
        with self._transaction() as cursor:
            return self._begun(cursor)

    def _begun(self, cursor: sqlite3.Cursor) -> Redrive | None:
        cursor.execute("SELECT id, ids, before FROM strandline_redrives WHERE letters = ?", [self.table])
        found = cursor.fetchone()
        return None if found is None else Redrive(found[0], tuple(json.loads(found[1])), json.loads(found[2]))

    def begin(self, redrive: Redrive) -> None:
        with self._transaction() as cursor:
            known = self._begun(cursor)
            if known is not None and known.id != redrive.id:
                raise SinkError(f"another redrive of {self.name} has begun", hint="let it end, then try again")
            values = [self.table, redrive.id, json.dumps(redrive.letters), json.dumps(redrive.before), now()]
            cursor.execute("INSERT OR REPLACE INTO strandline_redrives VALUES (?, ?, ?, ?, ?)", values)

    def marks(self, redrive: Redrive, sent: Sequence[str]) -> Marks | None:  # noqa: ARG002 - no source shares its transactions
        return None

    def finish(self, redrive: Redrive, sent: Sequence[str]) -> None:
        with self._transaction() as cursor:
            cursor.executemany(
                "INSERT OR IGNORE INTO strandline_redriven VALUES (?, ?, ?, ?)",
                [[self.table, each, redrive.id, now()] for each in sent],
            )
            cursor.execute("DELETE FROM strandline_redrives WHERE letters = ? AND id = ?", [self.table, redrive.id])

    def drop(self, ids: Sequence[str]) -> int:
        with self._transaction() as cursor:
            if not self._columns(cursor):
                return 0
            ask = f"DELETE FROM {_quoted(self.table)} WHERE id = ?"  # noqa: S608 - a quoted name
            return sum(cursor.execute(ask, [each]).rowcount for each in ids)

    def close(self) -> None:
        pass

    def _columns(self, cursor: sqlite3.Cursor) -> set[str]:
        """The table comes with its first letter."""
        return {row[1] for row in cursor.execute(f"PRAGMA table_info({_quoted(self.table)})")}

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        if not Path(self.path).is_file():
            raise SetupError(f"there is no file {self.path}", hint="run the pipeline first, from the same folder")
        try:
            with closing(sqlite3.connect(self.path, isolation_level=None, timeout=30)) as connection:
                cursor = connection.cursor()
                cursor.execute("BEGIN IMMEDIATE")
                for table in (_BEGUN, _MARKS):
                    cursor.execute(table)
                yield cursor
                cursor.execute("COMMIT")
        except sqlite3.Error as problem:
            raise SinkError(f"{self.path} cannot be used", detail=str(problem)) from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
