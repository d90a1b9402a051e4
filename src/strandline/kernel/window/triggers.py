"""Evaluate triggers as expressions: their state is columns of the open windows.

Each node of the trigger tree stores its columns under its path: whether it is done, a count, a target time. The
functions below map expressions for these columns to expressions for their next values, so one pass evaluates the whole
tree for all windows of a batch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from operator import and_, or_
from typing import Any, Final, assert_never

import polars as pl

from strandline.kernel.watermarks import FOREVER
from strandline.model.expressions import Expression, names_of
from strandline.model.triggers import (
    AfterCount,
    AfterEventTime,
    AfterProcessingTime,
    AfterWatermark,
    AllOf,
    FirstOf,
    InSequence,
    Never,
    OrFinally,
    Repeatedly,
    Trigger,
    When,
    parts_of,
)

State = Mapping[str, pl.Expr]
"""For each column of a trigger, the expression of its value at a point of the batch."""

ROOT: Final = "@trigger"
_NEVER: Final = Never()
_DONE, _COUNT, _TARGET = "done", "count", "target"
_KEPT: Final[Mapping[str, tuple[Any, Any]]] = {
    _DONE: (pl.Boolean, False),
    _COUNT: (pl.Int64, 0),
    _TARGET: (pl.Int64, None),
}


@dataclass(frozen=True, slots=True)
class Moment:
    """Inputs of a trigger: the new elements of each window, the watermark and the clock."""

    new: pl.Expr
    earliest: pl.Expr
    end: pl.Expr
    watermark: int
    clock: int
    holds: Callable[[Expression], pl.Expr]
    merging: bool = False

    @property
    def past_end(self) -> pl.Expr:
        return self.end <= self.watermark


def parts(trigger: Trigger) -> tuple[Trigger, ...]:
    """Return the parts with state; early and late keep their positions even if absent."""
    if isinstance(trigger, AfterWatermark):
        return (trigger.early or _NEVER, trigger.late or _NEVER)
    return parts_of(trigger)


@cache
def columns(trigger: Trigger, path: str = ROOT) -> Mapping[str, pl.Expr]:
    """Return the state columns of a trigger with their initial values."""
    own = {f"{path}.{kind}": pl.lit(_KEPT[kind][1], _KEPT[kind][0]) for kind in _kinds(trigger)}
    for part, where in _with_paths(trigger, path):
        own |= dict(columns(part, where))
    return own


def restarted(trigger: Trigger, emitted: pl.Expr) -> Mapping[str, pl.Expr]:
    """Return the initial columns of a new trigger for existing windows, which must not emit a second on-time pane."""
    ended = {f"{ROOT}.{_DONE}": emitted} if isinstance(trigger, AfterWatermark) else {}
    return {**columns(trigger), **ended}


@cache
def now(trigger: Trigger) -> Mapping[str, pl.Expr]:
    """Return the current columns of the frame."""
    return {name: pl.col(name) for name in columns(trigger)}


def _kinds(trigger: Trigger) -> tuple[str, ...]:
    match trigger:
        case AfterCount():
            return (_DONE, _COUNT)
        case AfterProcessingTime() | AfterEventTime():
            return (_DONE, _TARGET)
        case AfterWatermark() | When() | FirstOf() | AllOf():
            return (_DONE,)
        case Never() | Repeatedly() | InSequence() | OrFinally():
            return ()
    assert_never(trigger)


def _with_paths(trigger: Trigger, path: str) -> list[tuple[Trigger, str]]:
    return [(part, f"{path}.{place}") for place, part in enumerate(parts(trigger))]


def finished(trigger: Trigger, state: State, path: str = ROOT) -> pl.Expr:
    """Tell whether a trigger will never fire again."""
    match trigger:
        case Never() | Repeatedly():
            return pl.lit(False)
        case AfterWatermark(late=late) if late is not None:
            return pl.lit(False)
        case InSequence():
            return reduce(and_, (finished(part, state, where) for part, where in _with_paths(trigger, path)))
        case OrFinally():
            return reduce(or_, (finished(part, state, where) for part, where in _with_paths(trigger, path)))
        case _:
            return state[f"{path}.{_DONE}"]


def add(trigger: Trigger, state: State, moment: Moment, path: str = ROOT) -> State:
    """Return the columns after the parts that accept elements have received those of the batch."""
    match trigger:
        case AfterCount():
            return {**state, f"{path}.{_COUNT}": state[f"{path}.{_COUNT}"] + moment.new}
        case AfterProcessingTime():
            target = state[f"{path}.{_TARGET}"]
            fresh = target.is_null() & (moment.new > 0)
            aligned = pl.lit(_aligned(trigger, moment.clock), pl.Int64)
            return {**state, f"{path}.{_TARGET}": pl.when(fresh).then(aligned).otherwise(target)}
        case AfterEventTime():
            target = state[f"{path}.{_TARGET}"]
            own = pl.min_horizontal(_boundary_after(trigger, moment.earliest), moment.end, target)
            return {**state, f"{path}.{_TARGET}": pl.when(moment.new > 0).then(own).otherwise(target)}
        case _:
            listening = _listening_parts(trigger, state, path, merging=moment.merging)
            for (part, where), listens in zip(_with_paths(trigger, path), listening, strict=True):
                state = _choose(listens, add(part, state, moment, where), state)
            return state


def _listening_parts(trigger: Trigger, state: State, path: str, *, merging: bool) -> Sequence[pl.Expr]:
    """Tell for each part whether it receives elements."""
    located = _with_paths(trigger, path)
    match trigger:
        case AllOf():
            return [~finished(part, state, where) for part, where in located]
        case AfterWatermark() if not merging:
            done = state[f"{path}.{_DONE}"]
            return (~done, done)
        case InSequence() if not merging:
            return list(_current(trigger, state, path))
        case _:
            return [pl.lit(True)] * len(located)


def _current(trigger: InSequence, state: State, path: str) -> Iterator[pl.Expr]:
    """Tell for each part of a sequence whether it is current: the first unfinished part, or the last one."""
    before: pl.Expr = pl.lit(True)
    located = _with_paths(trigger, path)
    for place, (part, where) in enumerate(located):
        done = finished(part, state, where)
        yield before if place == len(located) - 1 else before & ~done
        before = before & done


def should(trigger: Trigger, state: State, moment: Moment, path: str = ROOT) -> pl.Expr:
    """Tell whether the trigger of a window fires now."""
    located = _with_paths(trigger, path)
    verdicts = [should(part, state, moment, where) for part, where in located]
    match trigger:
        case AfterWatermark():
            early, late = verdicts
            return pl.when(state[f"{path}.{_DONE}"]).then(late).otherwise(early | moment.past_end)
        case AfterCount(n):
            return state[f"{path}.{_COUNT}"] >= n
        case AfterProcessingTime():
            return (state[f"{path}.{_TARGET}"] < moment.clock).fill_null(False)
        case AfterEventTime():
            return (state[f"{path}.{_TARGET}"] <= moment.watermark).fill_null(False)
        case When(condition):
            return moment.holds(condition).fill_null(False)
        case Never():
            return pl.lit(False)
        case Repeatedly():
            return verdicts[0]
        case FirstOf():
            return reduce(
                or_,
                (finished(part, state, at) | verdict for (part, at), verdict in zip(located, verdicts, strict=True)),
            )
        case AllOf():
            return reduce(
                and_,
                (finished(part, state, at) | verdict for (part, at), verdict in zip(located, verdicts, strict=True)),
            )
        case InSequence():
            current = _current(trigger, state, path)
            return reduce(or_, (own & verdict for own, verdict in zip(current, verdicts, strict=True)))
        case OrFinally():
            return verdicts[0] | verdicts[1]
    assert_never(trigger)


def fire(trigger: Trigger, state: State, moment: Moment, path: str = ROOT) -> State:
    """Return the columns after firing."""
    located = _with_paths(trigger, path)
    match trigger:
        case AfterWatermark():
            return _fire_after_watermark(trigger, state, moment, path)
        case AfterCount() | AfterProcessingTime() | AfterEventTime() | When():
            return {**state, **columns(trigger, path), f"{path}.{_DONE}": pl.lit(True)}
        case Never():
            return state
        case Repeatedly(of):
            return _reset_if_finished(of, fire(of, state, moment, located[0][1]), located[0][1])
        case FirstOf():
            for part, where in located:
                fires = should(part, state, moment, where)
                state = _choose(fires, fire(part, state, moment, where), _without_progress(part, state, where))
            return {**state, f"{path}.{_DONE}": pl.lit(True)}
        case AllOf():
            for part, where in located:
                state = fire(part, state, moment, where)
            return {**state, f"{path}.{_DONE}": pl.lit(True)}
        case InSequence():
            after = dict(state)
            for own, (part, where) in zip(_current(trigger, state, path), located, strict=True):
                after |= _choose(own, fire(part, state, moment, where), state, only=columns(part, where))
            return _without_progress(trigger, after, path) if moment.merging else after
        case OrFinally():
            (main, main_at), (until, until_at) = located
            ends = should(until, state, moment, until_at)
            ended = _without_progress(main, fire(until, state, moment, until_at), main_at)
            return _choose(ends, ended, fire(main, state, moment, main_at))
    assert_never(trigger)


def _fire_after_watermark(trigger: AfterWatermark, state: State, moment: Moment, path: str) -> State:
    """Fire early before the end and late after it; both restart, and firing one clears the progress of the other."""
    done = state[f"{path}.{_DONE}"]
    (early, early_at), (late, late_at) = _with_paths(trigger, path)
    at_end = {**state, **columns(trigger, path), f"{path}.{_DONE}": pl.lit(True)}
    before = _reset_if_finished(early, _without_progress(trigger, fire(early, state, moment, early_at), path), early_at)
    after = _reset_if_finished(late, _without_progress(trigger, fire(late, state, moment, late_at), path), late_at)
    return _choose(done, after, _choose(moment.past_end, at_end, before))


def _reset_if_finished(trigger: Trigger, state: State, path: str) -> State:
    return _choose(finished(trigger, state, path), {**state, **columns(trigger, path)}, state)


def _without_progress(trigger: Trigger, state: State, path: str) -> State:
    """Reset counts and targets in the whole tree; parts that are done stay done."""
    initial = {name: value for name, value in columns(trigger, path).items() if not name.endswith(_DONE)}
    return {**state, **initial}


def merged(trigger: Trigger, state: State, past_end: pl.Expr, path: str = ROOT) -> State:
    """Return the columns of a merged session from the aggregates of `merging`; past_end refers to the new end."""
    located = _with_paths(trigger, path)
    for part, where in located:
        state = merged(part, state, past_end, where)
    done = f"{path}.{_DONE}"
    match trigger:
        case AfterWatermark():
            emitted = past_end & state[f"{done}|all"]
            reset = {**state, **columns(located[1][0], located[1][1])}
            return {**_choose(emitted, state, reset), done: emitted}
        case AfterCount():
            any_done = state[f"{done}|any"]
            count = pl.when(any_done).then(0).otherwise(state[f"{path}.{_COUNT}"])
            return {**state, done: any_done, f"{path}.{_COUNT}": count}
        case AfterProcessingTime() | AfterEventTime():
            return {**state, done: pl.lit(False)}
        case When():
            return {**state, done: state[f"{done}|any"]}
        case FirstOf() | AllOf():
            join = or_ if isinstance(trigger, FirstOf) else and_
            return {**state, done: reduce(join, (finished(part, state, where) for part, where in located))}
        case InSequence():
            return _reset_later_parts(trigger, state, path)
        case Never() | Repeatedly() | OrFinally():
            return state
    assert_never(trigger)


def _reset_later_parts(trigger: InSequence, state: State, path: str) -> State:
    """Reset the parts after the first unfinished one."""
    after = dict(state)
    before: pl.Expr = pl.lit(True)
    for part, where in _with_paths(trigger, path):
        after |= _choose(before, state, {**state, **columns(part, where)}, only=columns(part, where))
        before = before & finished(part, state, where)
    return after


def merging(trigger: Trigger) -> list[pl.Expr]:
    """Return the aggregates over merging sessions that `merged` reads."""
    gathered: list[pl.Expr] = []
    for name in columns(trigger):
        column = pl.col(name)
        if name.endswith(_DONE):
            gathered += [column.any().alias(f"{name}|any"), column.all().alias(f"{name}|all")]
        else:
            gathered.append(column.sum() if name.endswith(_COUNT) else column.min())
    return gathered


def conditions(trigger: Trigger) -> list[Expression]:
    """Return the conditions of a trigger on the values of a pane."""
    own = [trigger.condition] if isinstance(trigger, When) else []
    return own + [each for part in parts(trigger) for each in conditions(part)]


def reads_last(trigger: Trigger) -> bool:
    """Tell whether a condition reads the last emitted values."""
    return any(name.scope for condition in conditions(trigger) for name in names_of(condition.tree))


def due(trigger: Trigger, previous: Moment, moment: Moment) -> pl.Expr:
    """Tell whether time passed a target of the tree in this batch, so that a timer can fire now."""
    state = now(trigger)
    crossed = [
        should(leaf, state, moment, where) & ~should(leaf, state, previous, where)
        for leaf, where in _timers(trigger, ROOT)
    ]
    return reduce(or_, crossed, pl.lit(False))


def deadlines(trigger: Trigger, watermark: int, clock: int) -> tuple[pl.Expr, pl.Expr]:
    """Return the earliest targets after the watermark and after the clock; null without a target."""
    by_watermark, by_clock = [pl.lit(None, pl.Int64)], [pl.lit(None, pl.Int64)]
    for leaf, where in _timers(trigger, ROOT):
        target = pl.col(f"{where}.{_TARGET}")
        if isinstance(leaf, AfterEventTime):
            by_watermark.append(pl.when(target > watermark).then(target))
        else:
            by_clock.append(pl.when(target >= clock).then(target))
    return pl.min_horizontal(by_watermark), pl.min_horizontal(by_clock)


def _timers(trigger: Trigger, path: str) -> Iterator[tuple[Trigger, str]]:
    if isinstance(trigger, AfterProcessingTime | AfterEventTime):
        yield trigger, path
    for part, where in _with_paths(trigger, path):
        yield from _timers(part, where)


def _choose(condition: pl.Expr, yes: State, no: State, only: Mapping[str, Any] | None = None) -> State:
    """Choose one of two states column by column; a column that is equal in both needs no expression."""
    return {
        name: yes[name] if yes[name] is no[name] else pl.when(condition).then(yes[name]).otherwise(no[name])
        for name in (yes if only is None else only)
    }


def _aligned(trigger: AfterProcessingTime, clock: int) -> int:
    target = min(clock + trigger.delay.ms, FOREVER)
    if trigger.aligned is None:
        return target
    return min(target + (trigger.offset.ms - target) % trigger.aligned.ms, FOREVER)


def _boundary_after(trigger: AfterEventTime, at: pl.Expr) -> pl.Expr:
    period, offset = trigger.period.ms, trigger.offset.ms % trigger.period.ms
    step = period - (at - offset) % period
    return pl.when(at > FOREVER - step).then(FOREVER).otherwise(at + step)
