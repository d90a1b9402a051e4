"""Define panes and their timing, accumulation modes, lateness, late elements and dead letters."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from strandline.errors import InvalidStep
from strandline.model.elements import ZERO, Duration, Element, Timestamp
from strandline.model.windows import Window


class Timing(StrEnum):
    """A pane's timing relative to the end of its window: EARLY*, then at most one ON_TIME, then LATE*."""

    EARLY = "early"
    ON_TIME = "on_time"
    LATE = "late"


class Accumulation(StrEnum):
    """The content of a pane: new elements, all elements, or all elements with a retraction of the previous pane."""

    DISCARDING = "discarding"
    ACCUMULATING = "accumulating"
    RETRACTING = "retracting"


class PaneTimestamp(StrEnum):
    """The timestamp of a pane as an element of the next step."""

    END_OF_WINDOW = "end_of_window"
    EARLIEST = "earliest"
    LATEST = "latest"


class Emit(StrEnum):
    """Whether a firing without new elements emits a pane."""

    ALWAYS = "always"
    IF_NON_EMPTY = "if_non_empty"


class LateRows(StrEnum):
    """Whether there is one late row for each refused element, or one for each window that refuses it."""

    PER_ELEMENT = "per_element"
    PER_WINDOW = "per_window"


class LateReason(StrEnum):
    """Why an element was refused."""

    EXPIRED = "expired"
    CLOSED = "closed"
    BEHIND = "behind"
    NO_SUCH_ROW = "no_such_row"
    """A retraction of a row that its table does not have."""


class DeadReason(StrEnum):
    """Why an element became a dead letter."""

    NO_EVENT_TIME = "no_event_time"
    FUTURE = "future"
    BAD_GAP = "bad_gap"
    BAD_WINDOW = "bad_window"


@dataclass(frozen=True, slots=True)
class Lateness:
    """How long after its end a window still accepts elements; None is forever."""

    allowed: Duration | None = ZERO
    rows: LateRows = LateRows.PER_ELEMENT

    def __post_init__(self) -> None:
        if self.allowed is not None and self.allowed < ZERO:
            raise InvalidStep(f"an allowed lateness of {self.allowed} is negative", hint="allow zero or more")


@dataclass(frozen=True, slots=True)
class Pane:
    """One result for a key and window."""

    key: Any
    window: Window
    values: Mapping[str, Any]
    timing: Timing
    index: int
    nonspeculative_index: int
    is_first: bool
    is_last: bool
    timestamp: Timestamp
    retraction: bool = False
    output: str = ""
    """The output that it was written to, where a pipeline has several."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a changelog: an insertion, or the retraction of an equal row."""

    key: Any
    at: Timestamp
    values: Mapping[str, Any]
    retraction: bool = False
    output: str = ""


@dataclass(frozen=True, slots=True)
class Late:
    """A late element, and why: the window that refused it, and the watermark."""

    element: Element
    reason: LateReason
    window: Window | None
    watermark: Timestamp
    partial: bool = False
    output: str = ""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An element that could not be processed, and why; with whatever could be read of it."""

    reason: str
    columns: Mapping[str, Any] = field(default_factory=dict)
    output: str = ""


@dataclass(frozen=True, slots=True)
class Emitted:
    """The output of one batch: panes or rows, late elements and dead letters, each in its own order."""

    panes: tuple[Pane, ...] = ()
    late: tuple[Late, ...] = ()
    dead: tuple[DeadLetter, ...] = ()
    rows: tuple[Row, ...] = ()
    """Rows of operators without windows."""

    def __add__(self, later: "Emitted") -> "Emitted":
        return Emitted(self.panes + later.panes, self.late + later.late, self.dead + later.dead, self.rows + later.rows)
