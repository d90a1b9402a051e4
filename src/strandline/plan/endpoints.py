"""Define what the planner needs to know of sources and sinks before they are opened."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from strandline.errors import InvalidStep
from strandline.model.arguments import checked


class Delivery(StrEnum):
    """Delivery guarantee: what a reader of the sink sees of each batch after any crash."""

    AT_MOST_ONCE = "at_most_once"
    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


@runtime_checkable
class Source(Protocol):
    """A source of elements: partitions that can be read again from any position."""

    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[str, ...]:
        """Return the partitions known beforehand. Each holds the watermark back until its first record or end."""
        ...

    @property
    def types(self) -> Mapping[str, str]:
        """Return the columns of its elements with their types in DDL."""
        ...

    @property
    def decoder(self) -> object | None:
        """Return the decoder of its records; None if Spark decodes them."""
        ...


@runtime_checkable
class Sink(Protocol):
    """A sink of rows."""

    @property
    def name(self) -> str: ...

    @property
    def offers(self) -> frozenset[Delivery]:
        """Return the delivery guarantees it supports."""
        ...

    @property
    def takes_retractions(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class UpsertKey:
    """The key of a sink that upserts: a row replaces the earlier row with the same key, a retraction deletes it."""

    columns: tuple[str, ...] = ()
    """By public names; if empty, the keys and windows of the panes."""
    compares_windows: bool = True
    """Whether a row of an earlier window leaves the row of a later one in place."""


def upsert_key_of(sink: Sink) -> UpsertKey | None:
    """Return the key by which a sink upserts; None if it appends, as every sink without this property does."""
    return getattr(sink, "upsert_key", None)


def latest_view_of(sink: Sink) -> str | None:
    """Return what shows the latest results of rows that a sink appends; None if nothing does."""
    return getattr(sink, "latest_view", None)


@runtime_checkable
class WritesColumns(Protocol):
    """A sink that needs columns by name: those of its key, or of its format."""

    @property
    def needed_columns(self) -> tuple[str, ...]: ...


@runtime_checkable
class DeadLetters(Protocol):
    """A sink of dead letters, and the fields it masks."""

    @property
    def name(self) -> str: ...

    @property
    def mask(self) -> tuple[str, ...]:
        """Return the fields whose values are masked, at any depth of a record."""
        ...


@dataclass(frozen=True, slots=True)
class DeadTable:
    """Write dead letters to a table of the sink, beside the rows."""

    mask: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "the sink's own table"


@checked
def dead_table(*, mask: Iterable[str] = ()) -> DeadTable:
    """Write dead letters to the sink's own table with fields masked: `write(sink, dead=dead_table(mask=["card"]))`."""
    return DeadTable(fields_of(mask))


def fields_of(mask: Iterable[str]) -> tuple[str, ...]:
    """Check the names of fields to mask and return them."""
    if isinstance(mask, str):
        raise InvalidStep(f"the mask {mask!r} is a string", hint=f"give a list of fields: mask=[{mask!r}]")
    found: tuple[Any, ...] = tuple(mask)
    if not all(isinstance(name, str) and name for name in found):
        raise InvalidStep("a field in the mask has no name", hint='give the names of fields: mask=["card"]')
    return found


class Ledgered:
    """A sink that stores a ledger beside its rows. It supports every delivery guarantee and retractions."""

    __slots__ = ()

    @property
    def offers(self) -> frozenset[Delivery]:
        return frozenset(Delivery)

    @property
    def takes_retractions(self) -> bool:
        return True
