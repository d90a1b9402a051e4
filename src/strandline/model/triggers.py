"""When to speak: the triggers, and how they combine.

A trigger is a tree of frozen values. What each node does (when it should fire, what firing does to it, when it is
finished, how it merges) is said by the players; here stands what was asked, and what can be known of it beforehand.
"""

from dataclasses import dataclass
from typing import Final, assert_never

from strandline.errors import InvalidTrigger
from strandline.model.elements import ZERO, Duration, Length, duration
from strandline.model.expressions import Expression, expression


@dataclass(frozen=True, slots=True)
class AfterWatermark:
    """At the window's end by the watermark; before it as `early` says, after it as `late` says, both by repetition."""

    early: "Trigger | None" = None
    late: "Trigger | None" = None


@dataclass(frozen=True, slots=True)
class AfterCount:
    """Once at least n elements have come since the last firing."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InvalidTrigger(f"after_count({self.n}) would fire without elements", hint="count one or more")


@dataclass(frozen=True, slots=True)
class AfterProcessingTime:
    """Once the clock has passed the first element's arrival by a delay, rounded up to an aligned period if asked."""

    delay: Duration = ZERO
    aligned: Duration | None = None
    offset: Duration = ZERO

    def __post_init__(self) -> None:
        if self.delay < ZERO:
            raise InvalidTrigger(f"a delay of {self.delay} lies in the past", hint="wait for zero or more")
        if self.aligned is not None and self.aligned <= ZERO:
            raise InvalidTrigger(f"a period of {self.aligned} has no boundaries", hint="align to a length above zero")


@dataclass(frozen=True, slots=True)
class AfterEventTime:
    """Once the watermark has reached the next boundary of a period in event time."""

    period: Duration
    offset: Duration = ZERO

    def __post_init__(self) -> None:
        if self.period <= ZERO:
            raise InvalidTrigger(f"a period of {self.period} has no boundaries", hint="give a length above zero")


@dataclass(frozen=True, slots=True)
class When:
    """Once an expression is true of the value the pane would have.

    It reads the aggregates by name, the last emitted ones as `last.name`, and `since`, the elements since the last
    firing. It is a level, not an edge: `total > 100 and (last.total is None or last.total <= 100)` is the edge.
    """

    condition: Expression


@dataclass(frozen=True, slots=True)
class Never:
    """Not at all; what a window holds still comes out when it expires."""


@dataclass(frozen=True, slots=True)
class Repeatedly:
    """Again and again: a part that has finished starts over."""

    of: "Trigger"


@dataclass(frozen=True, slots=True)
class FirstOf:
    """When any of its parts would."""

    parts: tuple["Trigger", ...]

    def __post_init__(self) -> None:
        _several("first_of", self.parts)


@dataclass(frozen=True, slots=True)
class AllOf:
    """When every one of its parts would, or has."""

    parts: tuple["Trigger", ...]

    def __post_init__(self) -> None:
        _several("all_of", self.parts)


@dataclass(frozen=True, slots=True)
class InSequence:
    """One part after the other."""

    parts: tuple["Trigger", ...]

    def __post_init__(self) -> None:
        _several("in_sequence", self.parts)


@dataclass(frozen=True, slots=True)
class OrFinally:
    """As `main` says, until `until` fires once and ends it."""

    main: "Trigger"
    until: "Trigger"


Trigger = (
    AfterWatermark
    | AfterCount
    | AfterProcessingTime
    | AfterEventTime
    | When
    | Never
    | Repeatedly
    | FirstOf
    | AllOf
    | InSequence
    | OrFinally
)

DEFAULT: Final = Repeatedly(AfterWatermark())
"""On time, then once for each batch of late data that is still allowed."""


def parts_of(trigger: Trigger) -> tuple[Trigger, ...]:
    """The triggers directly inside a trigger, in the order in which they were written."""
    match trigger:
        case AfterWatermark(early, late):
            return tuple(part for part in (early, late) if part is not None)
        case Repeatedly(of):
            return (of,)
        case FirstOf(parts) | AllOf(parts) | InSequence(parts):
            return parts
        case OrFinally(main, until):
            return (main, until)
        case AfterCount() | AfterProcessingTime() | AfterEventTime() | When() | Never():
            return ()
    assert_never(trigger)


def may_finish(trigger: Trigger) -> bool:
    """Whether this trigger can close a window before its time, so that later elements are refused as `closed`."""
    match trigger:
        case AfterWatermark(_, late):
            return late is None
        case AfterCount() | AfterProcessingTime() | AfterEventTime() | When():
            return True
        case Never() | Repeatedly():
            return False
        case FirstOf():
            return any(can_fire(part) for part in trigger.parts)
        case AllOf(parts):
            return all(can_fire(part) for part in parts)
        case InSequence(parts):
            return all(may_finish(part) for part in parts)
        case OrFinally(main, until):
            return may_finish(main) or can_fire(until)
    assert_never(trigger)


def finishes_by_watermark_only(trigger: Trigger) -> bool:
    """Whether no window is ever closed by this trigger before the watermark has passed its end."""
    match trigger:
        case AfterWatermark() | Never() | Repeatedly():
            return True
        case AfterCount() | AfterProcessingTime() | AfterEventTime() | When():
            return False
        case FirstOf(parts):
            return all(_speaks_only_at_the_end(part) for part in parts)
        case AllOf(parts):
            return any(_speaks_only_at_the_end(part) for part in parts)
        case InSequence(parts):
            return any(finishes_by_watermark_only(part) for part in parts)
        case OrFinally(main, until):
            return finishes_by_watermark_only(main) and _speaks_only_at_the_end(until)
    assert_never(trigger)


def _speaks_only_at_the_end(trigger: Trigger) -> bool:
    match trigger:
        case AfterWatermark(early, _):
            return early is None
        case Never():
            return True
        case Repeatedly(of):
            return _speaks_only_at_the_end(of)
        case FirstOf(parts) | InSequence(parts):
            return all(_speaks_only_at_the_end(part) for part in parts)
        case AllOf(parts):
            return any(_speaks_only_at_the_end(part) for part in parts)
        case OrFinally(main, until):
            return _speaks_only_at_the_end(main) and _speaks_only_at_the_end(until)
        case AfterCount() | AfterProcessingTime() | AfterEventTime() | When():
            return False
    assert_never(trigger)


def can_fire(trigger: Trigger) -> bool:
    """False of a trigger that never speaks, whatever comes."""
    match trigger:
        case Never():
            return False
        case Repeatedly(of):
            return can_fire(of)
        case FirstOf(parts):
            return any(can_fire(part) for part in parts)
        case AllOf(parts):
            return all(can_fire(part) for part in parts)
        case InSequence(parts):
            return can_fire(parts[0])
        case OrFinally(main, until):
            return can_fire(main) or can_fire(until)
        case AfterWatermark() | AfterCount() | AfterProcessingTime() | AfterEventTime() | When():
            return True
    assert_never(trigger)


def reads_event_time(trigger: Trigger) -> bool:
    """Whether some part goes by the times of elements, not only by the watermark."""
    return isinstance(trigger, AfterEventTime) or any(reads_event_time(part) for part in parts_of(trigger))


def continued(trigger: Trigger) -> Trigger:
    """The trigger of a chained step that names none: the waiting was paid upstream, only the watermark still counts."""
    match trigger:
        case AfterWatermark(early, late):
            return AfterWatermark(early and continued(early), late and continued(late))
        case AfterCount() | AfterProcessingTime() | AfterEventTime() | When():
            return AfterCount(1)
        case Never():
            return trigger
        case Repeatedly(of):
            return Repeatedly(continued(of))
        case FirstOf(parts):
            return FirstOf(tuple(continued(part) for part in parts))
        case AllOf(parts):
            return AllOf(tuple(continued(part) for part in parts))
        case InSequence(parts):
            return Repeatedly(FirstOf(tuple(continued(part) for part in parts)))
        case OrFinally(main, until):
            return OrFinally(continued(main), continued(until))
    assert_never(trigger)


def describe(trigger: Trigger) -> str:
    """The trigger as it is written in Python."""
    match trigger:
        case AfterWatermark(early, late):
            given = [f"{name}={describe(part)}" for name, part in (("early", early), ("late", late)) if part]
            return f"after_watermark({', '.join(given)})"
        case AfterCount(n):
            return f"after_count({n})"
        case AfterProcessingTime(delay, aligned, offset):
            extra = f', aligned="{aligned}"' if aligned else ""
            return f'after_processing_time("{delay}"{extra}{_offset(offset)})'
        case AfterEventTime(period, offset):
            return f'after_event_time("{period}"{_offset(offset)})'
        case When(condition):
            return f'when("{condition}")'
        case Never():
            return "never()"
        case Repeatedly(of):
            return f"repeatedly({describe(of)})"
        case FirstOf(parts):
            return f"first_of({', '.join(map(describe, parts))})"
        case AllOf(parts):
            return f"all_of({', '.join(map(describe, parts))})"
        case InSequence(parts):
            return f"in_sequence({', '.join(map(describe, parts))})"
        case OrFinally(main, until):
            return f"or_finally({describe(main)}, {describe(until)})"
    assert_never(trigger)


def _offset(offset: Duration) -> str:
    return f', offset="{offset}"' if offset != ZERO else ""


def _several(name: str, parts: tuple[Trigger, ...]) -> None:
    if not parts:
        raise InvalidTrigger(f"{name} has no parts", hint="give it one trigger or more")


def after_watermark(*, early: Trigger | None = None, late: Trigger | None = None) -> AfterWatermark:
    """On time; with `early` also before that, with `late` also after, each again and again."""
    return AfterWatermark(_unrepeated(early), _unrepeated(late))


def _unrepeated(part: Trigger | None) -> Trigger | None:
    """Early and late parts repeat by themselves, so repeating them says nothing more."""
    return part.of if isinstance(part, Repeatedly) else part


def after_count(n: int) -> AfterCount:
    """Once at least n elements have come."""
    return AfterCount(n)


def after_processing_time(
    delay: Length | None = None, /, *, aligned: Length | None = None, offset: Length = ZERO, **units: float
) -> AfterProcessingTime:
    """A while after the first element: `after_processing_time(seconds=30)`, or on the minute: `aligned="1m"`."""
    wait = ZERO if delay is None and not units and aligned is not None else duration(delay, **units)
    return AfterProcessingTime(wait, None if aligned is None else duration(aligned), duration(offset))


def after_event_time(period: Length | None = None, /, *, offset: Length = ZERO, **units: float) -> AfterEventTime:
    """When the watermark reaches the next boundary of a period."""
    return AfterEventTime(duration(period, **units), duration(offset))


def when(condition: str) -> When:
    """When an expression over the pane's values is true: `when("total > 100")`."""
    return When(expression(condition))


def never() -> Never:
    """Only when the window expires."""
    return Never()


def repeatedly(of: Trigger) -> Repeatedly:
    """Again and again."""
    return Repeatedly(of)


def every(delay: Length | None = None, /, **units: float) -> Repeatedly:
    """Each time this much of the clock has passed since the first new element: `every(seconds=30)`."""
    return Repeatedly(AfterProcessingTime(duration(delay, **units)))


def first_of(*parts: Trigger) -> FirstOf:
    """When any part would."""
    return FirstOf(parts)


def all_of(*parts: Trigger) -> AllOf:
    """When every part would."""
    return AllOf(parts)


def in_sequence(*parts: Trigger) -> InSequence:
    """One part after the other."""
    return InSequence(parts)


def or_finally(main: Trigger, until: Trigger) -> OrFinally:
    """As main says, until the other fires."""
    return OrFinally(main, until)
