"""Look rows up in a table or view of PostgreSQL: one statement for many keys, by index."""

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from strandline.connectors.sql.conninfo import Place, place_of
from strandline.connectors.sql.lookup_columns import refuse_missing_columns, refuse_other_types
from strandline.errors import InvalidStep, LookupFailed, LookupUnavailable, SinkError, SinkUnavailable
from strandline.formats.lookup_rows import columns_of, typed_rows
from strandline.formats.secrets import Secret
from strandline.model import ddl
from strandline.model.arguments import checked
from strandline.ports.lookups import REQUEST_SECONDS

if TYPE_CHECKING:
    import psycopg

_TRANSIENT: Final = ("08", "40", "53", "55", "57", "58")
"""SQLSTATE classes that may pass: connection, rolled back, resources, object in use, operator, system."""
_INTEGERS: Final = ("smallint", "integer", "bigint")
_FITTING: Final = {
    "string": ("text", "character varying", "character", '"char"', "uuid", "name"),
    "long": _INTEGERS, "bigint": _INTEGERS, "int": ("smallint", "integer"), "integer": ("smallint", "integer"),
    "short": ("smallint",), "smallint": ("smallint",), "byte": (), "tinyint": (),
    "double": ("real", "double precision"), "float": ("real",), "boolean": ("boolean",),
    "timestamp": ("timestamp with time zone",), "timestamp_ntz": ("timestamp without time zone",), "date": ("date",),
    "binary": ("bytea",), "decimal": ("numeric", *_INTEGERS),
}  # fmt: skip
_ARRAYS: Final = {
    "string": "text", "long": "bigint", "bigint": "bigint", "int": "integer", "integer": "integer",
    "short": "smallint", "smallint": "smallint", "byte": "smallint", "tinyint": "smallint", "boolean": "boolean",
}  # fmt: skip
"""Types of key values. A text or a bigint of the stream may be no value of the column, such as a longer integer."""
_COLUMNS: Final = (
    "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = to_regclass(%s) "
    "AND attnum > 0 AND NOT attisdropped ORDER BY attnum"
)


@dataclass(frozen=True, slots=True)
class PostgresLookup:
    """A PostgreSQL table or view, with the columns that are read."""

    place: Place
    table: str
    columns: str
    schema: str | None = None

    @property
    def name(self) -> str:
        return f"lookup_postgres({self.table!r})"

    @property
    def definition(self) -> Mapping[str, Any]:
        """Leave out the server, which may move."""
        return {"table": self.table, "schema": self.schema, "columns": self.columns}

    @property
    def table_columns(self) -> Mapping[str, str]:
        return ddl.parse(self.columns)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return ()

    @property
    def most_keys(self) -> None:
        return None

    def check(self, keys: Sequence[str]) -> None:
        table = OpenPostgresLookup(self, (), ())
        try:
            found = table.types()
            what = f"the table {self.table!r} of {self.place}"
            refuse_missing_columns(what, found, self.table_columns)
            refuse_other_types(what, found, self.table_columns, _fits)
            for name in keys:
                if found[name] == "uuid":
                    raise LookupFailed(
                        f"the key {name!r} of {what} is a uuid", hint="read a view that casts it to text"
                    )
            table.refuse_unreadable(tuple(self.table_columns))
        finally:
            table.close()

    def open(self, keys: Sequence[str], columns: Sequence[str]) -> "OpenPostgresLookup":
        return OpenPostgresLookup(self, tuple(keys), tuple(columns))


@checked
def lookup_postgres(
    table: str,
    columns: str,
    *,
    dsn: str | Secret,
    password: str | Secret | None = None,
    schema: str | None = None,
) -> PostgresLookup:
    """Look rows up in PostgreSQL: `lookup_postgres("users", "user_id long, name string", dsn="env:DATABASE_URL")`.

    The table may be a view. Give it an index on the key columns. Secrets are references: `password="env:PGPASSWORD"`,
    or the whole `dsn="env:DATABASE_URL"`. The table is in the first schema of the server's search path that has it, or
    in `schema`.
    """
    columns_of(columns, "lookup_postgres")
    if not table:
        raise InvalidStep("the table has no name", hint='as in lookup_postgres("users", …)')
    return PostgresLookup(place_of(dsn, password), table, columns, schema)


class OpenPostgresLookup:
    """A connection for each thread, opened again when it was lost."""

    def __init__(self, lookup: PostgresLookup, keys: tuple[str, ...], columns: tuple[str, ...]) -> None:
        self._lookup, self._keys, self._names = lookup, keys, (*keys, *columns)
        self._local = threading.local()
        self._opened: list[psycopg.Connection[Any]] = []

    def types(self) -> dict[str, str]:
        """Return the table's columns with their types; raise if there is no such table."""
        found = self._execute(_COLUMNS, [_place(self._lookup)])
        if not found:
            where = "" if self._lookup.schema is None else f" in the schema {self._lookup.schema!r}"
            raise LookupFailed(
                f"{self._lookup.place} has no table {self._lookup.table!r}{where}",
                hint="check the name, and that the user's search_path has its schema; or name one with schema=…",
            )
        return {str(name): str(kind) for name, kind in found}

    def refuse_unreadable(self, names: tuple[str, ...]) -> None:
        """Raise if the user must not read the table's columns."""
        shown = ", ".join(map(_quoted, names))
        self._execute(f"SELECT {shown} FROM {_place(self._lookup)} LIMIT 0", ())

    def rows(self, keys: pl.DataFrame) -> pl.DataFrame:
        kinds = {name: self._lookup.table_columns[name] for name in self._names}
        # No text of PostgreSQL has this character, so such keys match nothing.
        texts = [name for name, kind in keys.schema.items() if kind == pl.String]
        asked = keys.filter(~pl.col(name).str.contains("\0", literal=True) for name in texts) if texts else keys
        values = [asked[name].to_list() for name in self._keys]
        return typed_rows(kinds, self._execute(self._query(kinds), values))

    def _query(self, kinds: Mapping[str, str]) -> str:
        """Return the statement: arrays of key values, of the types that the table's columns have."""
        shown = ", ".join(f"t.{_quoted(name)}{'::text' if kinds[name] == 'string' else ''}" for name in self._names)
        arrays = ", ".join(f"%s::{_ARRAYS[kinds[name]]}[]" for name in self._keys)
        if len(self._keys) == 1:
            (name,) = self._keys
            return f"SELECT {shown} FROM {_place(self._lookup)} t WHERE t.{_quoted(name)} = ANY({arrays})"
        wanted = ", ".join(f"k{number}" for number in range(len(self._keys)))
        equal = " AND ".join(f"t.{_quoted(name)} = w.k{number}" for number, name in enumerate(self._keys))
        return f"SELECT {shown} FROM unnest({arrays}) w({wanted}) JOIN {_place(self._lookup)} t ON {equal}"

    def _execute(self, statement: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        with self._lookup_errors():
            escaped = statement if statement == _COLUMNS or not values else _escaped(statement)
            return self._connection().execute(escaped, values or None).fetchall()

    @contextmanager
    def _lookup_errors(self) -> Iterator[None]:
        import psycopg

        place = self._lookup.place
        try:
            yield
        except SinkUnavailable as problem:
            raise LookupUnavailable(problem.message, detail=problem.detail, hint=problem.hint) from None
        except SinkError as problem:
            raise LookupFailed(problem.message, detail=problem.detail, hint=problem.hint) from None
        except psycopg.Error as problem:
            detail = problem.diag.message_primary or str(problem).strip().partition("\n")[0]
            state = problem.sqlstate
            if state is None:
                self._drop()
                raise LookupUnavailable(f"{place} cannot be read now", detail=detail) from None
            if state.startswith(_TRANSIENT):
                raise LookupUnavailable(f"{place} cannot be read now", detail=detail) from None
            raise LookupFailed(f"{place} refuses a lookup in {self._lookup.table!r}", detail=detail) from None

    def _connection(self) -> "psycopg.Connection[Any]":
        known: psycopg.Connection[Any] | None = getattr(self._local, "connection", None)
        if known is None or known.closed:
            known = self._lookup.place.connect(seconds=round(REQUEST_SECONDS))
            known.execute(f"SET statement_timeout = {round(REQUEST_SECONDS * 1000)}")
            known.execute("SET default_transaction_read_only = on")
            known.execute("SET timezone = 'UTC'")
            known.execute("SET client_encoding = 'UTF8'")
            self._local.connection = known
            self._opened.append(known)
        return known

    def _drop(self) -> None:
        known: psycopg.Connection[Any] | None = getattr(self._local, "connection", None)
        if known is not None:
            known.close()
            self._local.connection = None
            self._opened.remove(known)

    def close(self) -> None:
        for each in self._opened:
            each.close()


def _place(lookup: PostgresLookup) -> str:
    names = [lookup.table] if lookup.schema is None else [lookup.schema, lookup.table]
    return ".".join(map(_quoted, names))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _escaped(statement: str) -> str:
    """Escape percent signs inside quoted names, which the driver would take for placeholders."""
    parts = re.split(r'("(?:[^"]|"")*")', statement)
    return "".join(part.replace("%", "%%") if part.startswith('"') else part for part in parts)


def _fits(kind: str, found: str) -> bool:
    return found in _FITTING[kind.partition("(")[0].strip().lower()]
