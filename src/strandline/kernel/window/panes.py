"""Fire triggers and emit panes: timing, numbering, retractions."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache

import polars as pl

from strandline.kernel.aggregation.accumulators import (
    ELEMENTS,
    Combined,
    carries_in,
    combine,
    identity,
    parts_of,
    with_values,
)
from strandline.kernel.blocks.block import COUNTED, EARLIEST, END, NEW, START, TIME, Frames
from strandline.kernel.blocks.small_frames import collected, stacked, without
from strandline.kernel.expressions import to_expr
from strandline.kernel.operator import BatchTimes
from strandline.kernel.state.partitioning import ordered
from strandline.kernel.state.slice_store import HOLD
from strandline.kernel.stateless_steps import PROBLEM
from strandline.kernel.window import evictors, triggers
from strandline.kernel.window.assign import expires, later, max_timestamp
from strandline.kernel.window.shared_slices import has_no_early_panes
from strandline.kernel.window.window_rows import (
    ADDED,
    ARRIVED,
    CLOSED,
    LAST_TIME,
    LAST_TIMING,
    LAST_VALUE,
    NON_EARLY_COUNT,
    PANE_COUNT,
    OpenWindows,
    initial,
    keeps_last_values,
)
from strandline.model.aggregates import Sum
from strandline.model.evictors import Moment
from strandline.model.expressions import Expression, Name
from strandline.model.panes import Accumulation, Emit, PaneTimestamp, Timing
from strandline.model.steps import WindowedStep
from strandline.model.triggers import may_finish
from strandline.model.windows import Session

TIMING = "@timing"
INDEX = "@index"
NONSPECULATIVE = "@nonspeculative_index"
FIRST = "@first"
LAST = "@last"
TIMESTAMP = "@timestamp"
RETRACTION = "@retraction"

OWNER_START, OWNER_END = "@owner_start", "@owner_end"
"""Bounds of the window that emits a retraction; after a session merge they differ from those of the pane."""

_FIRES, _EMITTED, _EXPIRED, _REACHED, _NOW = "@fires", "@emitted", "@over", "@reached", "@now."
_CLOSES = pl.col(CLOSED) | (pl.col(_FIRES) & pl.col(LAST))
_CACHED_INSTANTS = 16
"""Number of cached expression lists: all key groups of a task use the same ones at one instant."""


def fire(
    state: OpenWindows, keys: Sequence[str], step: WindowedStep, now: BatchTimes
) -> tuple[pl.DataFrame | None, OpenWindows]:
    """Fire the windows of a batch; return its panes in order and the windows that stay open.

    The open windows already contain the elements of the batch. Windows that cannot fire yet skip the trigger
    evaluation.
    """
    windows, fresh, state = state.windows, state.fresh, replace(state, fresh=None)
    if windows is None:
        return None, state
    if step.ttl is not None or not has_no_early_panes(step):
        return _fire_windows(_concat([windows, fresh]), state, keys, step, now)
    if fresh is not None:
        if _not_ended(fresh, now).all():
            fresh = _update_without_firing(fresh, step, now)
        else:
            windows, fresh = _concat([windows, fresh]), None
    not_ended = _not_ended(windows, now)
    if not not_ended.any():
        panes, left = _fire_windows(windows, state, keys, step, now)
        return panes, replace(left, fresh=fresh)
    waiting = _update_without_firing(windows.filter(not_ended), step, now)
    if not_ended.all():
        return None, replace(state, windows=waiting, fresh=fresh)
    panes, left = _fire_windows(windows.filter(~not_ended), state, keys, step, now)
    return panes, replace(left, windows=_concat([left.windows, waiting]), fresh=fresh)


def _not_ended(windows: pl.DataFrame, now: BatchTimes) -> pl.Series:
    """Mark the windows that end after the watermark."""
    return windows.select(max_timestamp() > now.after).to_series()


def _update_without_firing(windows: pl.DataFrame, step: WindowedStep, now: BatchTimes) -> pl.DataFrame:
    """Add new elements to the counters, holds and triggers of windows that cannot fire in this batch."""
    return collected(
        _without_batch_columns(_add_new_elements(_with_last_values(windows, step), step, now)), windows.height
    )


def _concat(frames: Sequence[pl.DataFrame | None]) -> pl.DataFrame:
    return stacked([each for each in frames if each is not None])


def _fire_windows(
    windows: pl.DataFrame, state: OpenWindows, keys: Sequence[str], step: WindowedStep, now: BatchTimes
) -> tuple[pl.DataFrame | None, OpenWindows]:
    """Evaluate the trigger of every window, and emit panes for those that fire."""
    updated = _add_new_elements(_with_last_values(windows, step), step, now)
    items = state.items
    if triggers.conditions(step.trigger):
        collected_rows = updated.collect()
        updated = _with_values(collected_rows, _evict_before(items, collected_rows, keys, step), keys, step).lazy()
    tested = collected(_evaluate_triggers(updated, step, now), windows.height)
    if not (tested[_FIRES] | tested[_EXPIRED]).any():
        return None, replace(state, windows=collected(_without_batch_columns(tested.lazy()), tested.height))
    if step.evictor is not None:
        items = {**items, **_evict_before(items, tested.filter(_FIRES), keys, step)}
    before = without(tested, [name for name in tested.columns if name.startswith(_NOW)])
    emitted = before[_EMITTED]
    emitting = _with_values(before if emitted.all(ignore_nulls=False) else before.filter(emitted), items, keys, step)
    panes = _panes(emitting, state.pending, keys, step) if emitting.height else None
    return panes, _after_firing(tested, emitting, replace(state, items=items), keys, step)


def on_time_panes(combined: Combined, keys: Sequence[str], step: WindowedStep, now: BatchTimes) -> pl.DataFrame:
    """Return on-time panes, as the first pane of each window, in the order of the rows."""
    valued = with_values(combined.rows, combined.items, keys, step, _NOW)
    last = pl.lit(True) if may_finish(step.trigger) else expires(step) <= now.after
    return valued.select(
        *keys, START, END, *(pl.col(_NOW + name).alias(name) for name, _ in step.aggregates),
        _timing(Timing.ON_TIME).alias(TIMING),
        pl.lit(0, pl.Int64).alias(INDEX), pl.lit(0, pl.Int64).alias(NONSPECULATIVE), pl.lit(True).alias(FIRST),
        last.alias(LAST),
        max_timestamp().alias(TIMESTAMP), pl.lit(False).alias(RETRACTION),
    )  # fmt: skip


def after_on_time_pane(rows: pl.DataFrame, step: WindowedStep, now: BatchTimes) -> pl.DataFrame:
    """Return windows in the state they have after their on-time pane and no later element."""
    fired = triggers.fire(step.trigger, triggers.columns(step.trigger), _moment(step, now))
    closed = may_finish(step.trigger)
    counts = {PANE_COUNT: pl.lit(1, pl.Int64), NON_EARLY_COUNT: pl.lit(1, pl.Int64), CLOSED: pl.lit(closed)}
    state = {**initial(step), **counts, **fired}
    if closed or step.accumulation is Accumulation.DISCARDING:
        state |= {part.name: pl.lit(part.empty, rows[part.name].dtype) for part in parts_of(step)}
        state |= {carry: pl.lit(0, pl.Int64) for carry in carries_in(step, rows)}
    return _without_batch_columns(rows.lazy().with_columns(**state)).collect()


def _without_batch_columns(windows: pl.LazyFrame) -> pl.LazyFrame:
    """Drop the columns that are only used within a batch."""
    marks = (_FIRES, _EMITTED, _EXPIRED, _REACHED, TIMING, LAST, NEW, COUNTED, EARLIEST, TIME, PROBLEM)
    return windows.drop(marks, strict=False).select(pl.exclude(f"^{_NOW}.*$"))


@lru_cache(_CACHED_INSTANTS)
def deadlines(step: WindowedStep, now: BatchTimes) -> tuple[pl.Expr, pl.Expr]:
    """Return the earliest watermark and the earliest clock at which a window is due again."""
    end, expired = max_timestamp(), expires(step)
    by_watermark, by_clock = triggers.deadlines(step.trigger, now.after, now.clock)
    ends = pl.when(end > now.after).then(end)
    open_targets = pl.when(~pl.col(CLOSED)).then(pl.min_horizontal(ends, by_watermark))
    clock_targets = pl.when(~pl.col(CLOSED)).then(by_clock)
    idle_until = pl.lit(None, pl.Int64) if step.ttl is None else later(pl.col(ARRIVED), step.ttl.ms)
    return pl.min_horizontal(open_targets, expired), pl.min_horizontal(clock_targets, idle_until)


def _with_last_values(windows: pl.DataFrame, step: WindowedStep) -> pl.LazyFrame:
    """Add null columns for last emitted values to windows that have emitted no pane."""
    names = (
        [*(LAST_VALUE + name for name, _ in step.aggregates), LAST_TIMING, LAST_TIME] if keeps_last_values(step) else []
    )
    return windows.lazy().with_columns(pl.lit(None).alias(name) for name in names if name not in windows.columns)


def _add_new_elements(windows: pl.LazyFrame, step: WindowedStep, now: BatchTimes) -> pl.LazyFrame:
    """Add new elements to the counters, the hold and the trigger of each window."""
    return windows.with_columns(_new_element_columns(step, now))


@lru_cache(_CACHED_INSTANTS)
def _new_element_columns(step: WindowedStep, now: BatchTimes) -> Sequence[pl.Expr]:
    updated = triggers.add(step.trigger, triggers.now(step.trigger), _moment(step, now))
    reached = pl.min_horizontal(pl.lit(now.before), pl.col(HOLD) - 1)
    return [
        (pl.col(ADDED) + pl.col(NEW)).alias(ADDED),
        pl.when(pl.col(NEW) > 0).then(now.clock).otherwise(pl.col(ARRIVED)).alias(ARRIVED),
        reached.alias(_REACHED),
        _hold(step, now, reached).alias(HOLD),
        *(expression.alias(name) for name, expression in updated.items()),
    ]


def _hold(step: WindowedStep, now: BatchTimes, reached: pl.Expr) -> pl.Expr:
    """Return the hold after new elements: they hold the output watermark back, unless it has passed their time."""
    end = max_timestamp()
    before_end = (pl.col(NEW) > 0) & (end > now.before)
    match step.pane_timestamp:
        case PaneTimestamp.END_OF_WINDOW:
            return pl.when(before_end).then(end).otherwise(pl.col(HOLD))
        case PaneTimestamp.EARLIEST:
            counted = pl.when(before_end & (pl.col(TIME) > reached)).then(pl.col(TIME))
            return pl.min_horizontal(pl.col(HOLD), counted)
        case PaneTimestamp.LATEST:
            counted = pl.when(before_end & (pl.col(TIME) > reached)).then(pl.col(TIME))
            return pl.max_horizontal(pl.col(HOLD), counted)


def _evaluate_triggers(windows: pl.LazyFrame, step: WindowedStep, now: BatchTimes) -> pl.LazyFrame:
    """Evaluate each trigger once. An expired window fires without a trigger."""
    for columns in _trigger_columns(step, now):
        windows = windows.with_columns(columns)
    return windows


@lru_cache(_CACHED_INSTANTS)
def _trigger_columns(step: WindowedStep, now: BatchTimes) -> Sequence[Sequence[pl.Expr]]:
    """Return the columns to compute, in stages: later stages read columns of earlier ones, so each is computed once."""
    end, state, moment = max_timestamp(), triggers.now(step.trigger), _moment(step, now)
    previous = replace(moment, watermark=now.before, clock=now.clock_before)
    expired = expires(step) <= now.after
    if step.ttl is not None:
        expired = expired | (now.clock > later(pl.col(ARRIVED), step.ttl.ms))
    crossed = (end > now.before) & (end <= now.after)
    tested = (pl.col(NEW) > 0) | crossed | triggers.due(step.trigger, previous, moment)
    fires = ~pl.col(CLOSED) & tested & triggers.should(step.trigger, state, moment)
    fired = triggers.fire(step.trigger, state, moment)
    done = triggers.finished(step.trigger, fired)
    late = (pl.col(NON_EARLY_COUNT) > 0) | (end <= pl.col(_REACHED))
    early = end > now.after
    timing = (
        pl.when(late)
        .then(_timing(Timing.LATE))
        .when(early)
        .then(_timing(Timing.EARLY))
        .otherwise(_timing(Timing.ON_TIME))
    )
    first = [expired.alias(_EXPIRED), fires.alias(_FIRES), timing.alias(TIMING)]
    second = [
        (pl.col(_FIRES) | (pl.col(_EXPIRED) & ~pl.col(CLOSED))).alias(_FIRES), (pl.col(_EXPIRED) | done).alias(LAST),
        *(
            pl.when(pl.col(_FIRES) & ~pl.col(_EXPIRED)).then(fired[name]).otherwise(pl.col(name)).alias(name)
            for name in state
        ),
    ]  # fmt: skip
    return [first, second, [_emits(step).alias(_EMITTED)]]


def _emits(step: WindowedStep) -> pl.Expr:
    emits = pl.col(ADDED) > 0
    if step.on_time_pane is Emit.ALWAYS:
        emits = emits | (pl.col(TIMING) == Timing.ON_TIME.value)
    if step.final_pane is Emit.ALWAYS:
        emits = emits | pl.col(LAST)
    return pl.col(_FIRES) & emits


def _evict_before(
    items: Frames, windows: pl.DataFrame, keys: Sequence[str], step: WindowedStep
) -> dict[str, pl.DataFrame]:
    """Evict elements of windows that are about to fire; the items of other windows stay unchanged."""
    if step.evictor is None or ELEMENTS not in items:
        return {}
    names = identity(keys)
    selected = items[ELEMENTS].join(windows.select(names), on=names, how="semi", nulls_equal=True)
    others = items[ELEMENTS].join(windows.select(names), on=names, how="anti", nulls_equal=True)
    return {
        ELEMENTS: pl.concat(
            [others, evictors.evict(step.evictor, Moment.BEFORE, selected, keys)], how="diagonal_relaxed"
        )
    }


def _with_values(windows: pl.DataFrame, items: Frames, keys: Sequence[str], step: WindowedStep) -> pl.DataFrame:
    """Add the values that a pane of each window would have now."""
    names = identity(keys)
    held = {
        name: each.join(windows.select(names), on=names, how="semi", nulls_equal=True) for name, each in items.items()
    }
    if step.evictor is None:
        return with_values(windows, held, keys, step, _NOW)
    plain = replace(step, evictor=None)
    elements = held.get(ELEMENTS)
    if elements is None or elements.is_empty():
        empties = [part.nothing.alias(part.name) for part in parts_of(plain)]
        values = with_values(windows.select(names).with_columns(empties), {}, keys, plain, _NOW)
    else:
        combined = combine(elements, keys, plain)
        rows = windows.select(names).join(combined.rows, on=names, how="left", nulls_equal=True)
        fills = [pl.col(part.name).fill_null(part.nothing) for part in parts_of(plain) if part.empty is not None]
        values = with_values(rows.with_columns(fills), combined.items, keys, plain, _NOW)
    found = values.select(*names, *(_NOW + name for name, _ in step.aggregates), pl.col(f"^{PROBLEM}$"))
    return windows.join(found, on=names, how="left", nulls_equal=True, maintain_order="left")


def _panes(
    emitting: pl.DataFrame, pending: pl.DataFrame | None, keys: Sequence[str], step: WindowedStep
) -> pl.DataFrame:
    """Return new panes, each after the panes that it retracts."""
    panes = emitting.select(*keys, *_pane_columns(step))
    if step.accumulation is Accumulation.RETRACTING:
        panes = pl.concat([*_retractions(emitting, pending, keys, step), panes], how="diagonal_relaxed")
    owners = (OWNER_START, OWNER_END)
    return without(ordered(panes, [*keys, *owners], owners), owners)


@cache
def _pane_columns(step: WindowedStep) -> Sequence[pl.Expr]:
    """Return the columns of a pane besides its key."""
    early = pl.col(TIMING) == Timing.EARLY.value
    settled = pl.when(early).then(-1).otherwise(pl.col(NON_EARLY_COUNT)).cast(pl.Int64)
    time = pl.col(HOLD).fill_null(max_timestamp())
    return [
        pl.col(START), pl.col(END), *(pl.col(_NOW + name).alias(name) for name, _ in step.aggregates), pl.col(TIMING),
        pl.col(PANE_COUNT).alias(INDEX), settled.alias(NONSPECULATIVE),
        (pl.col(PANE_COUNT) == 0).alias(FIRST), pl.col(LAST), time.alias(TIMESTAMP), pl.lit(False).alias(RETRACTION),
        pl.col(START).alias(OWNER_START), pl.col(END).alias(OWNER_END), pl.col(f"^{PROBLEM}$"),
    ]  # fmt: skip


def _retractions(
    emitting: pl.DataFrame, pending: pl.DataFrame | None, keys: Sequence[str], step: WindowedStep
) -> list[pl.DataFrame]:
    """Return the retractions of windows that emit: panes of sessions merged into them, then their own last pane."""
    found = [last_panes(emitting.filter(pl.col(PANE_COUNT) > 0), keys, step)]
    if pending is not None:
        owners = emitting.select(*keys, pl.col(START).alias(OWNER_START), pl.col(END).alias(OWNER_END))
        found.insert(0, pending.join(owners, on=owners.columns, how="semi", nulls_equal=True))
    return found


def overflowed_sums(panes: pl.DataFrame, step: WindowedStep) -> int:
    """Count the sums in new panes that are null: they have overflowed, since a sum of no values is 0."""
    names = [name for name, aggregate in step.aggregates if isinstance(aggregate, Sum) and panes[name].null_count()]
    new = panes.filter(~pl.col(RETRACTION)) if names else panes
    return sum(new[name].null_count() for name in names)


def last_panes(windows: pl.DataFrame, keys: Sequence[str], step: WindowedStep) -> pl.DataFrame:
    """Return the last emitted pane of each window as a retraction."""
    early = pl.col(LAST_TIMING) == Timing.EARLY.value
    return windows.select(
        *keys, START, END, *(pl.col(LAST_VALUE + name).alias(name) for name, _ in step.aggregates),
        pl.col(LAST_TIMING).alias(TIMING), (pl.col(PANE_COUNT) - 1).alias(INDEX),
        pl.when(early).then(-1).otherwise(pl.col(NON_EARLY_COUNT) - 1).cast(pl.Int64).alias(NONSPECULATIVE),
        (pl.col(PANE_COUNT) == 1).alias(FIRST), pl.lit(False).alias(LAST), pl.col(LAST_TIME).alias(TIMESTAMP),
        pl.lit(True).alias(RETRACTION), pl.col(START).alias(OWNER_START), pl.col(END).alias(OWNER_END),
    )  # fmt: skip


def _after_firing(
    windows: pl.DataFrame, emitting: pl.DataFrame, state: OpenWindows, keys: Sequence[str], step: WindowedStep
) -> OpenWindows:
    """Return the open windows after firing, without expired windows."""
    names = identity(keys)
    if keeps_last_values(step):
        windows = _keep_last_values(windows, emitting, step)
    items = dict(state.items)
    if items:
        emptied = windows.filter(pl.col(_EXPIRED) | _clears_contents(step)).select(names)
        items = {name: each.join(emptied, on=names, how="anti", nulls_equal=True) for name, each in items.items()}
    if step.evictor is not None and ELEMENTS in items:
        items[ELEMENTS] = _evict_after(items[ELEMENTS], windows.filter(_FIRES), keys, step)
    alive = collected(
        _without_batch_columns(
            windows.lazy()
            .filter(~pl.col(_EXPIRED))
            .with_columns(**_columns_after_firing(step), **_carries_after_firing(windows, step))
        ),
        windows.height,
    )
    return OpenWindows(alive, items, _still_pending(state.pending, windows, keys))


@cache
def _columns_after_firing(step: WindowedStep) -> Mapping[str, pl.Expr]:
    """Return the value of each column after firing."""
    fires, emitted, clears = pl.col(_FIRES), pl.col(_EMITTED), _clears_contents(step)
    return {
        ADDED: pl.when(fires).then(0).otherwise(pl.col(ADDED)),
        HOLD: pl.when(~fires).then(pl.col(HOLD)),
        PANE_COUNT: pl.col(PANE_COUNT) + emitted.cast(pl.Int64),
        NON_EARLY_COUNT: pl.col(NON_EARLY_COUNT) + (emitted & (pl.col(TIMING) != Timing.EARLY.value)).cast(pl.Int64),
        CLOSED: _CLOSES,
        **{part.name: pl.when(clears).then(part.nothing).otherwise(pl.col(part.name)) for part in parts_of(step)},
    }


def _carries_after_firing(windows: pl.DataFrame, step: WindowedStep) -> Mapping[str, pl.Expr]:
    clears = _clears_contents(step)
    return {carry: pl.when(clears).then(0).otherwise(pl.col(carry)) for carry in carries_in(step, windows)}


def _clears_contents(step: WindowedStep) -> pl.Expr:
    """Tell whether firing clears the contents of a window."""
    return _CLOSES | pl.col(_FIRES) if step.accumulation is Accumulation.DISCARDING else _CLOSES


def _evict_after(elements: pl.DataFrame, fired: pl.DataFrame, keys: Sequence[str], step: WindowedStep) -> pl.DataFrame:
    names = identity(keys)
    selected = elements.join(fired.select(names), on=names, how="semi", nulls_equal=True)
    others = elements.join(fired.select(names), on=names, how="anti", nulls_equal=True)
    return pl.concat([others, evictors.evict(step.evictor, Moment.AFTER, selected, keys)], how="diagonal_relaxed")


def _keep_last_values(windows: pl.DataFrame, emitting: pl.DataFrame, step: WindowedStep) -> pl.DataFrame:
    """Keep the values just emitted. `emitting` has the rows of the windows that emitted, in the same order."""
    new = {LAST_VALUE + name: pl.col(_NOW + name) for name, _ in step.aggregates}
    new |= {LAST_TIMING: pl.col(TIMING), LAST_TIME: pl.col(HOLD).fill_null(max_timestamp())}
    values = emitting.select(value.alias(name) for name, value in new.items())
    if values.height < windows.height:
        fresh = windows[_EMITTED]
        values = (
            values[(fresh.cum_sum().cast(pl.Int64) - 1).clip(0)] if values.height else windows.select(values.columns)
        )
        values = values.select(pl.when(fresh).then(pl.col(name)).otherwise(windows[name]).alias(name) for name in new)
    return windows.with_columns(values)


def _still_pending(pending: pl.DataFrame | None, windows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame | None:
    """Drop pending retractions that were emitted now or whose window has expired."""
    if pending is None:
        return None
    settled = windows.filter(pl.col(_EMITTED) | pl.col(_EXPIRED))
    owners = settled.select(*keys, pl.col(START).alias(OWNER_START), pl.col(END).alias(OWNER_END))
    left = pending.join(owners, on=owners.columns, how="anti", nulls_equal=True)
    return left if left.height else None


def _moment(step: WindowedStep, now: BatchTimes) -> triggers.Moment:
    return triggers.Moment(
        new=pl.col(NEW),
        earliest=pl.col(EARLIEST),  # only event-time triggers read this column, and then it exists
        end=max_timestamp(),
        watermark=now.after,
        clock=now.clock,
        holds=_holds,
        merging=isinstance(step.window, Session),
    )


def _holds(condition: Expression) -> pl.Expr:
    return to_expr(condition.tree, _column)


def _column(name: Name) -> pl.Expr:
    if name.name == "since" and not name.scope:
        return pl.col(ADDED)
    return pl.col((LAST_VALUE if name.scope else _NOW) + name.name)


def _timing(timing: Timing) -> pl.Expr:
    return pl.lit(timing.value)
