"""Define evictors: they drop elements of a window at a firing, before or after its value is computed."""

from dataclasses import dataclass
from enum import StrEnum

from strandline.errors import InvalidStep
from strandline.model.arguments import checked
from strandline.model.elements import Duration, Length, duration
from strandline.model.expressions import Expression, expression, names_of


class Moment(StrEnum):
    """Whether an evictor runs before or after the value of the pane is computed."""

    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class KeepLast:
    """Drop the earliest arrivals until n elements remain."""

    n: int
    moment: Moment = Moment.BEFORE

    def __post_init__(self) -> None:
        if self.n < 0:
            raise InvalidStep(f"keep_last({self.n}) keeps less than nothing", hint="keep zero or more")


@dataclass(frozen=True, slots=True)
class KeepWithin:
    """Drop elements whose event time is `length` or more before the newest one."""

    length: Duration
    moment: Moment = Moment.BEFORE

    def __post_init__(self) -> None:
        if self.length.ms <= 0:
            raise InvalidStep(f"keep_within({self.length}) keeps nothing", hint="give a length above zero")


@dataclass(frozen=True, slots=True)
class KeepDelta:
    """Drop elements whose distance from the last one, over `last.column` and `column`, is `bound` or more."""

    distance: Expression
    bound: float
    moment: Moment = Moment.BEFORE

    def __post_init__(self) -> None:
        for name in names_of(self.distance.tree):
            if name.scope not in ("", "last"):
                raise InvalidStep(
                    f"the distance {self.distance.text!r} reads {name.scope}.{name.name}",
                    hint="a distance reads columns, and columns of the last element as last.…",
                )


Evictor = KeepLast | KeepWithin | KeepDelta


@checked
def keep_last(n: int, *, when: Moment | str = Moment.BEFORE) -> KeepLast:
    """Keep the n newest elements by arrival."""
    return KeepLast(n, Moment(when))


@checked
def keep_within(length: Length | None = None, /, *, when: Moment | str = Moment.BEFORE, **units: float) -> KeepWithin:
    """Keep elements close to the newest event time."""
    return KeepWithin(duration(length, **units), Moment(when))


@checked
def keep_delta(distance: str, *, bound: float, when: Moment | str = Moment.BEFORE) -> KeepDelta:
    """Keep elements near the last one: `keep_delta("last.value - value", bound=2)`."""
    return KeepDelta(expression(distance), bound, Moment(when))
