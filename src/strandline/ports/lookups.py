"""Define what a lookup table must offer: a check before the job starts, and rows by key inside tasks."""

from collections.abc import Sequence
from typing import Final, Protocol, runtime_checkable

import polars as pl

from strandline.model.lookup_join import LookupTable

REQUEST_SECONDS: Final = 2.0
"""How long one request may take. A table that does not answer is reported within five seconds, retries included."""


class OpenLookup(Protocol):
    """A lookup table that a worker process has open. Its methods may be called by several threads at a time."""

    def rows(self, keys: pl.DataFrame) -> pl.DataFrame:
        """Return the current rows of distinct keys: the key columns, the other columns, and maybe PROBLEM.

        A key without a row is absent. A row with a PROBLEM, such as a value that has not the column's type, becomes the
        reason why rows of its key are set aside. Raise LookupUnavailable if the table cannot be reached or is busy, and
        LookupFailed if asking again is of no use.
        """
        ...

    def close(self) -> None: ...


@runtime_checkable
class CheckedLookup(LookupTable, Protocol):
    """A lookup table that can be opened. It is sent to worker processes, so it holds no connection."""

    @property
    def most_keys(self) -> int | None:
        """Return how many keys a request may have; None for any number."""
        ...

    def check(self, keys: Sequence[str]) -> None:
        """Raise if it does not exist, lacks a column, has another type, or rejects the connection."""
        ...

    def open(self, keys: Sequence[str], columns: Sequence[str]) -> OpenLookup:
        """Open it for these key columns and these other columns."""
        ...
