"""Look rows up in a table of a DuckDB file. The file is open only during a request, so that others can write it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from strandline.connectors.sql.lookup_columns import refuse_missing_columns, refuse_other_types
from strandline.errors import InvalidStep, LookupFailed, LookupUnavailable, SetupError
from strandline.formats.lookup_rows import columns_of, typed_rows
from strandline.model import ddl
from strandline.model.arguments import checked
from strandline.ports.local_path import local_path

_INTEGERS: Final = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER")
_SHORT: Final = ("TINYINT", "SMALLINT", "UTINYINT")
_FITTING: Final = {
    "string": ("VARCHAR",), "long": _INTEGERS, "bigint": _INTEGERS, "int": (*_SHORT, "INTEGER", "USMALLINT"),
    "integer": (*_SHORT, "INTEGER", "USMALLINT"), "short": _SHORT, "smallint": _SHORT, "byte": ("TINYINT",),
    "tinyint": ("TINYINT",), "double": ("FLOAT", "DOUBLE"), "float": ("FLOAT",), "boolean": ("BOOLEAN",),
    "timestamp": ("TIMESTAMP WITH TIME ZONE",), "timestamp_ntz": ("TIMESTAMP",), "date": ("DATE",),
    "binary": ("BLOB",), "decimal": ("DECIMAL", *_INTEGERS),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class DuckDbLookup:
    """A DuckDB file and its table, with the columns that are read."""

    path: str
    table: str
    columns: str

    @property
    def name(self) -> str:
        return f"lookup_duckdb({self.table!r})"

    @property
    def table_columns(self) -> Mapping[str, str]:
        return ddl.parse(self.columns)

    @property
    def key_columns(self) -> tuple[str, ...]:
        return ()

    @property
    def most_keys(self) -> None:
        return None

    def check(self, keys: Sequence[str]) -> None:  # noqa: ARG002 - all columns are checked
        query = "SELECT column_name, data_type FROM duckdb_columns() WHERE table_name = ? AND NOT internal"
        rows = _asked(self, query, [self.table])
        found = {str(name): str(kind).partition("(")[0] for name, kind in rows}
        if not found:
            raise LookupFailed(f"{self.path} has no table {self.table!r}", hint="check the name")
        what = f"the table {self.table!r} of {self.path}"
        refuse_missing_columns(what, found, self.table_columns)
        refuse_other_types(what, found, self.table_columns, _fits)

    def open(self, keys: Sequence[str], columns: Sequence[str]) -> "OpenDuckDbLookup":
        return OpenDuckDbLookup(self, tuple(keys), tuple(columns))


@checked
def lookup_duckdb(path: str | Path, columns: str, *, table: str) -> DuckDbLookup:
    """Look rows up in a DuckDB file: `lookup_duckdb("shop.duckdb", "user_id long, name string", table="users")`.

    The file cannot be read while another process has it open for writing: the batch waits.
    """
    columns_of(columns, "lookup_duckdb")
    if not table:
        raise InvalidStep("the table has no name", hint='as in table="users"')
    return DuckDbLookup(local_path(path, "duckdb"), table, columns)


@dataclass(frozen=True, slots=True)
class OpenDuckDbLookup:
    """The file in a worker process."""

    lookup: DuckDbLookup
    keys: tuple[str, ...]
    columns: tuple[str, ...]

    def rows(self, keys: pl.DataFrame) -> pl.DataFrame:
        names = (*self.keys, *self.columns)
        kinds = {name: self.lookup.table_columns[name] for name in names}
        shown = ", ".join(f"t.{_quoted(name)}" for name in names)
        equal = " AND ".join(f"t.{_quoted(name)} = w.{_quoted(name)}" for name in self.keys)
        query = f"SELECT {shown} FROM wanted w JOIN {_quoted(self.lookup.table)} t ON {equal}"
        return typed_rows(kinds, _asked(self.lookup, query, wanted=keys.select(self.keys)))

    def close(self) -> None:
        """Do nothing: the file is closed after every request."""


def _asked(
    lookup: DuckDbLookup, query: str, values: Sequence[object] = (), wanted: pl.DataFrame | None = None
) -> list[tuple[Any, ...]]:
    duckdb = _duckdb()
    path = lookup.path
    if not Path(path).is_file():
        raise LookupFailed(f"the file {path} does not exist", hint="check the path")
    try:
        with duckdb.connect(path, read_only=True) as connection:
            connection.execute("SET TimeZone = 'UTC'")
            if wanted is not None:
                connection.register("wanted", wanted.to_arrow())
            found: list[tuple[Any, ...]] = connection.execute(query, list(values)).fetchall()
            return found
    except duckdb.IOException as problem:
        detail = str(problem).partition("\n")[0]
        raise LookupUnavailable(
            f"{path} cannot be read now", detail=detail, hint="another process may write it"
        ) from None
    except duckdb.Error as problem:
        raise LookupFailed(f"{path} cannot be read", detail=str(problem).partition("\n")[0]) from None


def _duckdb() -> Any:
    try:
        import duckdb
    except ImportError:
        raise SetupError("duckdb is not installed", hint='pip install "strandline[duckdb]"') from None
    return duckdb


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _fits(kind: str, found: str) -> bool:
    return found in _FITTING[kind.partition("(")[0].strip().lower()]
