"""SQLite: the tables of one file, embedded."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.connectors.sql.dead_letters import TableLetters
from strandline.connectors.sql.dialect import Refusal, Traits
from strandline.connectors.sql.sink import OpenSql, Table, opened, table_of
from strandline.errors import SetupError, SinkError, SinkUnavailable
from strandline.formats.sink_columns import Column, Kind, Told
from strandline.model.elements import BEGINNING, END
from strandline.plan.endpoints import Ledgered
from strandline.plan.stages import Deliver

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_STAGING: Final = "temp.strandline_staging"
_TEXT: Final = "%Y-%m-%d %H:%M:%S%.3f"
_TIMES: Final = (Kind.INSTANT, Kind.MOMENT, Kind.WALL, Kind.DATE, Kind.TIME, Kind.UNKNOWN)
_TYPES: Final = {
    Kind.INTEGER: "INTEGER", Kind.WIDE: "INTEGER", Kind.BOOLEAN: "INTEGER", Kind.REAL: "REAL", Kind.BINARY: "BLOB",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sqlite(Ledgered):
    """A file, and the table of panes in it."""

    path: str
    table: Table

    @property
    def name(self) -> str:
        return f"sqlite({self.table.name!r})"

    @property
    def definition(self) -> dict[str, Any]:
        return {"path": self.path, **self.table.definition}

    def open(self, output: Deliver) -> OpenSql:
        return opened(self.database(), self.table, output, self.name)

    def database(self) -> "SqliteFile":
        """A connection of its own."""
        return SqliteFile(self.path)

    def letters(self) -> TableLetters:
        """The dead letters beside the panes."""
        return TableLetters(self.path, f"{self.table.name}_dead", self._found)

    def _found(self) -> "SqliteFile":
        if not Path(self.path).is_file():
            raise SetupError(f"there is no file {self.path}", hint="run the pipeline first, from the same folder")
        return SqliteFile(self.path, patience=30)


def sqlite(
    path: str | Path,
    *,
    table: str = "panes",
    mode: str | None = None,
    key: Iterable[str] | None = None,
    evolve: bool = False,
) -> Sqlite:
    """Panes into a SQLite file: `sqlite("scores.db", table="totals")`.

    Every pane is added, and the view `totals_now` tells the latest answers; or with `mode="upsert"`, or a `key`, the
    table itself holds the latest answers. `evolve` lets columns be added to a table that is there.
    """
    return Sqlite(str(path), table_of(table, mode, key, evolve))


class SqliteFile:
    """The file at work."""

    traits: Final = Traits(same="IS")

    def __init__(self, path: str, patience: float = 5) -> None:
        self._path = path
        self._staged: tuple[str, ...] = ()
        try:
            Path(path).absolute().parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=patience)
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._connection.execute("PRAGMA synchronous=FULL")
        except (sqlite3.Error, OSError) as problem:
            raise SinkError(f"cannot open {path}", detail=str(problem), hint="check the path and its folder") from None

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def type_of(self, column: Column) -> str:
        return _TYPES.get(column.kind, "TEXT")

    def milliseconds(self, name: str) -> str:
        mine = self.quoted(name)
        inside = f"CAST(strftime('%s', {mine}) AS INTEGER) * 1000 + CAST(substr({mine}, -3) AS INTEGER)"
        return f"CASE {mine} WHEN '-infinity' THEN {BEGINNING.ms} WHEN 'infinity' THEN {END.ms} ELSE {inside} END"

    def fits(self, kind: Kind, found: str) -> bool:
        """By the rules of SQLite, which takes any value in any column, but would change some on the way."""
        affinity, wanted = _affinity(found), _TYPES.get(kind, "TEXT")
        if affinity == "NUMERIC":  # a text that is no number is left alone there
            return wanted != "TEXT" or kind in _TIMES
        numbers = ("INTEGER", "REAL")
        return affinity in ("BLOB", wanted) or kind is Kind.UNKNOWN or (affinity in numbers and wanted in numbers)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            yield
            self._connection.execute("COMMIT")
        except sqlite3.Error as problem:
            raise self._explained(problem) from None
        except Refusal as problem:
            raise SinkError(f"{self._path} refused a batch", detail=str(problem)) from None
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
                self._staged = ()

    def _explained(self, problem: sqlite3.Error) -> SinkError:
        if (getattr(problem, "sqlite_errorcode", 0) & 0xFF) in _BUSY:
            return SinkUnavailable(f"{self._path} cannot be written now", detail=str(problem))
        return SinkError(f"{self._path} refused a batch", detail=str(problem))

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._connection.execute("SAVEPOINT strandline")
        try:
            yield
        except Refusal:
            self._connection.execute("ROLLBACK TO strandline")
            self._staged = ()
            raise
        finally:
            if self._connection.in_transaction:
                self._connection.execute("RELEASE strandline")

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with _refusing():
            return self._connection.execute(statement, values).fetchall()

    def columns(self, table: str) -> dict[str, str]:
        return {row[1]: row[2] for row in self.execute(f"PRAGMA table_info({self.quoted(table)})")}

    def load(self, table: str, told: Told) -> None:
        self._load(self.quoted(table), told)

    def stage(self, table: str, told: Told) -> str:  # noqa: ARG002 - its values have types, its columns need none
        names = ", ".join(map(self.quoted, told.names))
        if self._staged != told.names:
            self._connection.execute(f"DROP TABLE IF EXISTS {_STAGING}")
            self._connection.execute(f"CREATE TABLE {_STAGING} ({names})")
            self._staged = told.names
        self._connection.execute(f"DELETE FROM {_STAGING}")
        self._load(_STAGING, told)
        return _STAGING

    def finding(self, table: str, key: Sequence[str]) -> AbstractContextManager[object]:  # noqa: ARG002 - it finds them
        return nullcontext()

    def _load(self, place: str, told: Told) -> None:
        names = ", ".join(map(self.quoted, told.names))
        marks = ", ".join("?" * len(told.names))
        rows = told.rows.with_columns(_readable(column) for column in told.columns)
        with _refusing():
            self._connection.executemany(f"INSERT INTO {place} ({names}) VALUES ({marks})", rows.iter_rows())

    def create_view(self, name: str, query: str) -> None:
        self.execute(f"DROP VIEW IF EXISTS {self.quoted(name)}")
        self.execute(f"CREATE VIEW {self.quoted(name)} AS {query}")

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _refusing() -> Iterator[None]:
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.DataError, sqlite3.InterfaceError, OverflowError) as problem:
        raise Refusal(str(problem)) from None


def _affinity(declared: str) -> str:
    """SQLite's own rules, in their order."""
    told = declared.upper()
    for words, found in (
        (("INT",), "INTEGER"),
        (("CHAR", "CLOB", "TEXT"), "TEXT"),
        (("BLOB",), "BLOB"),
        (("REAL", "FLOA", "DOUB"), "REAL"),
    ):
        if any(word in told for word in words):
            return found
    return "NUMERIC" if told else "BLOB"


def _readable(column: Column) -> pl.Expr:
    """Times as texts that sort, everything else as it is."""
    mine = pl.col(column.name)
    match column.kind:
        case Kind.INSTANT:
            text = pl.from_epoch(mine, time_unit="ms").dt.to_string(_TEXT)
            ends = pl.when(mine == BEGINNING.ms).then(pl.lit("-infinity")).when(mine == END.ms).then(pl.lit("infinity"))
            return ends.otherwise(text).alias(column.name)
        case Kind.MOMENT | Kind.WALL:
            return (
                mine.dt.convert_time_zone("UTC").dt.to_string(_TEXT)
                if column.kind is Kind.MOMENT
                else mine.dt.to_string(_TEXT)
            )
        case Kind.DATE | Kind.TIME | Kind.DECIMAL:
            return mine.cast(pl.String)
        case _:
            return mine
