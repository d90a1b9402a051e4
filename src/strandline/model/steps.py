"""Define a windowed step over keys, checked as a whole when it is created: the four questions in one value."""

from collections.abc import Iterator
from dataclasses import dataclass

from strandline.errors import InvalidAggregate, InvalidStep, InvalidTrigger
from strandline.model.aggregates import Aggregate, Collect
from strandline.model.elements import ZERO, Duration, TimeDomain
from strandline.model.evictors import Evictor
from strandline.model.expressions import names_of
from strandline.model.panes import Accumulation, Emit, Lateness, PaneTimestamp
from strandline.model.triggers import (
    DEFAULT,
    Trigger,
    When,
    describe,
    finishes_by_watermark_only,
    fires_once,
    fires_only_at_the_end,
    may_finish,
    parts_of,
)
from strandline.model.windows import Count, Global, Session, Sliding, WindowKind

RESERVED = frozenset(
    {"key", "window", "timing", "index", "nonspeculative_index", "first", "last", "timestamp", "retraction"}
)
"""The fields of a pane; an aggregate may not have these names."""


@dataclass(frozen=True, slots=True)
class WindowedStep:
    """What is computed, where in event time, when it is emitted, and how refinements relate."""

    aggregates: tuple[tuple[str, Aggregate], ...] = (("values", Collect("value")),)
    window: WindowKind = Global()
    trigger: Trigger = DEFAULT
    accumulation: Accumulation = Accumulation.DISCARDING
    lateness: Lateness = Lateness()
    time: TimeDomain = TimeDomain.EVENT
    pane_timestamp: PaneTimestamp = PaneTimestamp.END_OF_WINDOW
    on_time_pane: Emit = Emit.ALWAYS
    final_pane: Emit = Emit.IF_NON_EMPTY
    evictor: Evictor | None = None
    ttl: Duration | None = None
    """A key's global window closes if no element arrives for longer than this, by processing time."""
    signed: bool = False
    """Whether elements may be retractions, because they are panes of a retracting step."""

    def __post_init__(self) -> None:
        _check_aggregates(self)
        _check_conditions(self)
        if self.ttl is not None and not isinstance(self.window, Global):
            raise InvalidStep("only a global window has a time to live", hint="other windows end with their lateness")
        if self.ttl is not None and self.ttl <= ZERO:
            raise InvalidStep(f"a time to live of {self.ttl} keeps nothing", hint="give a length above zero")
        if isinstance(self.window, Count) and self.evictor is not None:
            raise InvalidStep("a count window holds exactly what it counts", hint="leave the evictor out")
        if isinstance(self.window, Count) and self.trigger != DEFAULT:
            raise InvalidStep(
                "a count window fires when it is full and takes no trigger",
                hint="for panes of at least n elements use a global window with repeatedly(after_count(n))",
            )


def _check_aggregates(step: WindowedStep) -> None:
    if not step.aggregates:
        raise InvalidAggregate("nothing is computed", hint="give one aggregate or more")
    names = [name for name, _ in step.aggregates]
    for name in names:
        if name in RESERVED:
            raise InvalidAggregate(f"{name!r} is a field of every pane", hint="give the aggregate another name")
        if names.count(name) > 1:
            raise InvalidAggregate(f"two aggregates are called {name!r}", hint="give each a different name")


def _check_conditions(step: WindowedStep) -> None:
    known = {name for name, _ in step.aggregates}
    for condition in _conditions(step.trigger):
        if "since" in known:
            raise InvalidTrigger(
                f"in the condition {condition.condition.text!r}, 'since' could be the count or the aggregate",
                hint="give the aggregate another name",
            )
        for name in names_of(condition.condition.tree):
            fine = name.name in known if name.scope in ("", "last") else False
            if not fine and not (name.name == "since" and not name.scope):
                written = f"{name.scope}.{name.name}" if name.scope else name.name
                raise InvalidTrigger(
                    f"the condition {condition.condition.text!r} reads {written!r}, which no pane has",
                    hint=f"it can read {', '.join(sorted(known))}, each as last.…, and since",
                )


def _conditions(trigger: Trigger) -> Iterator[When]:
    if isinstance(trigger, When):
        yield trigger
    for part in parts_of(trigger):
        yield from _conditions(part)


def lifts(step: WindowedStep) -> bool:
    """Return whether elements can be pre-aggregated before the shuffle, so that none must be inspected by itself."""
    if isinstance(step.window, Count) or step.evictor is not None:
        return False
    return finishes_by_watermark_only(step.trigger) and all(aggregate.merges for _, aggregate in step.aggregates)


def emits_once(step: WindowedStep) -> bool:
    """Return whether each window emits at most one pane."""
    if isinstance(step.window, Count) or fires_once(step.trigger):
        return True
    return step.lateness.allowed == ZERO and fires_only_at_the_end(step.trigger)


def cautions(step: WindowedStep) -> tuple[str, ...]:
    """Return warnings about settings that are valid but easily unintended, each with a remedy."""
    found = []
    window = step.window
    if isinstance(window, Sliding) and window.leaves_gaps:
        found.append(
            f"windows of {window.size} every {window.every} leave gaps: elements between them belong to no window and "
            f"are counted as filtered; slide by {window.size} or less to take them all"
        )
    if isinstance(window, Global) and step.trigger == DEFAULT:
        found.append("a global window completes only when the stream ends: give it a trigger for earlier results")
    if isinstance(window, Global) and step.ttl is None:
        found.append("a global window keeps a row for every key for ever: give it a time to live if keys come and go")
    if isinstance(window, Session) and step.accumulation is Accumulation.ACCUMULATING and not emits_once(step):
        found.append("accumulating sessions leave stale rows under old bounds when they grow: use retracting")
    if may_finish(step.trigger):
        found.append(
            f"{describe(step.trigger)} finishes: elements that reach a window after that go to the late output as "
            "closed; wrap it in repeatedly(…), or give after_watermark a late part, to include them"
        )
    return tuple(found)
