"""PostgreSQL: rows come in by COPY, into the table or into staging, and take effect in one short transaction."""

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
from strandline.connectors.sql.sink import OpenSql, Table, opened, table_of
from strandline.errors import SinkError, SinkUnavailable
from strandline.formats.secrets import Secret
from strandline.formats.sink_columns import Column, Kind, Told
from strandline.model.elements import BEGINNING, END
from strandline.plan.endpoints import Ledgered
from strandline.plan.stages import Deliver

if TYPE_CHECKING:
    import psycopg

_STAGING: Final = "strandline_staging"
_NULL: Final = "\\N"
_MAKING: Final = 0x5374726E64  # a number that nobody else is likely to lock
_WAITING_SECONDS: Final = 60
_LOCKED_SECONDS: Final = 20
_SET: Final = "; ".join(
    f"SET LOCAL {way} = {{value}}"
    for way in ("enable_hashjoin", "enable_mergejoin", "enable_seqscan", "enable_material", "jit")
)
"""Other ways to find rows than by an index; and to compile a statement first, which takes longer than to run it."""
_PERMANENT: Final = ("28", "3D", "3F", "42", "0A", "25006")
"""Who we are, which database, which schema, what we ask, what it cannot do, and a server that takes no writes."""
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
    """A database, and the table of panes in it."""

    place: Place
    table: Table
    schema: str | None = None

    @property
    def name(self) -> str:
        return f"postgres({self.table.name!r})"

    @property
    def definition(self) -> dict[str, Any]:
        """The server may move; the ledger tells whether it is still the same database."""
        return {"schema": self.schema, **self.table.definition}

    def open(self, output: Deliver) -> OpenSql:
        return opened(self.database(), self.table, output, self.name)

    def letters(self) -> TableLetters:
        """The dead letters beside the panes."""
        place = str(self.place) if self.schema is None else f"{self.place}, schema {self.schema}"
        return TableLetters(place, f"{self.table.name}_dead", self.database)

    def database(self) -> "PostgresDatabase":
        """A connection of its own."""
        return PostgresDatabase(self.place, self.schema)


def postgres(
    table: str,
    *,
    dsn: str | Secret,
    password: str | Secret | None = None,
    schema: str | None = None,
    mode: str | None = None,
    key: Iterable[str] | None = None,
    evolve: bool = False,
) -> Postgres:
    """Panes into PostgreSQL: `postgres("totals", dsn="postgresql://me@localhost/scores")`.

    Secrets are references: `password="env:PGPASSWORD"`, or the whole `dsn="env:DATABASE_URL"`. Every pane is added, and
    the view `totals_now` tells the latest answers; or with `mode="upsert"`, or a `key`, the table itself holds them.
    `evolve` lets columns be added to a table that is there.
    """
    return Postgres(place_of(dsn, password), table_of(table, mode, key, evolve), schema)


class PostgresDatabase:
    """A connection, made anew where it was lost."""

    traits: Final = Traits(
        merges=True,
        minds_case=True,
        longest_name=63,
        alone=f"SELECT pg_advisory_xact_lock({_MAKING})",
        room=" WITH (fillfactor = 50)",
    )

    def __init__(self, place: Place, schema: str | None) -> None:
        self._place, self._schema = place, schema
        self._connection: psycopg.Connection[Any] | None = None
        self._staged: tuple[str, dict[str, str]] | None = None
        """The table for which rows are staged, and the types of those of its columns that are."""
        self._open()

    def _open(self) -> "psycopg.Connection[Any]":
        if self._connection is not None and not self._connection.closed:
            return self._connection
        self._staged = None
        connection = self._place.connect()
        # A driver that hangs in the middle of a batch must not keep the next one out for ever.
        connection.execute(f"SET idle_in_transaction_session_timeout = '{_WAITING_SECONDS}s'")
        connection.execute(f"SET lock_timeout = '{_LOCKED_SECONDS}s'")
        connection.execute("SET timezone = 'UTC'")
        # Staged rows that do not fit are written to a file and read from there. What is not used is not taken.
        connection.execute("SET temp_buffers = '64MB'")
        # What is committed must be there after a power cut, whatever the server's own habit is.
        connection.execute(
            "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'"
        )
        if self._schema is not None:
            connection.execute(f"SET search_path = {self.quoted(self._schema, connection)}, pg_temp")
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
        mine = self.quoted(name)
        ends = f"WHEN {mine} = '-infinity' THEN {BEGINNING.ms} WHEN {mine} = 'infinity' THEN {END.ms}"
        return f"CASE {ends} ELSE floor(extract(epoch FROM {mine}) * 1000)::bigint END"

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
                raise self._explained(problem) from None
            raise

    def _explained(self, problem: "Refusal | psycopg.Error") -> SinkError:
        """What passes is waited for: a server that restarts, a lock, a full disk; the rest is told at once."""
        import psycopg

        if isinstance(problem, Refusal):
            return SinkError(f"{self._place} refused a batch", detail=str(problem))
        told = said(problem)
        passing = isinstance(problem, psycopg.OperationalError) and not (problem.sqlstate or "").startswith(_PERMANENT)
        if passing:
            if self._connection is not None and problem.sqlstate is None:
                self._connection.close()
            return SinkUnavailable(f"{self._place} cannot be written now", detail=told)
        return SinkError(f"{self._place} refused a batch", detail=told)

    @contextmanager
    def savepoint(self) -> Iterator[None]:
        try:
            with self._open().transaction():
                yield
        except Refusal:
            self._staged = None
            raise

    def execute(self, statement: str, values: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        with _refusing():
            asked = (_as_the_driver_asks(statement), values) if values else (statement,)
            cursor = self._open().execute(*asked)
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

    def load(self, table: str, told: Told) -> None:
        self._copy(self.quoted(table), told, self.columns(table))

    def stage(self, table: str, told: Told) -> str:
        """A table of this connection alone, as wide as what is written and with the types of its target."""
        place = f"pg_temp.{self.quoted(_STAGING)}"
        if self._staged is None or (self._staged[0], tuple(self._staged[1])) != (table, told.names):
            names = ", ".join(map(self.quoted, told.names))
            self.execute(f"DROP TABLE IF EXISTS {place}")
            made = f"CREATE TEMP TABLE {self.quoted(_STAGING)} AS SELECT {names} FROM {self.quoted(table)} WITH NO DATA"
            self.execute(made)
            self._staged = table, self._columns(place)
        else:
            self.execute(f"TRUNCATE {place}")
        self._copy(place, told, self._staged[1])
        return place

    @contextmanager
    def finding(self, table: str, key: Sequence[str]) -> Iterator[None]:
        """By the index, in the order in which rows were staged: what a batch costs does not grow with the table.

        By itself the server reads a table as a whole until it is far larger than the batch.
        """
        if not self._is_indexed(table, key):
            self.execute(f"ANALYZE pg_temp.{self.quoted(_STAGING)}")
            yield
            return
        self.execute(_SET.format(value="off"))
        yield
        self.execute(_SET.format(value="default"))

    def _is_indexed(self, table: str, key: Sequence[str]) -> bool:
        asked = (
            "SELECT 1 FROM pg_index WHERE indrelid = to_regclass(?) AND indisvalid AND indpred IS NULL AND (SELECT "
            'array_agg(attname::text ORDER BY attname::text COLLATE "C") FROM pg_attribute WHERE attrelid = indrelid '
            "AND attnum = ANY (indkey[0:?])) = ?"
        )
        return bool(self.execute(asked, [self.quoted(table), len(key) - 1, sorted(key)]))

    def _copy(self, place: str, told: Told, types: Mapping[str, str]) -> None:
        names = ", ".join(map(self.quoted, told.names))
        is_binary = has_binary_form(told, types)
        form, parts = ("binary", binary_form(told)) if is_binary else (f"csv, NULL '{_NULL}'", _text_form(told))
        command = f"COPY {place} ({names}) FROM STDIN (FORMAT {form})"
        with _refusing(), self._open().cursor() as cursor, cursor.copy(command) as copy:
            for part in parts:
                copy.write(part)

    def create_view(self, name: str, query: str) -> None:
        self.execute(f"CREATE OR REPLACE VIEW {self.quoted(name)} AS {query}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


def _as_the_driver_asks(statement: str) -> str:
    """With its own mark for each value; names in quotes may have any sign in them."""
    parts = re.split(r'("(?:[^"]|"")*")', statement)
    return "".join(part.replace("%", "%%") if part.startswith('"') else part.replace("?", "%s") for part in parts)


@contextmanager
def _refusing() -> Iterator[None]:
    import psycopg

    try:
        yield
    except (psycopg.DataError, psycopg.IntegrityError) as problem:
        raise Refusal(said(problem)) from None


def said(problem: "psycopg.Error") -> str:
    """The server's own words, without the statement and the place in it."""
    found = problem.diag
    told = [each for each in (found.message_primary, found.message_detail) if each]
    return ": ".join(told) or str(problem).strip().partition("\n")[0]


def _text_form(told: Told) -> Iterator[str]:
    """What every type can be read from."""
    text = told.rows.select(_written(column) for column in told.columns)
    for part in text.iter_slices(100_000):
        yield part.write_csv(include_header=False, null_value=_NULL, quote_style="non_numeric")


def _written(column: Column) -> pl.Expr:
    """As COPY reads it."""
    mine = pl.col(column.name)
    match column.kind:
        case Kind.INSTANT:
            text = pl.from_epoch(mine, time_unit="ms").dt.to_string("%Y-%m-%d %H:%M:%S%.3f+00")
            ends = pl.when(mine == BEGINNING.ms).then(pl.lit("-infinity")).when(mine == END.ms).then(pl.lit("infinity"))
            return ends.otherwise(text).alias(column.name)
        case Kind.BINARY:
            return (pl.lit("\\x") + mine.bin.encode("hex")).alias(column.name)
        case _:
            return mine
