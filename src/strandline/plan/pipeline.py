"""Build pipelines with a fluent interface. Every method returns a new value."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Protocol, Self

from strandline.errors import InvalidStep
from strandline.model import ddl
from strandline.model.aggregates import Aggregate
from strandline.model.arguments import checked, checked_methods
from strandline.model.deduplicate import Deduplicate, Keep
from strandline.model.elements import ZERO, Duration, Length, TimeDomain, duration
from strandline.model.evictors import Evictor
from strandline.model.joins import How
from strandline.model.lookup_join import LookupTable, Missing, OnFailure
from strandline.model.panes import Accumulation, Emit, Lateness, LateRows, PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.temporal_join import Direction
from strandline.model.triggers import DEFAULT, Trigger
from strandline.model.watermarks import Watermark, by_clock
from strandline.model.windows import Count, Global, WindowKind
from strandline.plan.endpoints import DeadLetters, Delivery, Sink, Source
from strandline.plan.explain import explain
from strandline.plan.joins.join import Join
from strandline.plan.joins.keys_and_columns import SUFFIX
from strandline.plan.joins.lookup_join import Enrichment, limits_of
from strandline.plan.joins.table_join import TablesToJoin, table_join_options
from strandline.plan.joins.temporal_join import AsOf, temporal_join
from strandline.plan.lineage import paths_to
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
from strandline.plan.refinement.inherited import settings_inherited
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

FOREVER = "forever"
"""An allowed lateness without end."""
MOST_SALTS = 256


class Runner(Protocol):
    """What runs a pipeline. `strandline.read` passes it in, so that the plan does not depend on Spark."""

    def run(self, root: Root, spark: Any, **options: Any) -> Any: ...

    def to_dataframe(self, root: Root, spark: Any, **options: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Questions:
    """The settings of a windowed step: window, trigger, accumulation and the rest, with their defaults."""

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
@checked_methods
class Keyed:
    """Elements grouped by key, before an aggregation is chosen."""

    of: Node
    keys: tuple[str, ...]
    runner: Runner = field(repr=False, compare=False)
    asked: Questions = Questions()
    accepted: frozenset[Accepted] = frozenset()
    late_sink: Sink | None = None
    salt: int | None = None
    inherited: frozenset[str] = frozenset()
    """Settings that follow from the input and may be replaced."""

    def window(self, kind: WindowKind) -> "Keyed":
        """Set the window: where in event time results are computed."""
        return self._with(window=kind)

    def trigger(self, trigger: Trigger, *, may_close: bool = False) -> "Keyed":
        """Set the trigger: when panes are emitted. `may_close` accepts a trigger that closes windows early."""
        return replace(self._accept(Accepted.CLOSING, may_close), asked=replace(self.asked, trigger=trigger))

    def accumulate(self, how: Accumulation | str) -> "Keyed":
        """Set how the panes of a window relate: discarding, accumulating or retracting.

        The default is discarding; over rows with retractions it is retracting.
        """
        return self._with(accumulation=Accumulation(how))

    def allow_lateness(
        self,
        allowed: Length | None = None,
        /,
        *,
        rows: LateRows | str = LateRows.PER_ELEMENT,
        late: Sink | None = None,
        rest: Sink | None = None,
        **units: float,
    ) -> "Keyed":
        """Set how long after its end a window still accepts elements; `"forever"` for no limit.

        The default is zero; over the rows of another step it is what that step allows. Later elements go to the late
        output: beside the panes, or to the sink `late` (`rest` in release 0.2).
        """
        length = None if allowed == FOREVER else duration(allowed, **units)
        return replace(self._with(lateness=Lateness(length, LateRows(rows))), late_sink=late or rest)

    def evict(self, evictor: Evictor) -> "Keyed":
        """Set an evictor, which removes elements from a window when it fires. Windows then keep every element."""
        return self._with(evictor=evictor)

    def hot_keys(self, *, salt: int = 8) -> "Keyed":
        """Salt hot keys: hold the elements of a hot key in up to `salt` key groups. The results are the same.

        It costs a second shuffle when a window ends. Steps with pre-aggregation do not need it and do not change.
        """
        if not 2 <= salt <= MOST_SALTS:
            raise InvalidStep(f"a salt of {salt} is out of range", hint=f"give a salt from 2 to {MOST_SALTS}")
        return replace(self, salt=salt)

    def time_to_live(self, length: Length | None = None, /, **units: float) -> "Keyed":
        """Set how long, in processing time, a key of a global window is kept after its last element."""
        return self._with(ttl=duration(length, **units))

    def keep_for_ever(self) -> "Keyed":
        """Accept state that grows with every new key and never shrinks."""
        return self._accept(Accepted.FOR_EVER, True)

    def stamp_panes(self, how: PaneTimestamp | str) -> "Keyed":
        """Set the timestamp of panes: `end_of_window`, `earliest` or `latest`."""
        return self._with(pane_timestamp=PaneTimestamp(how))

    def on_time_pane(self, when: Emit | str) -> "Keyed":
        """Set whether the on-time pane is emitted without new elements: `always` (the default), or `if_non_empty`."""
        return self._with(on_time_pane=Emit(when))

    def final_pane(self, when: Emit | str) -> "Keyed":
        """Set whether the final pane is emitted without new elements: `always`, or `if_non_empty` (the default)."""
        return self._with(final_pane=Emit(when))

    def aggregate(self, **aggregates: Aggregate) -> "Panes":
        """Compute aggregates. Each name becomes a column of the panes."""
        asked = self.asked
        if isinstance(asked.window, Count) and "lateness" in self.inherited:
            asked = replace(asked, lateness=Lateness())  # a count window accepts elements at any time
        settings = {each.name: getattr(asked, each.name) for each in fields(asked)}
        step = WindowedStep(aggregates=tuple(aggregates.items()), time=_time_domain(self.of), **settings)
        if self.salt is None:
            options: dict[str, Any] = {
                "accepted": self.accepted,
                "late_sink": self.late_sink,
                "inherited": self.inherited,
            }
            return Panes(over(self.of, self.keys, step, **options), self.runner)
        return Panes(salted(self.of, self.keys, step, self.salt, self.accepted, self.late_sink), self.runner)

    def _accept(self, what: Accepted, meant: bool) -> "Keyed":
        return replace(self, accepted=self.accepted | {what} if meant else self.accepted - {what})

    def _with(self, **answers: Any) -> "Keyed":
        return replace(self, asked=replace(self.asked, **answers), inherited=self.inherited - answers.keys())


@dataclass(frozen=True, slots=True)
@checked_methods
class Stream:
    """A stream of rows with stateless operations."""

    root: Node
    runner: Runner = field(repr=False, compare=False)

    def where(self, condition: Any) -> Self:
        """Keep rows for which a condition is true: Spark SQL in a string, or a Polars expression."""
        return self._then(Where(expression(condition)))

    def select(self, *columns: str, **computed: Any) -> Self:
        """Keep these columns only, as in `select("team", points="score * 2")`."""
        named = {name: Sql(name) for name in columns} | {name: expression(each) for name, each in computed.items()}
        if not named:
            raise InvalidStep("select names no column", hint="name one column or more")
        return self._then(Select(_one_language(named), beside=False))

    def with_columns(self, **computed: Any) -> Self:
        """Add computed columns."""
        if not computed:
            raise InvalidStep("with_columns computes nothing", hint='write name="expression"')
        return self._then(
            Select(_one_language({name: expression(each) for name, each in computed.items()}), beside=True)
        )

    def map(self, function: Callable[[Any], Any], columns: str) -> Self:
        """Apply a function from a Polars frame to a frame with as many rows; `columns` is its DDL.

        Rows on which it raises become dead letters; the other rows pass.
        """
        ddl.require_types(ddl.parse(columns))
        return self._then(Map(function, columns))

    def flat_map(self, function: Callable[[dict[str, Any]], Any], columns: str) -> Self:
        """Apply a function from a row, as a dictionary, to any number of rows; `columns` is their DDL."""
        ddl.require_types(ddl.parse(columns))
        return self._then(FlatMap(function, columns))

    def branch(self, *conditions: Any) -> "tuple[Self, ...]":
        """Split a stream: a row goes to its first true condition; the last stream has the other rows."""
        if not conditions:
            raise InvalidStep("branch has no condition", hint="give one condition or more")
        branches, none_before = [], None
        for given in conditions:
            condition = expression(given)
            first = condition if none_before is None else both(none_before, condition)
            branches.append(self._then(Where(first)))
            missed = opposite(condition)
            none_before = missed if none_before is None else both(none_before, missed)
        assert none_before is not None  # noqa: S101 - there is a condition
        return (*branches, self._then(Where(none_before)))

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

        Elements are duplicates if they are less than `within` apart in event time. Without `within` every key is kept
        forever, which `forever=True` must accept. Elements `allowed_lateness` or more behind the watermark are late:
        they go to the late output, beside the rows or to the sink `late`.
        """
        operator = Deduplicate(
            Keep(keep),
            None if within is None else duration(within),
            ZERO if allowed_lateness is None else duration(allowed_lateness),
            _time_domain(self.root),
        )
        accepted = frozenset({Accepted.FOR_EVER}) if forever else frozenset[Accepted]()
        keys = _keys((by,) if isinstance(by, str) else tuple(by))
        return Elements(over(self.root, keys, operator, accepted=accepted, late_sink=late), self.runner)

    def join(self, other: "Stream") -> "Join[Elements, Panes]":
        """Join with another stream: `orders.join(payments).on("order_id").within(before="10m", how="left")`."""
        runner = self.runner
        return Join(self.root, other.root, lambda node: Elements(node, runner), lambda node: Panes(node, runner))

    def enrich(  # noqa: PLR0913 - the options of a lookup
        self,
        table: LookupTable,
        *,
        missing: Missing | str = Missing.PAD,
        on_failure: OnFailure | str = OnFailure.WAIT,
        pin: bool = False,
        cache_for: Length | None = None,
        cache_missing_for: Length | None = None,
        cache_rows: int = 100_000,
        keys_per_request: int = 1_000,
        concurrency: int = 4,
        per_second: float | None = None,
        attempts: int = 3,
        suffix: str = SUFFIX,
    ) -> "Enrichment[Self]":
        """Add the current row of a table to each row: `clicks.enrich(users).on("user_id")`.

        A row without a match is padded with nulls, or dropped with `missing="drop"`. While the table does not answer,
        the batch waits; with `on_failure="dead_letter"` its rows become dead letters. With `pin` a batch that is
        repeated after a crash gets the same rows. Each worker process caches answers for `cache_for` of processing
        time, and sends at most `per_second` requests, `concurrency` of them at a time. A column of the table whose
        name the stream has, too, gets the suffix.
        """
        limits = limits_of(
            cache_for, cache_missing_for, cache_rows, keys_per_request, concurrency, per_second, attempts
        )
        how = (Missing(missing), OnFailure(on_failure), pin, limits, suffix)
        return Enrichment(self.root, table, *how, lambda node: replace(self, root=node))

    def as_of(  # noqa: PLR0913 - the options of a join
        self,
        versions: "Stream",
        *,
        how: How | str = How.INNER,
        direction: Direction | str = Direction.BACKWARD,
        tolerance: Length | None = None,
        corrections: Length | None = None,
        deleted: str | None = None,
        suffix: str = SUFFIX,
        late: Sink | None = None,
    ) -> "AsOf[Elements]":
        """Join each row with the version of its key at its event time: `orders.as_of(rates).on("currency")`.

        `how` is `inner` or `left`. `direction` is `backward`, `forward` or `nearest`, with at most `tolerance` between
        the event times. A late version changes rows that are not yet emitted; with `corrections="1h"` it also retracts
        rows up to an hour behind the watermark and emits them again. `deleted` is a condition on the right stream, such
        as `"op == 'd'"`: a row for which it is true ends the version before it. Rows behind the watermark go to the
        late output, beside the rows or to the sink `late`. The time of a result is the time of the left row.
        """
        operator = temporal_join(
            self.root, versions.root, how=how, direction=direction, tolerance=tolerance, corrections=corrections,
            deleted=deleted,
        )  # fmt: skip
        return AsOf(self.root, versions.root, operator, suffix, late, lambda node: Elements(node, self.runner))

    def write(
        self, sink: Sink, *, delivery: Delivery | str = Delivery.EXACTLY_ONCE, dead: DeadLetters | None = None
    ) -> "Pipeline":
        """Write rows to a sink, with late elements and dead letters; `dead` names another place for dead letters."""
        return Pipeline(Write(self.root, sink, Delivery(delivery), dead), self.runner)

    def _then(self, operation: Any) -> Self:
        return replace(self, root=Stateless(self.root, operation))


@dataclass(frozen=True, slots=True)
@checked_methods
class Elements(Stream):
    """A stream of elements."""

    def event_time(self, column: str, watermark: Watermark) -> "Elements":
        """Set the column of event time and the watermark."""
        return Elements(EventTime(self.root, column, watermark), self.runner)

    def processing_time(self) -> "Elements":
        """Use processing time: the time of an element is the clock of its batch."""
        return Elements(EventTime(self.root, None, by_clock()), self.runner)

    def key_by(self, *columns: str) -> Keyed:
        """Group elements by key columns."""
        asked = _inherited(self.root)
        return Keyed(self.root, _keys(columns), self.runner, asked, inherited=settings_inherited(asked))


@dataclass(frozen=True, slots=True)
@checked_methods
class Panes(Stream):
    """A stream of panes."""

    def key_by(self, *columns: str, even_repeated: bool = False) -> Keyed:
        """Group panes by key columns, as elements of another step. Its elements have the time of the panes.

        Without settings of its own, that step fires when this one does, allows the same lateness, and retracts if this
        one does. Accumulating panes would be counted twice; `even_repeated` accepts that.
        """
        asked = _inherited(self.root)
        accepted = frozenset({Accepted.REPEATED}) if even_repeated else frozenset[Accepted]()
        return Keyed(self.root, _keys(columns), self.runner, asked, accepted, inherited=settings_inherited(asked))


@dataclass(frozen=True, slots=True)
@checked_methods
class Pipeline:
    """A pipeline from sources to sinks: a value that can be explained, compared and run."""

    root: Root
    runner: Runner = field(repr=False, compare=False)

    def explain(self) -> str:
        """Describe the stages that will run."""
        return explain(self.root)

    def run(self, spark: Any = None, **options: Any) -> Any:
        """Start the pipeline and return the job."""
        return self.runner.run(self.root, spark, **options)

    def to_dataframe(self, spark: Any, **options: Any) -> Any:
        """Return its rows as a streaming DataFrame of your Spark session."""
        return self.runner.to_dataframe(self.root, spark, **options)


@checked
def union(first: Elements, *others: Elements) -> Elements:
    """Merge several streams. Each keeps its own watermark; the lowest one is the watermark of the union."""
    streams = [stream.root for stream in (first, *others)]
    return Elements(Union(tuple(dict.fromkeys(streams))), first.runner) if len(set(streams)) > 1 else first


@checked
def join_tables(  # noqa: PLR0913 - the options of a join
    first: Stream,
    second: Stream,
    *others: Stream,
    how: How | str | Sequence[str] = How.INNER,
    expire_after: Length | None = None,
    time_to_live: Length | None = None,
    forever: bool = False,
    suffixes: Sequence[str] = (),
    late: Sink | None = None,
) -> TablesToJoin[Elements]:
    """Join the current rows of several streams as tables on one key: `join_tables(a, b, c, how="left").on("id")`.

    One step joins all tables, without intermediate results. `how` is `inner`, `left`, `right`, `full`, `semi` or
    `anti`: one for all, or one for each table after the first, which is joined with the result of those before it. A
    column whose name is taken gets the suffix of its table: `_2`, `_3` and so on, or those of `suffixes`. The other
    options are those of `join(…).on(…).as_tables(…)`.
    """
    tables = (first, second, *others)
    options = table_join_options(
        len(tables), how=how, expire_after=expire_after, time_to_live=time_to_live, forever=forever,
        suffixes=suffixes, late=late,
    )  # fmt: skip
    return TablesToJoin(tuple(each.root for each in tables), options, lambda node: Elements(node, first.runner))


@checked
def together(*pipelines: Pipeline) -> Pipeline:
    """Run several outputs as one job. Sources and steps that they share run once."""
    if not pipelines:
        raise InvalidStep("together has no pipeline", hint="give one pipeline or more")
    outputs = tuple(write for pipeline in pipelines for write in outputs_of(pipeline.root))
    if len(set(outputs)) < len(outputs):
        raise InvalidStep("two outputs are the same", hint="write each to its own sink")
    return Pipeline(Together(outputs), pipelines[0].runner)


def _inherited(node: Node) -> Questions:
    """Return the default settings of a windowed step over a node: those that make its answer right over its input."""
    origins = [path.origin for path in paths_to(node) if isinstance(path.origin, KeyedNode)]
    if not origins:
        return Questions()
    retracts = any(origin.retracts for origin in origins)
    return Questions(
        trigger=origins[0].plan.next_trigger,
        accumulation=Accumulation.RETRACTING if retracts else Accumulation.DISCARDING,
        lateness=Lateness(max(origin.plan.allowed_lateness or ZERO for origin in origins)),
    )


def _time_domain(node: Node) -> TimeDomain:
    """Return processing time if a path to the node uses it, else event time."""
    times = (path.time for path in paths_to(node))
    uses_clock = any(time is not None and time.column is None for time in times)
    return TimeDomain.PROCESSING if uses_clock else TimeDomain.EVENT


def _keys(columns: tuple[str, ...]) -> tuple[str, ...]:
    if not columns:
        raise InvalidStep("key_by names no column", hint="name one column or more")
    return columns


def _one_language(named: dict[str, Expr]) -> tuple[tuple[str, Expr], ...]:
    """Check that all expressions are SQL or all are Polars; a bare column name is both."""
    if all(isinstance(each, Sql) for each in named.values()):
        return tuple(named.items())
    for name, each in named.items():
        if isinstance(each, Sql) and not each.text.isidentifier():
            raise InvalidStep(
                f"{name!r} is computed in SQL, other columns of the same call in Polars",
                hint="write all of them in SQL or all in Polars",
            )
    return in_polars(named.items())


def read(source: Source, runner: Runner) -> Elements:
    """Start a pipeline with a source."""
    return Elements(Read(source), runner)
