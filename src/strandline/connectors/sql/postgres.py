"""Write to PostgreSQL: COPY rows into the table or a staging table, and apply them in one short transaction."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from strandline.connectors.sql.binary_copy import binary_form, has_binary_form
from strandline.connectors.sql.conninfo import Place, place_of
from strandline.connectors.sql.dead_letters import TableLetters
from strandline.connectors.sql.dialect import Refusal, Traits
from strandline.connectors.sql.postgres_schema import choose_schema
from strandline.connectors.sql.sink import Mode, OpenSql, Table, open_table, table_of
from strandline.errors import InvalidStep, SinkError, SinkUnavailable
from strandline.formats.secrets import Secret
from strandline.formats.sink_columns import Column, Kind, SinkRows
from strandline.model.arguments import checked
from strandline.model.elements import BEGINNING, END
from strandline.plan.endpoints import Ledgered, UpsertKey
from strandline.plan.stages import Deliver

if TYPE_CHECKING:
    import psycopg

_STAGING: Final = "strandline_staging"
_NULL: Final = "\\N"
_CREATE_LOCK: Final = 0x5374726E64  # an advisory lock id that is unlikely to be used elsewhere
_IDLE_SECONDS: Final = 60
_LOCKED_SECONDS: Final = 20
_INDEX_LOOKUPS: Final = "; ".join(
    f"SET LOCAL {way} = {{value}}"
    for way in ("enable_hashjoin", "enable_mergejoin", "enable_seqscan", "enable_material", "jit")
)
"""Planner settings for lookups by index only, without JIT: compiling a statement takes longer than running it."""
_TRANSIENT: Final = ("08", "40", "53", "55", "57", "58")
"""SQLSTATE classes that may pass: connection, rolled back, resources, object in use, operator, system."""
_OF_THE_CONNECTION: Final = ("25", "28", "3D")
"""SQLSTATE classes about the connection's user, database or transaction, which no row can cause."""
_TYPES: Final = {
    Kind.INTEGER: "bigint", Kind.WIDE: "numeric(39, 0)", Kind.REAL: "double precision", Kind.BOOLEAN: "boolean",
    Kind.BINARY: "bytea", Kind.INSTANT: "timestamptz", Kind.MOMENT: "timestamptz", Kind.WALL: "timestamp",
    Kind.DATE: "date", Kind.TIME: "time", Kind.JSON: "jsonb",
}  # fmt: skip
_NUMBERS: Final = ("smallint", "integer", "bigint", "numeric", "real", "double precision")
_TIMES: Final = ("timestamp with time zone", "timestamp without time zone")
_TEXTS: Final = ("text", "character varying", "character", '"char"', "json", "jsonb")
_KNOWN: Final = (*_NUMBERS, *_TIMES, *_TEXTS, "boolean", "bytea", "date", "time without time zone")
_FITTING: Final = {
    Kind.INTEGER: _NUMBERS, Kind.WIDE: _NUMBERS, Kind.REAL: ("real", "double precision", "numeric"),
    Kind.DECIMAL: ("numeric", "real", "double precision"), Kind.BOOLEAN: ("boolean",), Kind.TEXT: _TEXTS,
    Kind.BINARY: ("bytea",), Kind.INSTANT: _TIMES, Kind.MOMENT: _TIMES, Kind.WALL: _TIMES,
    Kind.DATE: ("date", *_TIMES), Kind.TIME: ("time without time zone",), Kind.JSON: ("json", "jsonb", *_TEXTS),
    Kind.UNKNOWN: _KNOWN,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Postgres(Ledgered):
    """A PostgreSQL database and its table of panes as a sink."""

    place: Place
    table: Table
    schema: str | None = None
    create_schema: bool = False
    """Whether a schema that does not exist is created when the sink is opened."""

    @property
    def name(self) -> str:
        return f"postgres({self.table.name!r})"

    @property
    def upsert_key(self) -> UpsertKey | None:
        return self.table.upsert_key

    @property
    def latest_view(self) -> str | None:
        return self.table.latest_view

    @property
    def definition(self) -> dict[str, Any]:
        """Leave out the server, which may move; the ledger shows whether it is still the same database."""
        return {"schema": self.schema, **self.table.definition}

    @property
    def needed_columns(self) -> tuple[str, ...]:
        return self.table.key

    def open(self, output: Deliver) -> OpenSql:
        return open_table(self.database(create_schema=self.create_schema), self.table, output, self.name)

    def letters(self) -> TableLetters:
        """Open the dead letters beside the panes."""
        place = str(self.place) if self.schema is None else f"{self.place}, schema {self.schema}"
        return TableLetters(place, f"{self.table.name}_dead", self.database)

    def database(self, *, create_schema: bool = False) -> "PostgresDatabase":
        """Open a new connection. Readers never create the schema."""
        return PostgresDatabase(self.place, self.schema, create_schema=create_schema)


@checked
def postgres(  # noqa: PLR0913 - one option each
    table: str,
    *,
    dsn: str | Secret,
    password: str | Secret | None = None,
    schema: str | None = None,
    create_schema: bool = False,
    mode: Mode | str | None = None,
    key: Iterable[str] | None = None,
    evolve: bool = False,
    on_refused: str = "stop",
) -> Postgres:
    """Write panes to PostgreSQL: `postgres("totals", dsn="postgresql://me@localhost/scores")`.

    Secrets are references: `password="env:PGPASSWORD"`, or the whole `dsn="env:DATABASE_URL"`. By default every pane is
    appended, and the view `totals_now` shows the latest answers. With `mode="upsert"` or a `key` the table itself holds
    them. `evolve` allows adding columns to an existing table. Tables are in the first existing schema of the server's
    search path, or in `schema`, which must exist unless `create_schema=True`.
    """
    if schema is not None and (not schema or schema.startswith("pg_")):
        raise InvalidStep(f"{schema!r} is no schema for tables", hint="name another schema, or leave schema out")
    if create_schema and schema is None:
        raise InvalidStep("create_schema=True needs a schema", hint="name it: schema=…")
    return Postgres(place_of(dsn, password), table_of(table, mode, key, evolve, on_refused), schema, create_schema)


class PostgresDatabase:
    """A connection that is reopened when it was lost."""

    traits: Final = Traits(
        has_merge=True,
        case_sensitive=True,
        longest_name=63,
        creation_lock=f"SELECT pg_advisory_xact_lock({_CREATE_LOCK})",
        update_room=" WITH (fillfactor = 50)",
    )

    def __init__(self, place: Place, schema: str | None, *, create_schema: bool = False) -> None:
        self._place, self._schema = place, schema
        self._connection: psycopg.Connection[Any] | None = None
        self._staged: tuple[str, dict[str, str]] | None = None
        """The table that rows are staged for, and the types of the staged columns."""
        self._open(create_schema=create_schema)

    def _open(self, *, create_schema: bool = False) -> "psycopg.Connection[Any]":
        if self._connection is not None and not self._connection.closed:
            return self._connection
        self._staged = None
        connection = self._place.connect()
        # A driver that hangs in the middle of a batch must not block the next one for ever.
        connection.execute(f"SET idle_in_transaction_session_timeout = '{_IDLE_SECONDS}s'")
        connection.execute(f"SET lock_timeout = '{_LOCKED_SECONDS}s'")
        connection.execute("SET timezone = 'UTC'")
        # Rows are sent as UTF-8. In a database of another encoding the client's default would store other characters.
        connection.execute("SET client_encoding = 'UTF8'")
        # A later statement of a transaction must find what another job has committed meanwhile.
        connection.execute("SET default_transaction_isolation = 'read committed'")
        # Staged rows beyond this size spill to a file. Unused buffers are not allocated.
        connection.execute("SET temp_buffers = '64MB'")
        # A commit must survive a power failure, whatever the server's default is.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        try:
            choose_schema(connection, self._schema, str(self._place), create=create_schema)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        return connection

    def quoted(self, name: str, connection: "psycopg.Connection[Any] | None" = None) -> str:
        from psycopg.sql import Identifier

        return Identifier(name).as_string(connection or self._connection)

    def type_of(self, column: Column) -> str:
        if column.kind is Kind.DECIMAL:
            return f"numeric({column.digits[0]}, {column.digits[1]})"
        return _TYPES.get(column.kind, "text")

    def milliseconds(self, name: str) -> str:
        quoted = self.quoted(name)
        ends = f"WHEN {quoted} = '-infinity' THEN {BEGINNING.ms} WHEN {quoted} = 'infinity' THEN {END.ms}"
        return f"CASE {ends} ELSE floor(extract(epoch FROM {quoted}) * 1000)::bigint END"

    def fits(self, kind: Kind, found: str) -> bool:
        declared = re.sub(r"\(.*?\)", "", found)
        return declared not in _KNOWN or declared in _FITTING[kind]

    @contextmanager
    def transaction(self) -> Iterator[None]:
        import psycopg

        connection = self._open()
        try:
            with connection.transaction():
                yield
        except BaseException as problem:
            self._staged = None
            if isinstance(problem, Refusal | psycopg.Error):
                raise self._to_sink_error(problem) from None
            raise

    def _to_sink_error(self, problem: "Refusal | psycopg.Error") -> SinkError:
        """Convert an error: transient ones, such as a restart, a lock or a full disk, become SinkUnavailable."""

        if isinstance(problem, Refusal):
            return SinkError(f"{self._place} refused a batch", detail=str(problem))
        detail = server_message(problem)
        if _is_transient(problem):
            if self._connection is not None and problem.sqlstate is None:
                self._connection.close()
            return SinkUnavailable(f"{self._place} cannot be written now", detail=detail)
        return SinkError(f"{self._place} refused a batch", detail=detail)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        try:
            with self._open().transaction():
                yield
        except Refusal:
            self._staged = None
            raise

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with _convert_refusals():
            arguments = (_driver_placeholders(statement), values) if values else (statement,)
            cursor = self._open().execute(*arguments)
            return cursor.fetchall() if cursor.description else []

    def columns(self, table: str) -> dict[str, str]:
        return self._columns(self.quoted(table))

    def _columns(self, place: str) -> dict[str, str]:
        found = self.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = to_regclass(?) "
            "AND attnum > 0 AND NOT attisdropped ORDER BY attnum",
            [place],
        )
        return dict(found)

    def load(self, table: str, rows: SinkRows) -> None:
        self._copy(self.quoted(table), rows, self.columns(table))

    def stage(self, table: str, rows: SinkRows) -> str:
        """Load rows into a temporary table with the target's columns and types."""
        place = f"pg_temp.{self.quoted(_STAGING)}"
        if self._staged is None or (self._staged[0], tuple(self._staged[1])) != (table, rows.names):
            names = ", ".join(map(self.quoted, rows.names))
            self.execute(f"DROP TABLE IF EXISTS {place}")
            made = f"CREATE TEMP TABLE {self.quoted(_STAGING)} AS SELECT {names} FROM {self.quoted(table)} WITH NO DATA"
            self.execute(made)
            self._staged = table, self._columns(place)
        else:
            self.execute(f"TRUNCATE {place}")
        self._copy(place, rows, self._staged[1])
        return place

    @contextmanager
    def lookup(self, table: str, key: Sequence[str]) -> Iterator[None]:
        """Look up staged rows by index, in their staged order, so that a batch's cost does not grow with the table.

        By default the server scans a whole table until it is far larger than the batch.
        """
        if not self._is_indexed(table, key):
            self.execute(f"ANALYZE pg_temp.{self.quoted(_STAGING)}")
            yield
            return
        self.execute(_INDEX_LOOKUPS.format(value="off"))
        yield
        self.execute(_INDEX_LOOKUPS.format(value="default"))

    def _is_indexed(self, table: str, key: Sequence[str]) -> bool:
        query = (
            "SELECT 1 FROM pg_index WHERE indrelid = to_regclass(?) AND indisvalid AND indpred IS NULL AND (SELECT "
            'array_agg(attname::text ORDER BY attname::text COLLATE "C") FROM pg_attribute WHERE attrelid = indrelid '
            "AND attnum = ANY (indkey[0:?])) = ?"
        )
        return bool(self.execute(query, [self.quoted(table), len(key) - 1, sorted(key)]))

    def _copy(self, place: str, rows: SinkRows, types: Mapping[str, str]) -> None:
        names = ", ".join(map(self.quoted, rows.names))
        is_binary = has_binary_form(rows, types)
        form, parts = ("binary", binary_form(rows)) if is_binary else (f"csv, NULL '{_NULL}'", _text_form(rows))
        command = f"COPY {place} ({names}) FROM STDIN (FORMAT {form})"
        with _convert_refusals(), self._open().cursor() as cursor, cursor.copy(command) as copy:
            for part in parts:
                copy.write(part)

    def create_view(self, name: str, query: str) -> None:
        self.execute(f"CREATE OR REPLACE VIEW {self.quoted(name)} AS {query}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _driver_placeholders(statement: str) -> str:
    """Replace `?` with the driver's placeholder; quoted names may contain any character."""
    parts = re.split(r'("(?:[^"]|"")*")', statement)
    return "".join(part.replace("%", "%%") if part.startswith('"') else part.replace("?", "%s") for part in parts)


@contextmanager
def _convert_refusals() -> Iterator[None]:
    """Take every error for one of the rows that is not about the connection or the server."""
    import psycopg

    try:
        yield
    except psycopg.Error as problem:
        state = problem.sqlstate or ""
        lost = not state and isinstance(problem, psycopg.OperationalError | psycopg.InterfaceError)
        if lost or state.startswith((*_TRANSIENT, *_OF_THE_CONNECTION)):
            raise
        race = isinstance(problem, psycopg.errors.UniqueViolation)
        raise Refusal(server_message(problem), race=race) from None


def _is_transient(problem: "psycopg.Error") -> bool:
    """Whether an error may pass: a lost connection, a restart, a lock, a full disk, a lost race."""
    import psycopg

    if problem.sqlstate is None:
        return isinstance(problem, psycopg.OperationalError)
    return problem.sqlstate.startswith(_TRANSIENT)


def server_message(problem: "psycopg.Error") -> str:
    """The server's message without the statement and the position in it."""
    found = problem.diag
    messages = [each for each in (found.message_primary, found.message_detail) if each]
    return ": ".join(messages) or str(problem).strip().partition("\n")[0]


def _text_form(rows: SinkRows) -> Iterator[str]:
    """Encode rows as CSV, which every column type can be read from."""
    text = rows.rows.select(_copy_text(column) for column in rows.columns)
    for part in text.iter_slices(100_000):
        yield part.write_csv(include_header=False, null_value=_NULL, quote_style="non_numeric")


def _copy_text(column: Column) -> pl.Expr:
    """Format a column for COPY."""
    values = pl.col(column.name)
    match column.kind:
        case Kind.INSTANT:
            text = pl.from_epoch(values, time_unit="ms").dt.to_string("%Y-%m-%d %H:%M:%S%.3f+00")
            ends = (
                pl.when(values == BEGINNING.ms)
                .then(pl.lit("-infinity"))
                .when(values == END.ms)
                .then(pl.lit("infinity"))
            )
            return ends.otherwise(text).alias(column.name)
        case Kind.BINARY:
            return (pl.lit("\\x") + values.bin.encode("hex")).alias(column.name)
        case _:
            return values
