"""Look rows up with a user function: it gets a frame of distinct keys, and returns the rows that it finds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from strandline.errors import LookupFailed, LookupUnavailable
from strandline.kernel.blocks.column_types import to_polars
from strandline.model import ddl
from strandline.model.arguments import checked

LookupCall = Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True, slots=True)
class FunctionLookup:
    """A user function as a lookup table, and its columns."""

    function: LookupCall
    columns: str

    @property
    def name(self) -> str:
        inner = getattr(self.function, "func", self.function)
        return f"lookup_function({getattr(inner, '__qualname__', type(inner).__qualname__)})"

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
        """Do nothing: a function is only known by its answers."""

    def open(self, keys: Sequence[str], columns: Sequence[str]) -> "OpenFunction":
        return OpenFunction(self, (*keys, *columns))


@checked
def lookup_function(function: Callable[..., Any], columns: str) -> FunctionLookup:
    """Look rows up with a function of a Polars frame of keys: `lookup_function(find, "user_id long, name string")`.

    The function returns a frame with these columns, a row for each key that it finds. Raise `ConnectionError` or
    `TimeoutError` in it for a failure that may pass: the call is tried again.
    """
    ddl.require_types(ddl.parse(columns))
    return FunctionLookup(function, columns)


@dataclass(frozen=True, slots=True)
class OpenFunction:
    """The function in a worker process."""

    lookup: FunctionLookup
    names: tuple[str, ...]

    def rows(self, keys: pl.DataFrame) -> pl.DataFrame:
        try:
            made: Any = self.lookup.function(keys)
        except (ConnectionError, TimeoutError) as problem:
            detail = f"{type(problem).__name__}: {problem}"
            raise LookupUnavailable(f"{self.lookup.name} cannot be reached", detail=detail) from None
        if not isinstance(made, pl.DataFrame):
            raise LookupFailed(f"{self.lookup.name} returned a {type(made).__name__}", hint="return a Polars frame")
        missing = [name for name in self.names if name not in made.columns]
        if missing:
            raise LookupFailed(
                f"{self.lookup.name} returned a frame without {', '.join(missing)}",
                detail=f"it has {', '.join(made.columns)}",
                hint="return every column, those of the key too",
            )
        kinds = {name: to_polars(self.lookup.table_columns[name]) for name in self.names}
        try:
            return made.select(self.names).cast(pl.Schema(kinds))
        except pl.exceptions.PolarsError as problem:
            detail = str(problem).partition("\n")[0]
            raise LookupFailed(f"{self.lookup.name} returned a column of another type", detail=detail) from None

    def close(self) -> None:
        """Do nothing: the function holds its own resources."""
