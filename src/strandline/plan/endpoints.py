"""What the planner asks of a source, a format and a sink, before any of them is opened."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from strandline.errors import InvalidStep


class Delivery(StrEnum):
    """What a reader of the sink may see of each batch, whatever crashes in between."""

    AT_MOST_ONCE = "at_most_once"
    AT_LEAST_ONCE = "at_least_once"
    EXACTLY_ONCE = "exactly_once"


@runtime_checkable
class Source(Protocol):
    """Where elements come from: partitions that can be read again from any position."""

    @property
    def name(self) -> str: ...

    @property
    def partitions(self) -> tuple[str, ...]:
        """The partitions known beforehand; each holds the watermark back until it is heard."""
        ...

    @property
    def types(self) -> Mapping[str, str]:
        """The columns its elements have, each with its type as DDL writes it."""
        ...

    @property
    def decoder(self) -> object | None:
        """How its records are read; None where Spark has read them already."""
        ...


@runtime_checkable
class Sink(Protocol):
    """Where panes go."""

    @property
    def name(self) -> str: ...

    @property
    def offers(self) -> frozenset[Delivery]:
        """The deliveries it can promise."""
        ...

    @property
    def takes_retractions(self) -> bool: ...


@runtime_checkable
class DeadLetters(Protocol):
    """Where dead letters go, and what of them is not told."""

    @property
    def name(self) -> str: ...

    @property
    def mask(self) -> tuple[str, ...]:
        """The fields whose values are hidden, wherever they stand in a record."""
        ...


@dataclass(frozen=True, slots=True)
class DeadTable:
    """Dead letters beside the panes, in a table of the sink's own."""

    mask: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return "the sink's own table"


def dead_table(*, mask: Iterable[str] = ()) -> DeadTable:
    """Dead letters beside the panes, as always, with fields masked: `write(sink, dead=dead_table(mask=["card"]))`."""
    return DeadTable(fields_of(mask))


def fields_of(mask: Iterable[str]) -> tuple[str, ...]:
    """The names of fields to hide."""
    if isinstance(mask, str):
        raise InvalidStep(f"a mask of {mask!r} is a text", hint=f"give a list of fields: mask=[{mask!r}]")
    found: tuple[Any, ...] = tuple(mask)
    if not all(isinstance(name, str) and name for name in found):
        raise InvalidStep("a mask names a field that has no name", hint='give the names of fields: mask=["card"]')
    return found


class Ledgered:
    """A sink that keeps a ledger beside its rows: it can promise every delivery, and takes panes back."""

    __slots__ = ()

    @property
    def offers(self) -> frozenset[Delivery]:
        return frozenset(Delivery)

    @property
    def takes_retractions(self) -> bool:
        return True
