"""The steps of a story as values: what comes in, how time moves, and what must come out."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strandline.model.elements import Element, Timestamp


@dataclass(frozen=True, slots=True)
class Feed:
    """One batch of elements."""

    elements: tuple[Element, ...]


@dataclass(frozen=True, slots=True)
class MoveWatermark:
    """The watermark of one partition or input is told, or the whole one."""

    to: Timestamp
    of: str | None = None


@dataclass(frozen=True, slots=True)
class MoveClock:
    to: Timestamp


@dataclass(frozen=True, slots=True)
class FallIdle:
    name: str


@dataclass(frozen=True, slots=True)
class ReturnActive:
    name: str


@dataclass(frozen=True, slots=True)
class Finish:
    name: str


@dataclass(frozen=True, slots=True)
class Drain:
    """The end of input."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Stop, restore from what was kept, go on."""


Move = Feed | MoveWatermark | MoveClock | FallIdle | ReturnActive | Finish | Drain | Restart


@dataclass(frozen=True, slots=True)
class Row:
    """An expected row: the fields it names, as values of the model where it is a field of the model."""

    fields: Mapping[str, Any]
    place: str = ""


@dataclass(frozen=True, slots=True)
class ExpectPanes:
    """These panes came out since the last expectation; unless some are enough, no others."""

    rows: tuple[Row, ...]
    some: bool = False


@dataclass(frozen=True, slots=True)
class ExpectLate:
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class ExpectDead:
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class ExpectWatermark:
    """Where the watermark is, or what the step forwards; none before there is one."""

    at: Timestamp
    of_output: bool = False


@dataclass(frozen=True, slots=True)
class ExpectIdle:
    is_idle: bool


@dataclass(frozen=True, slots=True)
class ExpectState:
    """How many windows are still held, over all keys: open ones, and marks of closed ones; none is `empty`."""

    rows: int


@dataclass(frozen=True, slots=True)
class Ignore:
    """Throws away what is pending."""


Expectation = ExpectPanes | ExpectLate | ExpectDead | ExpectWatermark | ExpectIdle | ExpectState | Ignore


@dataclass(frozen=True, slots=True)
class Step:
    """One step, and where it was written."""

    act: Move | Expectation
    place: str = ""
