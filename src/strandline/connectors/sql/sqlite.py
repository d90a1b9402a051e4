"""Write to the tables of one SQLite file, embedded."""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.connectors.sql.dead_letters import TableLetters
from strandline.connectors.sql.dialect import Refusal, Traits, require_folder
from strandline.connectors.sql.read_only_sqlite import connect_to_read
from strandline.connectors.sql.sink import Mode, OpenSql, Table, open_table, table_of
from strandline.errors import SetupError, SinkError, SinkUnavailable
from strandline.formats.sink_columns import Column, Kind, SinkRows
from strandline.model.arguments import checked
from strandline.model.elements import BEGINNING, END
from strandline.plan.endpoints import Ledgered, UpsertKey
from strandline.plan.stages import Deliver
from strandline.ports.local_path import local_path

_BUSY: Final = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)
_OF_THE_FILE: Final = (
    *_BUSY, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH, sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_SCHEMA,
)  # fmt: skip
"""Error codes about the file, the lock or the memory, which no row can cause."""
_STAGING: Final = "temp.strandline_staging"
_TEXT: Final = "%Y-%m-%d %H:%M:%S%.3f"
_TIMES: Final = (Kind.INSTANT, Kind.MOMENT, Kind.WALL, Kind.DATE, Kind.TIME, Kind.UNKNOWN)
_TYPES: Final = {
    Kind.INTEGER: "INTEGER", Kind.WIDE: "INTEGER", Kind.BOOLEAN: "INTEGER", Kind.REAL: "REAL", Kind.BINARY: "BLOB",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Sqlite(Ledgered):
    """A SQLite file and its table of panes as a sink."""

    path: str
    table: Table

    @property
    def name(self) -> str:
        return f"sqlite({self.table.name!r})"

    @property
    def upsert_key(self) -> UpsertKey | None:
        return self.table.upsert_key

    @property
    def latest_view(self) -> str | None:
        return self.table.latest_view

    @property
    def definition(self) -> dict[str, Any]:
        return {"path": self.path, **self.table.definition}

    @property
    def needed_columns(self) -> tuple[str, ...]:
        return self.table.key

    def open(self, output: Deliver) -> OpenSql:
        return open_table(self.database(), self.table, output, self.name)

    def database(self) -> "SqliteFile":
        """Open a new connection."""
        return SqliteFile(self.path)

    def letters(self) -> TableLetters:
        """Open the dead letters beside the panes."""
        return TableLetters(self.path, f"{self.table.name}_dead", self._open_existing, self._open_to_read)

    def _open_existing(self) -> "SqliteFile":
        self._require_file()
        return SqliteFile(self.path, patience=30)

    def _open_to_read(self) -> "SqliteFile":
        self._require_file()
        return SqliteFile(self.path, patience=30, read_only=True)

    def _require_file(self) -> None:
        if not Path(self.path).is_file():
            raise SetupError(
                f"the file {self.path} does not exist", hint="run the pipeline first, from the same folder"
            )


@checked
def sqlite(
    path: str | Path,
    *,
    table: str = "panes",
    mode: Mode | str | None = None,
    key: Iterable[str] | None = None,
    evolve: bool = False,
    on_refused: str = "stop",
) -> Sqlite:
    """Write panes to a SQLite file: `sqlite("scores.db", table="totals")`.

    By default every pane is appended, and the view `totals_now` shows the latest answers. With `mode="upsert"` or a
    `key` the table itself holds the latest answers. `evolve` allows adding columns to an existing table.
    """
    return Sqlite(local_path(path, "sqlite"), table_of(table, mode, key, evolve, on_refused))


class SqliteFile:
    """An open SQLite file."""

    traits: Final = Traits(same="IS", row_id="rowid")

    def __init__(self, path: str, patience: float = 5, *, read_only: bool = False) -> None:
        self._path, self._begin = path, "BEGIN" if read_only else "BEGIN IMMEDIATE"
        self._staged: tuple[str, ...] = ()
        if not read_only:
            require_folder(path)
        try:
            if read_only:
                self._connection = connect_to_read(Path(path), patience)
                return
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
        quoted = self.quoted(name)
        inside = f"CAST(strftime('%s', {quoted}) AS INTEGER) * 1000 + CAST(substr({quoted}, -3) AS INTEGER)"
        return f"CASE {quoted} WHEN '-infinity' THEN {BEGINNING.ms} WHEN 'infinity' THEN {END.ms} ELSE {inside} END"

    def fits(self, kind: Kind, found: str) -> bool:
        """Check by SQLite's affinity rules: any column takes any value, but some values would be converted."""
        affinity, wanted = affinity_of(found), _TYPES.get(kind, "TEXT")
        if affinity == "NUMERIC":  # NUMERIC affinity leaves non-numeric text unchanged
            return wanted != "TEXT" or kind in _TIMES
        numbers = ("INTEGER", "REAL")
        return affinity in ("BLOB", wanted) or kind is Kind.UNKNOWN or (affinity in numbers and wanted in numbers)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            self._connection.execute(self._begin)
            yield
            self._connection.execute("COMMIT")
        except sqlite3.Error as problem:
            raise self._to_sink_error(problem) from None
        except Refusal as problem:
            raise SinkError(f"{self._path} refused a batch", detail=str(problem)) from None
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
                self._staged = ()

    def _to_sink_error(self, problem: sqlite3.Error) -> SinkError:
        if (getattr(problem, "sqlite_errorcode", 0) & 0xFF) in _BUSY:
            return SinkUnavailable(f"{self._path} cannot be written now", detail=str(problem))
        return SinkError(f"{self._path} refused a batch", detail=str(problem))

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        self._connection.execute("SAVEPOINT strandline")
        try:
            yield
        except Refusal as problem:
            self._staged = ()
            if not self._connection.in_transaction:
                raise SinkError(
                    f"a table of {self._path} ends the whole transaction when it refuses a row",
                    detail=str(problem),
                    hint="leave ON CONFLICT ROLLBACK and RAISE(ROLLBACK) out of its definition",
                ) from None
            self._connection.execute("ROLLBACK TO strandline")
            raise
        finally:
            if self._connection.in_transaction:
                self._connection.execute("RELEASE strandline")

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with _convert_refusals():
            return self._connection.execute(statement, values).fetchall()

    def columns(self, table: str) -> dict[str, str]:
        return {row[1]: row[2] for row in self.execute(f"PRAGMA table_info({self.quoted(table)})")}

    def load(self, table: str, rows: SinkRows) -> None:
        self._load(self.quoted(table), rows)

    def stage(self, table: str, rows: SinkRows) -> str:  # noqa: ARG002 - SQLite types values, not columns
        names = ", ".join(map(self.quoted, rows.names))
        if self._staged != rows.names:
            self._connection.execute(f"DROP TABLE IF EXISTS {_STAGING}")
            self._connection.execute(f"CREATE TABLE {_STAGING} ({names})")
            self._staged = rows.names
        self._connection.execute(f"DELETE FROM {_STAGING}")
        self._load(_STAGING, rows)
        return _STAGING

    def lookup(self, table: str, key: Sequence[str]) -> AbstractContextManager[object]:  # noqa: ARG002 - SQLite finds them itself
        return nullcontext()

    def _load(self, place: str, rows: SinkRows) -> None:
        names = ", ".join(map(self.quoted, rows.names))
        marks = ", ".join("?" * len(rows.names))
        frame = rows.rows.with_columns(_sortable_text(column) for column in rows.columns)
        with _convert_refusals():
            self._connection.executemany(f"INSERT INTO {place} ({names}) VALUES ({marks})", frame.iter_rows())

    def create_view(self, name: str, query: str) -> None:
        self.execute(f"DROP VIEW IF EXISTS {self.quoted(name)}")
        self.execute(f"CREATE VIEW {self.quoted(name)} AS {query}")

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _convert_refusals() -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as problem:
        code = getattr(problem, "sqlite_errorcode", None)
        if (code is not None and (code & 0xFF) in _OF_THE_FILE) or "closed database" in str(problem):
            raise
        raise Refusal(str(problem)) from None
    except OverflowError as problem:
        raise Refusal(str(problem)) from None


def affinity_of(declared: str) -> str:
    """Apply SQLite's affinity rules in their order."""
    upper = declared.upper()
    for words, found in (
        (("INT",), "INTEGER"),
        (("CHAR", "CLOB", "TEXT"), "TEXT"),
        (("BLOB",), "BLOB"),
        (("REAL", "FLOA", "DOUB"), "REAL"),
    ):
        if any(word in upper for word in words):
            return found
    return "NUMERIC" if upper else "BLOB"


def _sortable_text(column: Column) -> pl.Expr:
    """Format times as sortable text; leave every other column as it is."""
    values = pl.col(column.name)
    match column.kind:
        case Kind.INSTANT:
            text = pl.from_epoch(values, time_unit="ms").dt.to_string(_TEXT)
            ends = (
                pl.when(values == BEGINNING.ms)
                .then(pl.lit("-infinity"))
                .when(values == END.ms)
                .then(pl.lit("infinity"))
            )
            return ends.otherwise(text).alias(column.name)
        case Kind.MOMENT | Kind.WALL:
            return (
                values.dt.convert_time_zone("UTC").dt.to_string(_TEXT)
                if column.kind is Kind.MOMENT
                else values.dt.to_string(_TEXT)
            )
        case Kind.DATE | Kind.TIME | Kind.DECIMAL:
            return values.cast(pl.String)
        case _:
            return values
