"""Define the lookup join: add the current row of a table, found by key, to each row of a stream."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol, runtime_checkable

from strandline.errors import InvalidStep
from strandline.model.elements import ZERO, Duration


class Missing(StrEnum):
    """What becomes of a row whose key the table does not have."""

    PAD = "pad"
    """It passes, with nulls for the table's columns: a left join."""
    DROP = "drop"
    """It is dropped and counted: an inner join."""


class OnFailure(StrEnum):
    """What becomes of a row while the table does not answer."""

    WAIT = "wait"
    """Its batch waits until the table answers."""
    DEAD_LETTER = "dead_letter"
    """It becomes a dead letter with the reason `lookup_failed`."""


@runtime_checkable
class LookupTable(Protocol):
    """A table that has at most one row for each key."""

    @property
    def name(self) -> str: ...

    @property
    def table_columns(self) -> Mapping[str, str]:
        """Return its columns, those of the key among them, with their types in DDL."""
        ...

    @property
    def key_columns(self) -> tuple[str, ...]:
        """Return the columns by which it finds a row; empty if it finds rows by any columns."""
        ...


@dataclass(frozen=True, slots=True)
class LookupLimits:
    """How a worker process asks a table. The rows are the same with any limits, apart from the age of answers."""

    cache_for: Duration = ZERO
    """How old a cached answer may be, in processing time; zero for no cache."""
    cache_missing_for: Duration = ZERO
    """How old the cached answer may be that a key is missing."""
    cache_rows: int = 100_000
    """How many answers a process caches; the oldest are removed first."""
    keys_per_request: int = 1_000
    concurrency: int = 4
    """How many requests of a process run at the same time."""
    per_second: float | None = None
    """How many requests a process sends in a second; None for no limit."""
    attempts: int = 3
    """How often a request is tried before the table counts as failed."""

    def __post_init__(self) -> None:
        for name in ("cache_rows", "keys_per_request", "concurrency", "attempts"):
            if getattr(self, name) < 1:
                raise InvalidStep(f"{name} is {getattr(self, name)}", hint="use 1 or more")
        if self.per_second is not None and not self.per_second > 0:
            raise InvalidStep(f"per_second is {self.per_second}", hint="use a number above 0, or leave it out")
        for name in ("cache_for", "cache_missing_for"):
            if getattr(self, name) < ZERO:
                raise InvalidStep(f"{name} is {getattr(self, name)}", hint="use a length of zero or more")


USUAL_LIMITS: Final = LookupLimits()


@dataclass(frozen=True, slots=True)
class LookupJoin:
    """Add the columns of a table's current row to each row. A row with a null in its key matches nothing."""

    table: LookupTable
    keys: tuple[tuple[str, str], ...]
    """Key columns: of the stream, and of the table."""
    columns: tuple[tuple[str, str, str], ...]
    """The other columns of the table: name there, name in the result, type in DDL."""
    missing: Missing = Missing.PAD
    on_failure: OnFailure = OnFailure.WAIT
    pin: bool = False
    """Whether the answers of a batch are stored in the job's folder, so that a repeated batch gets the same ones."""
    limits: LookupLimits = USUAL_LIMITS

    @property
    def definition(self) -> Mapping[str, Any]:
        """Return what checkpoints store: what a row means, not how the table is asked."""
        return {"table": self.table, "keys": self.keys, "columns": self.columns, "missing": self.missing}

    @property
    def key_names(self) -> tuple[str, ...]:
        """Return the key columns of the stream."""
        return tuple(name for name, _ in self.keys)

    @property
    def table_keys(self) -> tuple[str, ...]:
        """Return the key columns of the table."""
        return tuple(name for _, name in self.keys)

    @property
    def value_names(self) -> tuple[str, ...]:
        """Return the columns that it reads from the table besides the key."""
        return tuple(name for name, _, _ in self.columns)

    def __str__(self) -> str:
        keys = ", ".join(name if name == other else f"{name} = {other}" for name, other in self.keys)
        unmatched = "rows without a match are dropped" if self.missing is Missing.DROP else "unmatched rows are padded"
        pinned = ", answers pinned" if self.pin else ""
        return f"enrich from {self.table.name} on {keys}; {unmatched}{pinned}"
