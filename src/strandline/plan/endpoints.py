"""What the planner asks of a source, a format and a sink, before any of them is opened."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol, runtime_checkable


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
