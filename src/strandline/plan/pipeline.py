"""How a pipeline is said: fluent words, each returning a new value; the four questions are visible in the code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Protocol, Self, TypeVar

from strandline.errors import InvalidStep
from strandline.model import ddl
from strandline.model.aggregates import Aggregate
from strandline.model.deduplicate import Deduplicate, Keep
from strandline.model.elements import ZERO, Duration, Length, TimeDomain, duration
from strandline.model.evictors import Evictor
from strandline.model.panes import Accumulation, Emit, Lateness, LateRows, PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.triggers import DEFAULT, Trigger
from strandline.model.watermarks import Watermark, by_clock
from strandline.model.windows import Global, WindowKind
from strandline.plan.endpoints import DeadLetters, Delivery, Sink, Source
from strandline.plan.explain import explain
from strandline.plan.lineage import strands_to
from strandline.plan.nodes import (
    EventTime,
    KeyedNode,
    Node,
    Read,
    Root,
    Stateless,
    Together,
    Union,
    Write,
    outputs_of,
    over,
)
from strandline.plan.operators.contract import Accepted
from strandline.plan.salting import salted
from strandline.plan.stateless_operations import (
    Expr,
    FlatMap,
    Map,
    Select,
    Sql,
    Where,
    both,
    expression,
    in_polars,
    opposite,
)

Choice = TypeVar("Choice", bound=StrEnum)

FOREVER = "forever"
"""A lateness without end, as a word."""
MOST_SALTS = 256


class Runner(Protocol):
    """What carries a pipeline; given by the front door, so that a plan knows no engine."""

    def run(self, root: Root, spark: Any, **options: Any) -> Any: ...

    def to_dataframe(self, root: Root, spark: Any, **options: Any) -> Any: ...


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
    accepted: frozenset[Accepted] = frozenset()
    rest: Sink | None = None
    salt: int | None = None

    def window(self, kind: WindowKind) -> "Keyed":
        """Where in event time."""
        return self._with(window=kind)

    def trigger(self, trigger: Trigger, *, may_close: bool = False) -> "Keyed":
        """When to speak. One that finishes closes its windows before their time, which must be meant: `may_close`."""
        return replace(self._accept(Accepted.CLOSING, may_close), asked=replace(self.asked, trigger=trigger))

    def accumulate(self, how: Accumulation) -> "Keyed":
        """How refinements relate."""
        return self._with(accumulation=how)

    def allow_lateness(
        self,
        allowed: Length | None = None,
        /,
        *,
        rows: LateRows = LateRows.PER_ELEMENT,
        rest: Sink | None = None,
        **units: float,
    ) -> "Keyed":
        """How long after its end a window still takes elements, `"forever"` for ever.

        Those who come later go to the late output: beside the panes, or to a sink of their own, `rest`.
        """
        length = None if allowed == FOREVER else duration(allowed, **units)
        return replace(self._with(lateness=Lateness(length, rows)), rest=rest)

    def evict(self, evictor: Evictor) -> "Keyed":
        """What a window lets go of at a firing. Every element is then kept as it came."""
        return self._with(evictor=evictor)

    def hot_keys(self, *, salt: int = 8) -> "Keyed":
        """Hot keys may be spread over so many places, where elements are kept as they came; the answers are the same.

        It costs a second shuffle when a window ends. Where elements are combined before the shuffle nothing is done.
        """
        if not 2 <= salt <= MOST_SALTS:
            raise InvalidStep(f"a hot key cannot be spread over {salt}", hint=f"give a salt from 2 to {MOST_SALTS}")
        return replace(self, salt=salt)

    def time_to_live(self, length: Length | None = None, /, **units: float) -> "Keyed":
        """How long a key of a global window is kept after its last element, by the clock."""
        return self._with(ttl=duration(length, **units))

    def keep_for_ever(self) -> "Keyed":
        """State that grows with every new key, and never shrinks, is meant."""
        return self._accept(Accepted.FOR_EVER, True)

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
        times = [strand.time for strand in strands_to(self.of)]
        timeless = any(time is not None and time.column is None for time in times)
        answers = {each.name: getattr(self.asked, each.name) for each in fields(self.asked)}
        step = WindowedStep(
            aggregates=tuple(aggregates.items()),
            time=TimeDomain.PROCESSING if timeless else TimeDomain.EVENT,
            **answers,
        )
        if self.salt is None:
            return Panes(over(self.of, self.keys, step, accepted=self.accepted, rest=self.rest), self.runner)
        return Panes(salted(self.of, self.keys, step, self.salt, self.accepted, self.rest), self.runner)

    def _accept(self, what: Accepted, meant: bool) -> "Keyed":
        return replace(self, accepted=self.accepted | {what} if meant else self.accepted - {what})

    def _with(self, **answers: Any) -> "Keyed":
        return replace(self, asked=replace(self.asked, **answers))


@dataclass(frozen=True, slots=True)
class Stream:
    """Rows, one after the other, each to be looked at alone."""

    root: Node
    runner: Runner = field(repr=False, compare=False)

    def where(self, condition: Any) -> Self:
        """Keeps the rows of which this is true. Spark SQL as a text, or a Polars expression."""
        return self._then(Where(expression(condition)))

    def select(self, *columns: str, **computed: Any) -> Self:
        """These columns only; `select("team", points="score * 2")`."""
        named = {name: Sql(name) for name in columns} | {name: expression(each) for name, each in computed.items()}
        if not named:
            raise InvalidStep("select names no column", hint="name one column or more")
        return self._then(Select(_one_way(named), beside=False))

    def with_columns(self, **computed: Any) -> Self:
        """These columns, computed, beside the others."""
        if not computed:
            raise InvalidStep("with_columns computes nothing", hint='write name="expression"')
        return self._then(Select(_one_way({name: expression(each) for name, each in computed.items()}), beside=True))

    def map(self, function: Callable[[Any], Any], columns: str) -> Self:
        """A function from a Polars frame to one of as many rows, with these columns, as DDL.

        Rows that it raises on become dead letters, one by one; the others live.
        """
        ddl.parse(columns)
        return self._then(Map(function, columns))

    def flat_map(self, function: Callable[[dict[str, Any]], Any], columns: str) -> Self:
        """A function from a row, as a dictionary, to any number of them, with these columns, as DDL."""
        ddl.parse(columns)
        return self._then(FlatMap(function, columns))

    def branch(self, *conditions: Any) -> "tuple[Self, ...]":
        """A stream for each condition, with the rows of which it is the first that holds; and one with the rest."""
        if not conditions:
            raise InvalidStep("branch has no condition", hint="give one condition or more")
        found, none_before = [], None
        for given in conditions:
            condition = expression(given)
            mine = condition if none_before is None else both(none_before, condition)
            found.append(self._then(Where(mine)))
            missed = opposite(condition)
            none_before = missed if none_before is None else both(none_before, missed)
        assert none_before is not None  # noqa: S101 - there is a condition
        return (*found, self._then(Where(none_before)))

    def deduplicate(
        self,
        *,
        by: str | Sequence[str],
        keep: Keep | str = Keep.FIRST,
        within: Length | None = None,
        allowed_lateness: Length | None = None,
        late: Sink | None = None,
        forever: bool = False,
    ) -> "Elements":
        """Keep one element of each key: the first, or the last as a changelog in which newer elements replace it.

        Elements are duplicates if they are less than `within` apart in event time; without it every key is kept, which
        `forever=True` must accept. Elements that come `allowed_lateness` or more behind the watermark are late: they go
        to the late output, beside the rows or to the sink `late`.
        """
        times = [strand.time for strand in strands_to(self.root)]
        timeless = any(time is not None and time.column is None for time in times)
        operator = Deduplicate(
            _chosen(Keep, keep),
            None if within is None else duration(within),
            ZERO if allowed_lateness is None else duration(allowed_lateness),
            TimeDomain.PROCESSING if timeless else TimeDomain.EVENT,
        )
        accepted = frozenset({Accepted.FOR_EVER}) if forever else frozenset[Accepted]()
        keys = _keys((by,) if isinstance(by, str) else tuple(by))
        return Elements(over(self.root, keys, operator, accepted=accepted, rest=late), self.runner)

    def write(
        self, sink: Sink, *, delivery: Delivery | str = Delivery.EXACTLY_ONCE, dead: DeadLetters | None = None
    ) -> "Pipeline":
        """Where rows go, with the late elements and the dead letters beside them; or these elsewhere, or masked."""
        try:
            promised = Delivery(delivery)
        except ValueError:
            known = ", ".join(Delivery)
            raise InvalidStep(f"there is no delivery {delivery!r}", hint=f"choose one of {known}") from None
        if dead is not None and not isinstance(dead, DeadLetters):
            raise InvalidStep(
                f"{dead!r} is no place for dead letters", hint="give dead_table(…), dead_files(…) or dead_topic(…)"
            )
        return Pipeline(Write(self.root, sink, promised, dead), self.runner)

    def _then(self, operation: Any) -> Self:
        return replace(self, root=Stateless(self.root, operation))


@dataclass(frozen=True, slots=True)
class Elements(Stream):
    """A stream of elements."""

    def event_time(self, column: str, watermark: Watermark) -> "Elements":
        """When an element happened, and when that time is complete."""
        return Elements(EventTime(self.root, column, watermark), self.runner)

    def processing_time(self) -> "Elements":
        """The clock in place of event time: an element's time is that of the batch that reads it."""
        return Elements(EventTime(self.root, None, by_clock()), self.runner)

    def key_by(self, *columns: str) -> Keyed:
        """Whose it is."""
        return Keyed(self.root, _keys(columns), self.runner)


@dataclass(frozen=True, slots=True)
class Panes(Stream):
    """A stream of panes."""

    def key_by(self, *columns: str, even_repeated: bool = False) -> Keyed:
        """Panes as the elements of another step: timed by their windows, and what they take back is taken back.

        Unless it is told when to speak, that step speaks as soon as this one does. Panes that repeat what earlier
        ones held would be counted twice; `even_repeated` says that it is meant.
        """
        triggers = [
            strand.origin.plan.next_trigger for strand in strands_to(self.root) if isinstance(strand.origin, KeyedNode)
        ]
        accepted = frozenset({Accepted.REPEATED}) if even_repeated else frozenset()
        return Keyed(self.root, _keys(columns), self.runner, Questions(trigger=triggers[0]), accepted)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """A whole pipeline, from sources to sinks: a value that can be explained, compared and run."""

    root: Root
    runner: Runner = field(repr=False, compare=False)

    def explain(self) -> str:
        """The stages that will run, in words."""
        return explain(self.root)

    def run(self, spark: Any = None, **options: Any) -> Any:
        """Starts it; returns the job."""
        return self.runner.run(self.root, spark, **options)

    def to_dataframe(self, spark: Any, **options: Any) -> Any:
        """What it would write, as a streaming DataFrame of a session of yours, to go on with in Spark."""
        return self.runner.to_dataframe(self.root, spark, **options)


def union(first: Elements, *others: Elements) -> Elements:
    """The elements of several streams as one; each keeps its own watermark, and the least of them counts."""
    streams = [stream.root for stream in (first, *others)]
    return Elements(Union(tuple(dict.fromkeys(streams))), first.runner) if len(set(streams)) > 1 else first


def together(*pipelines: Pipeline) -> Pipeline:
    """Several outputs as one job: what they have in common is read and computed once."""
    if not pipelines:
        raise InvalidStep("together has no pipeline", hint="give one or more")
    outputs = tuple(write for pipeline in pipelines for write in outputs_of(pipeline.root))
    if len(set(outputs)) < len(outputs):
        raise InvalidStep("two outputs are the same", hint="write each to a sink of its own")
    return Pipeline(Together(outputs), pipelines[0].runner)


def _keys(columns: tuple[str, ...]) -> tuple[str, ...]:
    if not columns:
        raise InvalidStep("key_by names no column", hint="name one column or more")
    return columns


def _one_way(named: dict[str, Expr]) -> tuple[tuple[str, Expr], ...]:
    """All in SQL, or all in Polars; a bare name is both."""
    if all(isinstance(each, Sql) for each in named.values()):
        return tuple(named.items())
    for name, each in named.items():
        if isinstance(each, Sql) and not each.text.isidentifier():
            raise InvalidStep(
                f"{name!r} is computed in SQL, others of the same step in Polars", hint="write all of them one way"
            )
    return in_polars(named.items())


def _chosen(family: type[Choice], given: str) -> Choice:
    try:
        return family(given)
    except ValueError:
        raise InvalidStep(f"{given!r} is no choice here", hint=f"choose one of {', '.join(family)}") from None


def read(source: Source, runner: Runner) -> Elements:
    """A pipeline begins with what it reads."""
    return Elements(Read(source), runner)
