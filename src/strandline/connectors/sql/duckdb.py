"""Write to the tables of one DuckDB file, embedded; rows are loaded as Arrow. Only one process can open the file."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from strandline.connectors.sql.dead_letters import TableLetters
from strandline.connectors.sql.dialect import Refusal, Traits, require_folder
from strandline.connectors.sql.sink import Mode, OpenSql, Table, open_table, table_of
from strandline.errors import SetupError, SinkError, SinkUnavailable
from strandline.formats.sink_columns import Column, Kind, SinkRows
from strandline.model.arguments import checked
from strandline.model.elements import BEGINNING, END
from strandline.plan.endpoints import Ledgered, UpsertKey
from strandline.plan.stages import Deliver
from strandline.ports.local_path import local_path

Result = TypeVar("Result")

_ROWS: Final = "strandline_rows"
_TYPES: Final = {
    Kind.INTEGER: "BIGINT", Kind.WIDE: "HUGEINT", Kind.REAL: "DOUBLE", Kind.BOOLEAN: "BOOLEAN", Kind.BINARY: "BLOB",
    Kind.INSTANT: "TIMESTAMPTZ", Kind.MOMENT: "TIMESTAMPTZ", Kind.WALL: "TIMESTAMP", Kind.DATE: "DATE",
    Kind.TIME: "TIME", Kind.JSON: "JSON",
}  # fmt: skip
_INTEGERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UINTEGER", "UBIGINT", "UHUGEINT")
_REALS: Final = ("FLOAT", "DOUBLE", "DECIMAL")
_TIMES: Final = ("TIMESTAMP", "TIMESTAMP WITH TIME ZONE")
_KNOWN: Final = (*_INTEGERS, *_REALS, *_TIMES, "BOOLEAN", "BLOB", "DATE", "TIME", "VARCHAR", "JSON")
_FITTING: Final = {
    Kind.INTEGER: (*_INTEGERS, *_REALS), Kind.WIDE: (*_INTEGERS, *_REALS), Kind.REAL: _REALS, Kind.DECIMAL: _REALS,
    Kind.BOOLEAN: ("BOOLEAN",), Kind.TEXT: ("VARCHAR", "JSON"), Kind.BINARY: ("BLOB",), Kind.INSTANT: _TIMES,
    Kind.MOMENT: _TIMES, Kind.WALL: _TIMES, Kind.DATE: ("DATE", *_TIMES), Kind.TIME: ("TIME",),
    Kind.JSON: ("JSON", "VARCHAR"), Kind.UNKNOWN: _KNOWN,
}  # fmt: skip


_file_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""One lock per file: concurrent DuckDB transactions make each other fail, and this process owns the file."""


@dataclass(frozen=True, slots=True)
class DuckDb(Ledgered):
    """A DuckDB file and its table of panes as a sink."""

    path: str
    table: Table

    @property
    def name(self) -> str:
        return f"duckdb({self.table.name!r})"

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

    def database(self) -> "DuckDbFile":
        """Open a new connection."""
        return DuckDbFile(self.path)

    def letters(self) -> TableLetters:
        """Open the dead letters beside the panes; no job may have the file open."""
        return TableLetters(self.path, f"{self.table.name}_dead", self._open_existing)

    def _open_existing(self) -> "DuckDbFile":
        if not Path(self.path).is_file():
            raise SetupError(
                f"the file {self.path} does not exist", hint="run the pipeline first, from the same folder"
            )
        return DuckDbFile(self.path)


@checked
def duckdb(
    path: str | Path,
    *,
    table: str = "panes",
    mode: Mode | str | None = None,
    key: Iterable[str] | None = None,
    evolve: bool = False,
    on_refused: str = "stop",
) -> DuckDb:
    """Write panes to a DuckDB file: `duckdb("scores.duckdb", table="totals")`. No other process can read it while the
    job runs.

    By default every pane is appended, and the view `totals_now` shows the latest answers. With `mode="upsert"` or a
    `key` the table itself holds the latest answers. `evolve` allows adding columns to an existing table.
    """
    return DuckDb(local_path(path, "duckdb"), table_of(table, mode, key, evolve, on_refused))


class DuckDbFile:
    """An open DuckDB file. DuckDB has no savepoints: a rollback to one replays the transaction's earlier statements."""

    traits: Final = Traits(indexes=False)

    def __init__(self, path: str) -> None:
        self._path = path
        require_folder(path)
        self._done: list[Callable[[], object]] = []
        engine = _engine()
        try:
            self._connection = engine.connect(path)
            self._connection.execute("SET TimeZone = 'UTC'")
            # A name that is no table must not be taken for a variable of this program or a file.
            self._connection.execute("SET python_enable_replacements = false")
        except (engine.Error, OSError) as problem:
            detail = str(problem).partition("\n")[0]
            raise SinkError(
                f"cannot open {path}", detail=detail, hint="check the path, and that no other process has the file"
            ) from None

    def quoted(self, name: str) -> str:
        return '"' + name.replace('"', '""') + '"'

    def type_of(self, column: Column) -> str:
        if column.kind is Kind.DECIMAL:
            return f"DECIMAL({column.digits[0]}, {column.digits[1]})"
        return _TYPES.get(column.kind, "VARCHAR")

    def milliseconds(self, name: str) -> str:
        quoted = self.quoted(name)
        ends = f"WHEN {quoted} = '-infinity' THEN {BEGINNING.ms} WHEN {quoted} = 'infinity' THEN {END.ms}"
        return f"CASE {ends} ELSE epoch_ms({quoted}) END"

    def fits(self, kind: Kind, found: str) -> bool:
        declared = found.partition("(")[0]
        return declared not in _KNOWN or declared in _FITTING[kind]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        with _file_locks[str(Path(self._path).resolve())]:
            yield from self._transaction()

    def _transaction(self) -> Iterator[None]:
        engine = _engine()
        self._done.clear()
        try:
            self._connection.begin()
            yield
            self._connection.commit()
        except engine.TransactionException as problem:
            self._rollback()
            raise SinkUnavailable(f"{self._path} cannot be written now", detail=_first_line(problem)) from None
        except (engine.Error, Refusal) as problem:
            self._rollback()
            raise SinkError(f"{self._path} refused a batch", detail=_first_line(problem)) from None
        except BaseException:
            self._rollback()
            raise
        finally:
            self._done.clear()

    def _rollback(self) -> None:
        with suppress(_engine().Error):  # it may have been rolled back already
            self._connection.rollback()

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        so_far = len(self._done)
        try:
            yield
        except Refusal:
            self._rollback()
            self._connection.begin()
            del self._done[so_far:]
            for act in self._done:
                act()
            raise

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        return self._run_recorded(lambda: self._connection.execute(statement, list(values)).fetchall())

    def _run_recorded(self, act: Callable[[], Result]) -> Result:
        engine = _engine()
        try:
            found = act()
        except (engine.OperationalError, engine.FatalException, engine.InternalException, engine.CatalogException):
            raise  # about the file, the engine, or a table that is gone
        except engine.Error as problem:
            raise Refusal(_first_line(problem)) from None
        self._done.append(act)
        return found

    def columns(self, table: str) -> dict[str, str]:
        return dict(
            self.execute(
                "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? AND schema_name = "
                "current_schema() AND database_name = current_database() ORDER BY column_index",
                [table],
            )
        )

    def load(self, table: str, rows: SinkRows) -> None:
        names = ", ".join(map(self.quoted, rows.names))
        self._with_rows(rows, f"INSERT INTO {self.quoted(table)} ({names}) SELECT {names} FROM {self._typed(rows)}")

    def stage(self, table: str, rows: SinkRows) -> str:
        """Load rows into a temporary table with the types of its target."""
        names = ", ".join(map(self.quoted, rows.names))
        place = "temp.strandline_staging"
        self.execute(
            f"CREATE OR REPLACE TEMP TABLE strandline_staging AS SELECT {names} FROM {self.quoted(table)} LIMIT 0"
        )
        self._with_rows(rows, f"INSERT INTO {place} SELECT {names} FROM {self._typed(rows)}")
        return place

    def lookup(self, table: str, key: Sequence[str]) -> AbstractContextManager[object]:  # noqa: ARG002 - DuckDB finds them itself
        return nullcontext()

    def _with_rows(self, rows: SinkRows, statement: str) -> None:
        arrow = rows.rows.to_arrow()

        def act() -> None:
            self._connection.register(_ROWS, arrow)
            try:
                self._connection.execute(statement)
            finally:
                with suppress(_engine().Error):  # a failed transaction unregisters the rows itself
                    self._connection.unregister(_ROWS)

        self._run_recorded(act)

    def _typed(self, rows: SinkRows) -> str:
        shown = ", ".join(f"{self._value(column)} AS {self.quoted(column.name)}" for column in rows.columns)
        return f"(SELECT {shown} FROM {_ROWS})"

    def _value(self, column: Column) -> str:
        quoted = self.quoted(column.name)
        if column.kind is not Kind.INSTANT:
            return quoted
        ends = f"WHEN {BEGINNING.ms} THEN TIMESTAMPTZ '-infinity' WHEN {END.ms} THEN TIMESTAMPTZ 'infinity'"
        return f"CASE {quoted} {ends} ELSE make_timestamptz({quoted} * 1000) END"

    def create_view(self, name: str, query: str) -> None:
        self.execute(f"CREATE OR REPLACE VIEW {self.quoted(name)} AS {query}")

    def close(self) -> None:
        self._connection.close()


def _first_line(problem: Exception) -> str:
    """Return the first line of the message; the statement after it may be long."""
    return str(problem).partition("\n")[0]


def _engine() -> Any:
    try:
        import duckdb as found
    except ImportError:
        raise SetupError("duckdb is not installed", hint='pip install "strandline[duckdb]"') from None
    return found
