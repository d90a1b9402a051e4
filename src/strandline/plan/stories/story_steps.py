"""Define the steps of a story: input, time and expectations."""

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
    """Advance the watermark of a partition or input, or of all."""

    to: Timestamp
    of: str | None = None
    """A partition; None for all of them."""
    input: str | None = None
    """An input by name; None for all, or the only one."""


@dataclass(frozen=True, slots=True)
class MoveClock:
    to: Timestamp


@dataclass(frozen=True, slots=True)
class FallIdle:
    name: str | None
    """A partition; None for all of the input."""
    input: str | None = None


@dataclass(frozen=True, slots=True)
class ReturnActive:
    name: str | None
    """A partition; None for all of the input."""
    input: str | None = None


@dataclass(frozen=True, slots=True)
class Finish:
    name: str | None
    """A partition; None for all of the input."""
    input: str | None = None


@dataclass(frozen=True, slots=True)
class Drain:
    """End all input."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Stop, restore from the saved state, and continue."""


@dataclass(frozen=True, slots=True)
class SetTables:
    """Set the rows of lookup tables by name; None if a table does not answer from now on."""

    tables: Mapping[str, tuple[Mapping[str, Any], ...] | None]


Move = SetTables | Feed | MoveWatermark | MoveClock | FallIdle | ReturnActive | Finish | Drain | Restart


@dataclass(frozen=True, slots=True)
class Row:
    """An expected row: fields with values, converted to model values where the model has the field."""

    fields: Mapping[str, Any]
    place: str = ""


@dataclass(frozen=True, slots=True)
class ExpectPanes:
    """Expect these panes since the last expectation, and no others unless `some` is set."""

    rows: tuple[Row, ...]
    some: bool = False
    output: str = ""


@dataclass(frozen=True, slots=True)
class ExpectLate:
    rows: tuple[Row, ...]
    output: str = ""


@dataclass(frozen=True, slots=True)
class ExpectDead:
    rows: tuple[Row, ...]
    output: str = ""


@dataclass(frozen=True, slots=True)
class ExpectWatermark:
    """Expect a watermark, or a forwarded watermark; the beginning of time before there is one."""

    at: Timestamp
    of_output: bool = False
    operator: str | None = None
    """An operator by name; None for the lowest watermark of all."""


@dataclass(frozen=True, slots=True)
class ExpectIdle:
    is_idle: bool


@dataclass(frozen=True, slots=True)
class ExpectState:
    """Expect a number of windows held, over all keys: open ones, and marks of closed ones; `empty` is zero."""

    rows: int
    operator: str | None = None


@dataclass(frozen=True, slots=True)
class Ignore:
    """Discard pending output."""


Expectation = ExpectPanes | ExpectLate | ExpectDead | ExpectWatermark | ExpectIdle | ExpectState | Ignore


@dataclass(frozen=True, slots=True)
class Step:
    """One step with its position."""

    act: Move | Expectation
    place: str = ""
