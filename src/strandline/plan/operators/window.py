"""Plan windowed aggregation: its columns, checks and explanation."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Final, assert_never

from strandline.errors import InvalidStep
from strandline.model import ddl
from strandline.model.aggregates import (
    Aggregate,
    AllTrue,
    AnyTrue,
    ApproxCountDistinct,
    ArgMax,
    ArgMin,
    BitAnd,
    BitOr,
    BitXor,
    Collect,
    Count,
    CountDistinct,
    Max,
    Mean,
    Min,
    Quantile,
    StdDev,
    StringAgg,
    Sum,
    TopK,
    UserAggregate,
    Variance,
)
from strandline.model.aggregates import columns_of as read_by
from strandline.model.elements import ZERO, Duration, TimeDomain
from strandline.model.evictors import KeepDelta
from strandline.model.expressions import names_of
from strandline.model.panes import Accumulation, PaneTimestamp
from strandline.model.steps import WindowedStep, cautions, emits_once, lifts
from strandline.model.triggers import (
    AfterWatermark,
    Never,
    Repeatedly,
    Trigger,
    continued,
    describe,
    finishes_by_watermark_only,
    may_finish,
)
from strandline.model.windows import Count as CountWindow
from strandline.model.windows import Cumulating, Custom, GapColumn, Global, Session, Sliding, Tumbling
from strandline.model.windows import describe as describe_window
from strandline.plan.operators.contract import INPUT, Accepted, Columns, Refinement

PANE: Final[Mapping[str, str]] = {
    "window_start": "timestamp",
    "window_end": "timestamp",
    "timing": "string",
    "pane_index": "long",
    "is_last": "boolean",
    "retraction": "boolean",
    "overflow_in": "string",
}
"""Columns of a pane beside its keys and aggregates, as the next operations read them."""
READ_ONLY: Final = ("overflow_in",)
"""Columns of panes that operations may read, and that sinks get only under another name."""

_ADDED_UP = (Count, Sum)
_COMBINED_BY_ITSELF = (Min, Max, AnyTrue, AllTrue, BitAnd, BitOr, BitXor)
_IDEMPOTENT = (Min, Max, AnyTrue, AllTrue, BitAnd, BitOr, CountDistinct, ApproxCountDistinct)
"""Aggregates that do not change if a value is repeated."""


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The plan of a windowed aggregation."""

    step: WindowedStep

    @property
    def retracts(self) -> bool:
        return self.step.accumulation is Accumulation.RETRACTING

    @property
    def refinement(self) -> Refinement:
        if emits_once(self.step):
            return Refinement.SINGLE
        match self.step.accumulation:
            case Accumulation.DISCARDING:
                return Refinement.PARTS
            case Accumulation.ACCUMULATING:
                return Refinement.REPLACEMENTS
            case Accumulation.RETRACTING:
                return Refinement.CHANGELOG
        assert_never(self.step.accumulation)

    @property
    def moves_windows(self) -> bool:
        return isinstance(self.step.window, Session)

    @property
    def forgets(self) -> str | None:
        return None if self.step.ttl is None else f"after {self.step.ttl} of processing time"

    @property
    def allowed_lateness(self) -> Duration | None:
        return None if isinstance(self.step.window, CountWindow) else self.step.lateness.allowed

    @property
    def rows_behind(self) -> Duration | None:
        """A late pane is at the end of its window; a retraction is at the time of the pane that it withdraws."""
        step, allowed = self.step, self.allowed_lateness
        at_end, retracts = step.pane_timestamp is PaneTimestamp.END_OF_WINDOW, self.refinement is Refinement.CHANGELOG
        if isinstance(step.window, Global):
            return ZERO if at_end or not retracts else None
        if allowed is None or not retracts:
            return allowed
        if at_end:
            return None if self.moves_windows else allowed
        size = step.window.size if isinstance(step.window, Tumbling | Sliding | Cumulating) else None
        return None if size is None else Duration(size.ms + allowed.ms)

    @property
    def repeats(self) -> bool:
        return self.refinement is Refinement.REPLACEMENTS

    @property
    def combined_by(self) -> Mapping[str, type[Aggregate]]:
        found: dict[str, type[Aggregate]] = {}
        for name, aggregate in self.step.aggregates:
            if isinstance(aggregate, _ADDED_UP):
                found[name] = Sum
            elif isinstance(aggregate, _COMBINED_BY_ITSELF):
                found[name] = type(aggregate)
        return found

    def misread_parts(self, combined_by: Mapping[str, type[Aggregate]], fixed: AbstractSet[str]) -> tuple[str, ...]:
        def is_right(aggregate: Aggregate) -> bool:
            columns = read_by(aggregate)
            if columns and isinstance(aggregate, _IDEMPOTENT) and set(columns) <= fixed:
                return True
            return len(columns) == 1 and combined_by.get(columns[0]) is type(aggregate)

        return tuple(name for name, aggregate in self.step.aggregates if not is_right(aggregate))

    @property
    def declared(self) -> Mapping[str, str]:
        return PANE

    @property
    def sums(self) -> tuple[str, ...]:
        return tuple(name for name, aggregate in self.step.aggregates if isinstance(aggregate, Sum))

    @property
    def has_fixed_windows(self) -> bool:
        return isinstance(self.step.window, Tumbling | Sliding | Cumulating)

    @property
    def has_windows_of_one_size(self) -> bool:
        return isinstance(self.step.window, Tumbling | Sliding)

    @property
    def next_trigger(self) -> Trigger:
        return continued(self.step.trigger)

    @property
    def order_dependence(self) -> str | None:
        step = self.step
        if step.time is TimeDomain.PROCESSING:
            return "it uses processing time"
        if isinstance(step.window, CountWindow):
            return "count windows take elements in arrival order"
        if step.evictor is not None:
            return "an evictor depends on arrival order"
        if step.ttl is not None:
            return "state has a time to live in processing time"
        trigger = step.trigger
        match trigger.of if isinstance(trigger, Repeatedly) else trigger:
            case Never() | AfterWatermark(None, _):
                return None
            case AfterWatermark() if step.accumulation is Accumulation.DISCARDING:
                return f"{describe(trigger)} splits the elements of a window between discarding panes"
            case AfterWatermark() if step.accumulation is Accumulation.ACCUMULATING and isinstance(
                step.window, Session
            ):
                return "panes of a session have its bounds at the time of firing, and sessions grow"
            case AfterWatermark():
                # Each pane replaces the one before it, so one batch leaves the same final pane.
                return None
            case _:
                return f"{describe(trigger)} fires on the elements that have arrived so far"

    def with_signs(self, signs: bool) -> WindowedStep:
        return replace(self.step, signed=signs)

    def name(self, keys: Sequence[str]) -> str:
        return f"{', '.join(name for name, _ in self.step.aggregates)} by {', '.join(keys)}"

    def columns(self, inputs: Mapping[str, Columns], keys: Sequence[str]) -> Columns:
        known = inputs[INPUT]
        values = {name: _value_type(aggregate, known) for name, aggregate in self.step.aggregates}
        own = {**{key: known.get(key) for key in keys}, **values}
        return {**own, **{name: kind for name, kind in PANE.items() if name not in own}}

    def check_columns(self, need: Callable[[str], str | None], keys: Sequence[str]) -> None:
        for name, aggregate in self.step.aggregates:
            for column in read_by(aggregate):
                kind = need(column)
                wanted = _needs(aggregate, column)
                if kind is not None and wanted is not None and not wanted[1](kind):
                    raise InvalidStep(
                        f"{name!r} needs {wanted[0]}, and the column {column!r} is a {kind}",
                        hint="choose or cast a column",
                    )
        match self.step.window:
            case Session(GapColumn(column)):
                need(column)
            case Custom(start, end):
                need(start)
                need(end)
        if isinstance(self.step.evictor, KeepDelta):
            for read in sorted(names_of(self.step.evictor.distance.tree), key=lambda each: each.name):
                need(read.name)
        both = sorted({name for name, _ in self.step.aggregates} & set(keys))
        if both:
            raise InvalidStep(f"{both[0]!r} is both a key and an aggregate", hint="give the aggregate another name")

    def refuse_retractions(self, name: str, before: str) -> None:
        if self.step.evictor is not None or isinstance(self.step.window, CountWindow):
            raise InvalidStep(
                f"{name} depends on arrival order and cannot process retractions, and {before} sends them",
                hint="make that step discarding, or use neither an evictor nor count windows here",
            )
        for aggregate, kind in self.step.aggregates:
            if isinstance(kind, ApproxCountDistinct):
                raise InvalidStep(
                    f"{aggregate!r} is an approximate count and cannot process retractions", hint="use count_distinct"
                )

    def refuse(self, name: str, accepted: frozenset[Accepted]) -> None:
        if Accepted.CLOSING not in accepted and closes_early(self.step):
            raise InvalidStep(
                f"the trigger of {name} finishes, and its windows then accept no more elements",
                detail=f"{describe(self.step.trigger)}; later elements go to the late output with reason closed",
                hint="wrap it in repeatedly(…), give after_watermark a late part, or set trigger(…, may_close=True)",
            )
        if Accepted.FOR_EVER in accepted:
            return
        if isinstance(self.step.window, Global) and self.step.ttl is None:
            raise InvalidStep(
                f"{name} keeps a row for every key forever: its window has no end",
                hint="set a window or time_to_live(…), or accept it with keep_for_ever()",
            )
        if not isinstance(self.step.window, Global | CountWindow) and self.step.lateness.allowed is None:
            raise InvalidStep(
                f"{name} keeps every window forever: its allowed lateness has no end",
                hint="set a length of time, or accept it with keep_for_ever()",
            )

    def explain_prepare(self, keys: Sequence[str]) -> str:
        by = ", ".join(keys)
        grouped = f"pre-aggregate by {by}" if lifts(self.step) else f"group by {by} without pre-aggregation"
        return f"{describe_window(self.step.window)}, {grouped}"

    def explain_step(self) -> str:
        return f"{describe(self.step.trigger)}, {self.step.accumulation}"

    def explain_state(self) -> str:
        values = ", ".join(name for name, _ in self.step.aggregates)
        return f"keeps {values} per key and window until {self._until()}"

    def _until(self) -> str:
        allowed = self.step.lateness.allowed
        if self.step.ttl is not None:
            return f"{self.step.ttl} of processing time after its last element"
        return "the end of the stream" if allowed is None else f"{allowed} after the window's end"

    def describe(self) -> str:
        return str(self.step.window)

    def cautions(self) -> tuple[str, ...]:
        return cautions(self.step)


def _needs(aggregate: Aggregate, column: str) -> tuple[str, Callable[[str], bool]] | None:
    """Return the types that an aggregate takes in a column: in words, and as a test; None for all types."""
    match aggregate:
        case Sum() | Mean() | Variance() | StdDev() | Quantile() | AnyTrue() | AllTrue():
            return "a number", lambda kind: ddl.is_number(kind) or kind == "boolean"
        case BitAnd() | BitOr() | BitXor():
            return "an integer", lambda kind: ddl.is_integer(kind) or kind == "boolean"
        case Min() | Max():
            return "values with an order", lambda kind: not ddl.is_nested(kind)
        case ArgMin(_, by) | ArgMax(_, by) if column == by:
            return "values with an order", lambda kind: not ddl.is_nested(kind)
        case TopK(_, _, by) if column == (by or aggregate.column):
            return "values with an order", lambda kind: not ddl.is_nested(kind)
        case StringAgg():
            return "a text", lambda kind: kind != "binary" and not ddl.is_nested(kind)
    return None


def closes_early(step: WindowedStep) -> bool:
    """Tell whether a window may close before its allowed lateness has passed."""
    if not may_finish(step.trigger):
        return False
    return not finishes_by_watermark_only(step.trigger) or step.lateness.allowed != ZERO


def _value_type(aggregate: Aggregate, known: Columns) -> str | None:
    kind = known.get(aggregate.column or "")
    match aggregate:
        case Count() | CountDistinct() | ApproxCountDistinct():
            return "long"
        case Mean() | Variance() | StdDev():
            return "double"
        case AnyTrue() | AllTrue():
            return "boolean"
        case StringAgg():
            return "string"
        case Sum():
            return kind and _sum_type(kind)
        case Collect() | TopK():
            return kind and f"array<{kind}>"
        case UserAggregate():
            return None
        case _:
            return kind


def _sum_type(kind: str) -> str:
    """Return the type of a sum: a decimal keeps its scale and gets all digits, as in DuckDB."""
    if kind in ("float", "double"):
        return "double"
    return f"decimal({ddl.DIGITS}, {ddl.scale(kind)})" if kind.startswith("decimal") else "long"
