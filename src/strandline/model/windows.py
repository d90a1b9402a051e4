"""Define the kinds of windows.

A window is half-open, [start, end). Its max timestamp, one millisecond before the end, is the last time it contains.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from strandline.errors import InvalidWindow
from strandline.model.arguments import checked
from strandline.model.elements import BEGINNING, END, INSTANT, ZERO, Duration, Length, Timestamp, duration


@dataclass(frozen=True, order=True, slots=True)
class Window:
    """An interval of event time. With a key it is the identity under which panes are numbered."""

    start: Timestamp
    end: Timestamp

    @property
    def max_timestamp(self) -> Timestamp:
        return self.end - INSTANT

    def __str__(self) -> str:
        return "global" if self == EVERYTHING else f"[{self.start}, {self.end})"


EVERYTHING: Final = Window(BEGINNING, END)
"""The single window of Global; it completes only at the end of time."""


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of one size, end to end."""

    size: Duration
    offset: Duration = ZERO

    def __post_init__(self) -> None:
        _positive("a tumbling window's size", self.size)


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of one size, one for every slide. A slide above the size leaves gaps between them."""

    size: Duration
    every: Duration
    offset: Duration = ZERO

    def __post_init__(self) -> None:
        _positive("a sliding window's size", self.size)
        _positive("a sliding window's slide", self.every)

    @property
    def leaves_gaps(self) -> bool:
        return self.every > self.size


@dataclass(frozen=True, slots=True)
class Cumulating:
    """The growing prefixes of a tumbling window: [0, step), [0, 2 steps), … up to its size."""

    size: Duration
    step: Duration
    offset: Duration = ZERO

    def __post_init__(self) -> None:
        _positive("a cumulating window's size", self.size)
        _positive("a cumulating window's step", self.step)
        if self.size.ms % self.step.ms:
            raise InvalidWindow(
                f"a cumulating window of {self.size} is not a whole number of steps of {self.step}",
                hint="choose a step that divides the size",
            )


class Touching(StrEnum):
    """Whether two sessions merge if one ends where the other starts."""

    MERGE = "merge"
    SEPARATE = "separate"


@dataclass(frozen=True, slots=True)
class GapColumn:
    """A session gap read from a column of each element, in milliseconds or as a duration text."""

    name: str


@dataclass(frozen=True, slots=True)
class Session:
    """Bursts of activity: each element opens [t, t + gap), and overlapping windows merge."""

    gap: Duration | GapColumn
    touching: Touching = Touching.MERGE

    def __post_init__(self) -> None:
        if isinstance(self.gap, Duration):
            _positive("a session's gap", self.gap)


@dataclass(frozen=True, slots=True)
class Global:
    """One window over all time. It needs a trigger, since it completes only when the stream ends."""


@dataclass(frozen=True, slots=True)
class Count:
    """Windows by arrival: every `size` elements of a key, or the last `size` after every `every` elements.

    Their bounds count elements, not time: [0, 3) holds the first three of a key. Such a window has no end in event
    time, so `end_of_window` gives its pane the latest time of its elements, and it holds no watermark back.
    """

    size: int
    every: int | None = None

    def __post_init__(self) -> None:
        for name, number in (("size", self.size), ("slide", self.every)):
            if number is not None and number < 1:
                raise InvalidWindow(f"a count window's {name} is {number}", hint="count at least one element")


@dataclass(frozen=True, slots=True)
class Custom:
    """Bounds read from two columns of each element; an end not after its start is a dead letter."""

    start: str
    end: str


WindowKind = Tumbling | Sliding | Cumulating | Session | Global | Count | Custom


def describe(kind: WindowKind) -> str:
    """Return the window as Python code."""
    match kind:
        case Tumbling(size, offset):
            return f"tumbling({size}{_offset(offset)})"
        case Sliding(size, every, offset):
            return f"sliding({size}, every={every}{_offset(offset)})"
        case Cumulating(size, step, offset):
            return f"cumulating({size}, step={step}{_offset(offset)})"
        case Session(gap, touching):
            length = f"column={gap.name!r}" if isinstance(gap, GapColumn) else str(gap)
            return f"session({length}{'' if touching is Touching.MERGE else ', touching=separate'})"
        case Global():
            return "everything()"
        case Count(size, slide):
            return f"count_window({size}{'' if slide is None else f', every={slide}'})"
        case Custom(start=first, end=last):
            return f"custom(start={first!r}, end={last!r})"
    assert_never(kind)


def _offset(offset: Duration) -> str:
    return f", offset={offset}" if offset != ZERO else ""


def _positive(what: str, length: Duration) -> None:
    if length.ms <= 0:
        raise InvalidWindow(f"{what} is {length}", hint="give a length above zero")


@checked
def tumbling(size: Length | None = None, /, *, offset: Length = ZERO, **units: float) -> Tumbling:
    """Create windows of one size, end to end: `tumbling(minutes=2)`."""
    return Tumbling(duration(size, **units), duration(offset))


@checked
def sliding(size: Length | None = None, /, *, every: Length, offset: Length = ZERO, **units: float) -> Sliding:
    """Create overlapping windows: `sliding(minutes=10, every="1m")`."""
    return Sliding(duration(size, **units), duration(every), duration(offset))


@checked
def cumulating(size: Length | None = None, /, *, step: Length, offset: Length = ZERO, **units: float) -> Cumulating:
    """Create growing windows: `cumulating(hours=1, step="10m")`."""
    return Cumulating(duration(size, **units), duration(step), duration(offset))


@checked
def session(
    gap: Length | None = None,
    /,
    *,
    column: str | None = None,
    touching: Touching | str = Touching.MERGE,
    **units: float,
) -> Session:
    """Create sessions that end with a gap: `session(minutes=30)`, or `session(column="gap")` for a gap per element."""
    touch = Touching(touching)
    if column is None:
        return Session(duration(gap, **units), touch)
    if gap is not None or units:
        raise InvalidWindow("a session's gap is given twice, as a duration and as a column", hint="give one of them")
    return Session(GapColumn(column), touch)


@checked
def everything() -> Global:
    """Create one window over all time."""
    return Global()


@checked
def count_window(size: int, *, every: int | None = None) -> Count:
    """Create windows by arrival: `count_window(100)`, or the last 100 after every 10: `count_window(100, every=10)`."""
    return Count(size, every)


@checked
def custom(*, start: str, end: str) -> Custom:
    """Create windows with bounds from two columns of each element."""
    return Custom(start, end)
