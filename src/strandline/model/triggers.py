"""Define triggers and how they combine.

A trigger is a tree of frozen values. The engines define what each node does: when it fires, what firing does to it,
when it is finished, how it merges. This module holds the values, and what can be derived from them in advance.
"""

from dataclasses import dataclass
from typing import Final, assert_never

from strandline.errors import InvalidTrigger
from strandline.model.arguments import checked
from strandline.model.elements import ZERO, Duration, Length, duration
from strandline.model.expressions import Expression, expression


@dataclass(frozen=True, slots=True)
class AfterWatermark:
    """Fires at the window's end by the watermark; `early` repeats before the end, `late` after it."""

    early: "Trigger | None" = None
    late: "Trigger | None" = None


@dataclass(frozen=True, slots=True)
class AfterCount:
    """Fires once at least n elements have arrived since the last firing."""

    n: int

    def __post_init__(self) -> None:
        if self.n < 1:
            raise InvalidTrigger(f"after_count({self.n}) would fire without elements", hint="count one or more")


@dataclass(frozen=True, slots=True)
class AfterProcessingTime:
    """Fires when the clock passes the first element's arrival plus a delay, rounded up to an aligned period if set."""

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
    """Fires when the watermark reaches the next boundary of a period in event time."""

    period: Duration
    offset: Duration = ZERO

    def __post_init__(self) -> None:
        if self.period <= ZERO:
            raise InvalidTrigger(f"a period of {self.period} has no boundaries", hint="give a length above zero")


@dataclass(frozen=True, slots=True)
class When:
    """Fires when an expression is true for the values that the pane would have.

    It reads the aggregates by name, the last emitted ones as `last.name`, and `since`, the elements since the last
    firing. It tests a level, not an edge: `total > 100 and (last.total is None or last.total <= 100)` is the edge.
    """

    condition: Expression


@dataclass(frozen=True, slots=True)
class Never:
    """Never fires; a window's contents are still emitted when it expires."""


@dataclass(frozen=True, slots=True)
class Repeatedly:
    """Repeats its part: a part that has finished starts over."""

    of: "Trigger"


@dataclass(frozen=True, slots=True)
class FirstOf:
    """Fires when any of its parts would."""

    parts: tuple["Trigger", ...]

    def __post_init__(self) -> None:
        _several("first_of", self.parts)


@dataclass(frozen=True, slots=True)
class AllOf:
    """Fires when each of its parts would, or has finished."""

    parts: tuple["Trigger", ...]

    def __post_init__(self) -> None:
        _several("all_of", self.parts)


@dataclass(frozen=True, slots=True)
class InSequence:
    """Runs one part after the other."""

    parts: tuple["Trigger", ...]

    def __post_init__(self) -> None:
        _several("in_sequence", self.parts)


@dataclass(frozen=True, slots=True)
class OrFinally:
    """Fires as `main` does, until `until` fires once and finishes it."""

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
    """Return the direct parts of a trigger, in the order in which they were written."""
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
    """Return whether this trigger can close a window before it expires, so that later elements are late (`closed`)."""
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
    """Return whether this trigger never closes a window before the watermark has passed its end."""
    match trigger:
        case AfterWatermark() | Never() | Repeatedly():
            return True
        case AfterCount() | AfterProcessingTime() | AfterEventTime() | When():
            return False
        case FirstOf(parts):
            return all(fires_only_at_the_end(part) for part in parts)
        case AllOf(parts):
            return any(fires_only_at_the_end(part) for part in parts)
        case InSequence(parts):
            return any(finishes_by_watermark_only(part) for part in parts)
        case OrFinally(main, until):
            return finishes_by_watermark_only(main) and fires_only_at_the_end(until)
    assert_never(trigger)


def fires_only_at_the_end(trigger: Trigger) -> bool:
    """Return whether this trigger never fires before the watermark has passed the end of the window."""
    match trigger:
        case AfterWatermark(early, _):
            return early is None
        case Never():
            return True
        case Repeatedly(of):
            return fires_only_at_the_end(of)
        case FirstOf(parts) | InSequence(parts):
            return all(fires_only_at_the_end(part) for part in parts)
        case AllOf(parts):
            return any(fires_only_at_the_end(part) for part in parts)
        case OrFinally(main, until):
            return fires_only_at_the_end(main) and fires_only_at_the_end(until)
        case AfterCount() | AfterProcessingTime() | AfterEventTime() | When():
            return False
    assert_never(trigger)


def fires_once(trigger: Trigger) -> bool:
    """Return whether this trigger finishes with its first firing, so that a window fires at most once."""
    match trigger:
        case AfterWatermark(early, late):
            return early is None and late is None
        case AfterCount() | AfterProcessingTime() | AfterEventTime() | When() | FirstOf() | AllOf() | Never():
            return True
        case Repeatedly(of):
            return not can_fire(of)
        case InSequence(parts):
            return len(parts) == 1 and fires_once(parts[0])
        case OrFinally(main, until):
            return fires_once(main) and fires_once(until)
    assert_never(trigger)


def can_fire(trigger: Trigger) -> bool:
    """Return whether a trigger can fire at all."""
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
    """Return whether any part uses the event times of elements, not only the watermark."""
    return isinstance(trigger, AfterEventTime) or any(reads_event_time(part) for part in parts_of(trigger))


def continued(trigger: Trigger) -> Trigger:
    """Return the trigger of a chained step without its own: delays were applied upstream, only the watermark counts."""
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
    """Return the trigger as Python code."""
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


@checked
def after_watermark(*, early: Trigger | None = None, late: Trigger | None = None) -> AfterWatermark:
    """Fire on time; with `early` also before that, with `late` also after, each repeatedly."""
    return AfterWatermark(_unrepeated(early), _unrepeated(late))


def _unrepeated(part: Trigger | None) -> Trigger | None:
    """Early and late parts repeat implicitly, so an explicit repeatedly is removed."""
    return part.of if isinstance(part, Repeatedly) else part


@checked
def after_count(n: int) -> AfterCount:
    """Fire once at least n elements have arrived."""
    return AfterCount(n)


@checked
def after_processing_time(
    delay: Length | None = None, /, *, aligned: Length | None = None, offset: Length = ZERO, **units: float
) -> AfterProcessingTime:
    """Fire some time after the first element: `after_processing_time(seconds=30)`, or on the minute: `aligned="1m"`."""
    wait = ZERO if delay is None and not units and aligned is not None else duration(delay, **units)
    return AfterProcessingTime(wait, None if aligned is None else duration(aligned), duration(offset))


@checked
def after_event_time(period: Length | None = None, /, *, offset: Length = ZERO, **units: float) -> AfterEventTime:
    """Fire when the watermark reaches the next boundary of a period."""
    return AfterEventTime(duration(period, **units), duration(offset))


@checked
def when(condition: str) -> When:
    """Fire when an expression over the pane's values is true: `when("total > 100")`."""
    return When(expression(condition))


@checked
def never() -> Never:
    """Fire only when the window expires."""
    return Never()


@checked
def repeatedly(of: Trigger) -> Repeatedly:
    """Repeat a trigger."""
    return Repeatedly(of)


@checked
def every(delay: Length | None = None, /, **units: float) -> Repeatedly:
    """Fire each time this much processing time has passed since the first new element: `every(seconds=30)`."""
    return Repeatedly(AfterProcessingTime(duration(delay, **units)))


@checked
def first_of(*parts: Trigger) -> FirstOf:
    """Fire when any part would."""
    return FirstOf(parts)


@checked
def all_of(*parts: Trigger) -> AllOf:
    """Fire when every part would."""
    return AllOf(parts)


@checked
def in_sequence(*parts: Trigger) -> InSequence:
    """Run one part after the other."""
    return InSequence(parts)


@checked
def or_finally(main: Trigger, until: Trigger) -> OrFinally:
    """Fire as `main` does, until the other fires."""
    return OrFinally(main, until)
