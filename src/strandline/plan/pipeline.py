"""How a pipeline is said: fluent words, each returning a new value; the four questions are visible in the code."""

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, TypeVar

from strandline.errors import InvalidStep
from strandline.model.aggregates import Aggregate
from strandline.model.elements import Duration, Length, TimeDomain, duration
from strandline.model.evictors import Evictor
from strandline.model.panes import Accumulation, Emit, Lateness, LateRows, PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.triggers import DEFAULT, Trigger
from strandline.model.watermarks import Watermark, by_clock
from strandline.model.windows import Global, WindowKind
from strandline.plan.endpoints import Delivery, Sink, Source
from strandline.plan.explain import explain
from strandline.plan.nodes import Aggregated, EventTime, Node, Read, Write

Choice = TypeVar("Choice", bound=StrEnum)

Runner = Callable[..., Any]
"""What runs a pipeline; given by the front door, so that a plan knows no engine."""


@dataclass(frozen=True, slots=True)
class Questions:
    """Where, when and how, as far as they have been answered."""

    window: WindowKind = Global()
    trigger: Trigger = DEFAULT
    accumulation: Accumulation = Accumulation.DISCARDING
    lateness: Lateness = Lateness()
    pane_timestamp: PaneTimestamp = PaneTimestamp.END_OF_WINDOW
    on_time_pane: Emit = Emit.ALWAYS
    final_pane: Emit = Emit.IF_NON_EMPTY
    evictor: Evictor | None = None
    ttl: Duration | None = None


@dataclass(frozen=True, slots=True)
class Keyed:
    """Elements by key, with the questions still open."""

    of: Node
    keys: tuple[str, ...]
    runner: Runner = field(repr=False, compare=False)
    asked: Questions = Questions()

    def window(self, kind: WindowKind) -> "Keyed":
        """Where in event time."""
        return self._with(window=kind)

    def trigger(self, trigger: Trigger) -> "Keyed":
        """When to speak."""
        return self._with(trigger=trigger)

    def accumulate(self, how: Accumulation) -> "Keyed":
        """How refinements relate."""
        return self._with(accumulation=how)

    def allow_lateness(
        self, allowed: Length | None = None, /, *, rows: LateRows = LateRows.PER_ELEMENT, **units: float
    ) -> "Keyed":
        """How long after its end a window still takes elements; those who come later go to the late output."""
        return self._with(lateness=Lateness(duration(allowed, **units), rows))

    def evict(self, evictor: Evictor) -> "Keyed":
        """What a window lets go of at a firing. Every element is then kept as it came."""
        return self._with(evictor=evictor)

    def time_to_live(self, length: Length | None = None, /, **units: float) -> "Keyed":
        """How long a key of a global window is kept after its last element, by the clock."""
        return self._with(ttl=duration(length, **units))

    def stamp_panes(self, how: PaneTimestamp | str) -> "Keyed":
        """Which time a pane carries: `end_of_window`, `earliest` or `latest`."""
        return self._with(pane_timestamp=_chosen(PaneTimestamp, how))

    def on_time_pane(self, when: Emit | str) -> "Keyed":
        """Whether a window speaks on time even if nothing is new: `always` (the default), or `if_non_empty`."""
        return self._with(on_time_pane=_chosen(Emit, when))

    def final_pane(self, when: Emit | str) -> "Keyed":
        """Whether a window says that it will not speak again: `always`, or `if_non_empty` (the default)."""
        return self._with(final_pane=_chosen(Emit, when))

    def aggregate(self, **aggregates: Aggregate) -> "Panes":
        """What is computed. Each name becomes a column of the panes."""
        timeless = isinstance(self.of, EventTime) and self.of.column is None
        answers = {each.name: getattr(self.asked, each.name) for each in fields(self.asked)}
        step = WindowedStep(
            aggregates=tuple(aggregates.items()),
            time=TimeDomain.PROCESSING if timeless else TimeDomain.EVENT,
            **answers,
        )
        return Panes(Aggregated(self.of, self.keys, step), self.runner)

    def _with(self, **answers: Any) -> "Keyed":
        return replace(self, asked=replace(self.asked, **answers))


@dataclass(frozen=True, slots=True)
class Elements:
    """A stream of elements."""

    root: Node
    runner: Runner = field(repr=False, compare=False)

    def event_time(self, column: str, watermark: Watermark) -> "Elements":
        """When an element happened, and when that time is complete."""
        return Elements(EventTime(self.root, column, watermark), self.runner)

    def processing_time(self) -> "Elements":
        """The clock in place of event time: an element's time is that of the batch that reads it."""
        return Elements(EventTime(self.root, None, by_clock()), self.runner)

    def key_by(self, *columns: str) -> Keyed:
        """Whose it is."""
        if not columns:
            raise InvalidStep("key_by names no column", hint="name one column or more")
        return Keyed(self.root, columns, self.runner)


@dataclass(frozen=True, slots=True)
class Panes:
    """A stream of panes."""

    root: Node
    runner: Runner = field(repr=False, compare=False)

    def write(self, sink: Sink, *, delivery: Delivery | str = Delivery.EXACTLY_ONCE) -> "Pipeline":
        """Where panes go, with the late elements and the dead letters beside them."""
        try:
            promised = Delivery(delivery)
        except ValueError:
            known = ", ".join(Delivery)
            raise InvalidStep(f"there is no delivery {delivery!r}", hint=f"choose one of {known}") from None
        return Pipeline(Write(self.root, sink, promised), self.runner)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A whole pipeline, from source to sink: a value that can be explained, compared and run."""

    root: Write
    runner: Runner = field(repr=False, compare=False)

    def explain(self) -> str:
        """The stages that will run, in words."""
        return explain(self.root)

    def run(self, spark: Any = None, **options: Any) -> Any:
        """Starts it; returns the job."""
        return self.runner(self.root, spark, **options)


def _chosen(family: type[Choice], given: str) -> Choice:
    try:
        return family(given)
    except ValueError:
        raise InvalidStep(f"{given!r} is no choice here", hint=f"choose one of {', '.join(family)}") from None


def read(source: Source, runner: Runner) -> Elements:
    """A pipeline begins with what it reads."""
    return Elements(Read(source), runner)
