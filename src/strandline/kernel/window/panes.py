"""Who fires in a batch, and the panes that come of it: timing, numbering, corrections."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, lru_cache

import polars as pl

from strandline.kernel.aggregation.accumulators import (
    ELEMENTS,
    Combined,
    combine,
    identity,
    parts_of,
    with_values,
)
from strandline.kernel.blocks.block import COUNTED, EARLIEST, END, NEW, START, TIME, Frames
from strandline.kernel.blocks.small_frames import collected, stacked, without
from strandline.kernel.expressions import to_expr
from strandline.kernel.operator import Instant
from strandline.kernel.state.partitioning import ordered
from strandline.kernel.state.slice_store import HOLD
from strandline.kernel.stateless_steps import PROBLEM
from strandline.kernel.window import evictors, triggers
from strandline.kernel.window.assign import expires, later, max_timestamp
from strandline.kernel.window.shared_slices import waits
from strandline.kernel.window.window_rows import (
    ADDED,
    ARRIVED,
    CLOSED,
    SETTLED,
    SPOKEN,
    TOLD,
    TOLD_TIME,
    TOLD_TIMING,
    OpenWindows,
    initial,
    keeps_told,
)
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
"""The bounds of the window that takes a pane back, where they are not the pane's own."""

_FIRES, _EMITTED, _OVER, _REACHED, _NOW = "@fires", "@emitted", "@over", "@reached", "@now."
_CLOSES = pl.col(CLOSED) | (pl.col(_FIRES) & pl.col(LAST))
_LATELY = 16
"""What is asked of windows at an instant is the same for all key groups of a task; so many are remembered."""


def fire(
    kept: OpenWindows, keys: Sequence[str], ask: WindowedStep, now: Instant
) -> tuple[pl.DataFrame | None, OpenWindows]:
    """The panes of a batch, in order, and what stays open after it, of what is kept with what is new added to it."""
    windows, fresh, kept = kept.windows, kept.fresh, replace(kept, fresh=None)
    if windows is None:
        return None, kept
    if ask.ttl is not None or not waits(ask):
        return _fire(_together([windows, fresh]), kept, keys, ask, now)
    if fresh is not None:
        if _ahead(fresh, now).all():
            fresh = _wait(fresh, ask, now)
        else:
            windows, fresh = _together([windows, fresh]), None
    ahead = _ahead(windows, now)
    if not ahead.any():
        panes, left = _fire(windows, kept, keys, ask, now)
        return panes, replace(left, fresh=fresh)
    waiting = _wait(windows.filter(ahead), ask, now)
    if ahead.all():
        return None, replace(kept, windows=waiting, fresh=fresh)
    panes, left = _fire(windows.filter(~ahead), kept, keys, ask, now)
    return panes, replace(left, windows=_together([left.windows, waiting]), fresh=fresh)


def _ahead(windows: pl.DataFrame, now: Instant) -> pl.Series:
    """Which of them the watermark has not ended."""
    return windows.select(max_timestamp() > now.after).to_series()


def _wait(windows: pl.DataFrame, ask: WindowedStep, now: Instant) -> pl.DataFrame:
    """Windows that hear of what is new, and say nothing."""
    return collected(_unmarked(_listen(_with_told(windows, ask), ask, now)), windows.height)


def _together(frames: Sequence[pl.DataFrame | None]) -> pl.DataFrame:
    return stacked([each for each in frames if each is not None])


def _fire(
    windows: pl.DataFrame, kept: OpenWindows, keys: Sequence[str], ask: WindowedStep, now: Instant
) -> tuple[pl.DataFrame | None, OpenWindows]:
    """Every window is tested."""
    heard = _listen(_with_told(windows, ask), ask, now)
    items = kept.items
    if triggers.conditions(ask.trigger):
        listening = heard.collect()
        heard = _valued(listening, _before(items, listening, keys, ask), keys, ask).lazy()
    tested = collected(_verdicts(heard, ask, now), windows.height)
    if not (tested[_FIRES] | tested[_OVER]).any():
        return None, replace(kept, windows=collected(_unmarked(tested.lazy()), tested.height))
    if ask.evictor is not None:
        items = {**items, **_before(items, tested.filter(_FIRES), keys, ask)}
    untold = without(tested, [name for name in tested.columns if name.startswith(_NOW)])
    emitted = untold[_EMITTED]
    spoke = _valued(untold if emitted.all(ignore_nulls=False) else untold.filter(emitted), items, keys, ask)
    panes = _panes(spoke, kept.owed, keys, ask) if spoke.height else None
    return panes, _settle(tested, spoke, replace(kept, items=items), keys, ask)


def on_time(said: Combined, keys: Sequence[str], ask: WindowedStep, now: Instant) -> pl.DataFrame:
    """The panes of windows that have just ended and have not spoken before, in the order of their rows."""
    valued = with_values(said.rows, said.items, keys, ask, _NOW)
    last = pl.lit(True) if may_finish(ask.trigger) else expires(ask) <= now.after
    return valued.select(
        *keys, START, END, *(pl.col(_NOW + name).alias(name) for name, _ in ask.aggregates),
        _said(Timing.ON_TIME).alias(TIMING),
        pl.lit(0, pl.Int64).alias(INDEX), pl.lit(0, pl.Int64).alias(NONSPECULATIVE), pl.lit(True).alias(FIRST),
        last.alias(LAST),
        max_timestamp().alias(TIMESTAMP), pl.lit(False).alias(RETRACTION),
    )  # fmt: skip


def on_time_before(rows: pl.DataFrame, ask: WindowedStep, now: Instant) -> pl.DataFrame:
    """Windows with these contents as they are once they have told their on-time pane, and nothing since."""
    fired = triggers.fire(ask.trigger, triggers.columns(ask.trigger), _moment(ask, now))
    closed = may_finish(ask.trigger)
    told = {SPOKEN: pl.lit(1, pl.Int64), SETTLED: pl.lit(1, pl.Int64), CLOSED: pl.lit(closed)}
    kept = {**initial(ask), **told, **fired}
    if closed or ask.accumulation is Accumulation.DISCARDING:
        kept |= {part.name: pl.lit(part.empty, rows[part.name].dtype) for part in parts_of(ask)}
    return _unmarked(rows.lazy().with_columns(**kept)).collect()


def _unmarked(windows: pl.LazyFrame) -> pl.LazyFrame:
    """Without what was only of this batch."""
    marks = (_FIRES, _EMITTED, _OVER, _REACHED, TIMING, LAST, NEW, COUNTED, EARLIEST, TIME, PROBLEM)
    return windows.drop(marks, strict=False).select(pl.exclude(f"^{_NOW}.*$"))


@lru_cache(_LATELY)
def deadlines(ask: WindowedStep, now: Instant) -> tuple[pl.Expr, pl.Expr]:
    """The earliest watermark and the earliest clock at which a window must be looked at again."""
    end, gone = max_timestamp(), expires(ask)
    by_watermark, by_clock = triggers.deadlines(ask.trigger, now.after, now.clock)
    ends = pl.when(end > now.after).then(end)
    open_ones = pl.when(~pl.col(CLOSED)).then(pl.min_horizontal(ends, by_watermark))
    ticks = pl.when(~pl.col(CLOSED)).then(by_clock)
    dies = pl.lit(None, pl.Int64) if ask.ttl is None else later(pl.col(ARRIVED), ask.ttl.ms)
    return pl.min_horizontal(open_ones, gone), pl.min_horizontal(ticks, dies)


def _with_told(windows: pl.DataFrame, ask: WindowedStep) -> pl.LazyFrame:
    """Windows that have told nothing yet have told null."""
    names = [*(TOLD + name for name, _ in ask.aggregates), TOLD_TIMING, TOLD_TIME] if keeps_told(ask) else []
    return windows.lazy().with_columns(pl.lit(None).alias(name) for name in names if name not in windows.columns)


def _listen(windows: pl.LazyFrame, ask: WindowedStep, now: Instant) -> pl.LazyFrame:
    """New elements reach the count, the hold and the trigger."""
    return windows.with_columns(_listening(ask, now))


@lru_cache(_LATELY)
def _listening(ask: WindowedStep, now: Instant) -> Sequence[pl.Expr]:
    heard = triggers.add(ask.trigger, triggers.now(ask.trigger), _moment(ask, now))
    reached = pl.min_horizontal(pl.lit(now.before), pl.col(HOLD) - 1)
    return [
        (pl.col(ADDED) + pl.col(NEW)).alias(ADDED),
        pl.when(pl.col(NEW) > 0).then(now.clock).otherwise(pl.col(ARRIVED)).alias(ARRIVED),
        reached.alias(_REACHED),
        _hold(ask, now, reached).alias(HOLD),
        *(expression.alias(name) for name, expression in heard.items()),
    ]


def _hold(ask: WindowedStep, now: Instant, reached: pl.Expr) -> pl.Expr:
    """New elements hold the output watermark back too, but not where it has already been."""
    end = max_timestamp()
    before_end = (pl.col(NEW) > 0) & (end > now.before)
    match ask.pane_timestamp:
        case PaneTimestamp.END_OF_WINDOW:
            return pl.when(before_end).then(end).otherwise(pl.col(HOLD))
        case PaneTimestamp.EARLIEST:
            counted = pl.when(before_end & (pl.col(TIME) > reached)).then(pl.col(TIME))
            return pl.min_horizontal(pl.col(HOLD), counted)
        case PaneTimestamp.LATEST:
            counted = pl.when(before_end & (pl.col(TIME) > reached)).then(pl.col(TIME))
            return pl.max_horizontal(pl.col(HOLD), counted)


def _verdicts(windows: pl.LazyFrame, ask: WindowedStep, now: Instant) -> pl.LazyFrame:
    """Each window is tested at most once; one whose time is over speaks unasked."""
    for asked in _asked(ask, now):
        windows = windows.with_columns(asked)
    return windows


@lru_cache(_LATELY)
def _asked(ask: WindowedStep, now: Instant) -> Sequence[Sequence[pl.Expr]]:
    """What is asked of each window, one after the other: what all the others go by is found first, once."""
    end, state, moment = max_timestamp(), triggers.now(ask.trigger), _moment(ask, now)
    was = replace(moment, watermark=now.before, clock=now.clock_before)
    over = expires(ask) <= now.after
    if ask.ttl is not None:
        over = over | (now.clock > later(pl.col(ARRIVED), ask.ttl.ms))
    crossed = (end > now.before) & (end <= now.after)
    tested = (pl.col(NEW) > 0) | crossed | triggers.due(ask.trigger, was, moment)
    asked = ~pl.col(CLOSED) & tested & triggers.should(ask.trigger, state, moment)
    fired = triggers.fire(ask.trigger, state, moment)
    done = triggers.finished(ask.trigger, fired)
    late = (pl.col(SETTLED) > 0) | (end <= pl.col(_REACHED))
    early = end > now.after
    timing = (
        pl.when(late).then(_said(Timing.LATE)).when(early).then(_said(Timing.EARLY)).otherwise(_said(Timing.ON_TIME))
    )
    first = [over.alias(_OVER), asked.alias(_FIRES), timing.alias(TIMING)]
    then = [
        (pl.col(_FIRES) | (pl.col(_OVER) & ~pl.col(CLOSED))).alias(_FIRES), (pl.col(_OVER) | done).alias(LAST),
        *(
            pl.when(pl.col(_FIRES) & ~pl.col(_OVER)).then(fired[name]).otherwise(pl.col(name)).alias(name)
            for name in state
        ),
    ]  # fmt: skip
    return [first, then, [_emitted(ask).alias(_EMITTED)]]


def _emitted(ask: WindowedStep) -> pl.Expr:
    speaks = pl.col(ADDED) > 0
    if ask.on_time_pane is Emit.ALWAYS:
        speaks = speaks | (pl.col(TIMING) == Timing.ON_TIME.value)
    if ask.final_pane is Emit.ALWAYS:
        speaks = speaks | pl.col(LAST)
    return pl.col(_FIRES) & speaks


def _before(items: Frames, windows: pl.DataFrame, keys: Sequence[str], ask: WindowedStep) -> dict[str, pl.DataFrame]:
    """The items of windows about to be told, after the evictor has run; those of other windows stay as they are."""
    if ask.evictor is None or ELEMENTS not in items:
        return {}
    names = identity(keys)
    mine = items[ELEMENTS].join(windows.select(names), on=names, how="semi", nulls_equal=True)
    others = items[ELEMENTS].join(windows.select(names), on=names, how="anti", nulls_equal=True)
    return {
        ELEMENTS: pl.concat([others, evictors.kept(ask.evictor, Moment.BEFORE, mine, keys)], how="diagonal_relaxed")
    }


def _valued(windows: pl.DataFrame, items: Frames, keys: Sequence[str], ask: WindowedStep) -> pl.DataFrame:
    """The windows with the values that a pane would have now."""
    names = identity(keys)
    held = {
        name: each.join(windows.select(names), on=names, how="semi", nulls_equal=True) for name, each in items.items()
    }
    if ask.evictor is None:
        return with_values(windows, held, keys, ask, _NOW)
    plain = replace(ask, evictor=None)
    elements = held.get(ELEMENTS)
    if elements is None or elements.is_empty():
        empties = [part.nothing.alias(part.name) for part in parts_of(plain)]
        values = with_values(windows.select(names).with_columns(empties), {}, keys, plain, _NOW)
    else:
        combined = combine(elements, keys, plain)
        rows = windows.select(names).join(combined.rows, on=names, how="left", nulls_equal=True)
        fills = [pl.col(part.name).fill_null(part.nothing) for part in parts_of(plain) if part.empty is not None]
        values = with_values(rows.with_columns(fills), combined.items, keys, plain, _NOW)
    told = values.select(*names, *(_NOW + name for name, _ in ask.aggregates), pl.col(f"^{PROBLEM}$"))
    return windows.join(told, on=names, how="left", nulls_equal=True, maintain_order="left")


def _panes(spoke: pl.DataFrame, owed: pl.DataFrame | None, keys: Sequence[str], ask: WindowedStep) -> pl.DataFrame:
    """The new panes, and before each of them those it takes back."""
    panes = spoke.select(*keys, *_told(ask))
    if ask.accumulation is Accumulation.RETRACTING:
        panes = pl.concat([*_withdrawn(spoke, owed, keys, ask), panes], how="diagonal_relaxed")
    owners = (OWNER_START, OWNER_END)
    return without(ordered(panes, [*keys, *owners], owners), owners)


@cache
def _told(ask: WindowedStep) -> Sequence[pl.Expr]:
    """What a pane says beside its key."""
    early = pl.col(TIMING) == Timing.EARLY.value
    settled = pl.when(early).then(-1).otherwise(pl.col(SETTLED)).cast(pl.Int64)
    time = pl.col(HOLD).fill_null(max_timestamp())
    return [
        pl.col(START), pl.col(END), *(pl.col(_NOW + name).alias(name) for name, _ in ask.aggregates), pl.col(TIMING),
        pl.col(SPOKEN).alias(INDEX), settled.alias(NONSPECULATIVE),
        (pl.col(SPOKEN) == 0).alias(FIRST), pl.col(LAST), time.alias(TIMESTAMP), pl.lit(False).alias(RETRACTION),
        pl.col(START).alias(OWNER_START), pl.col(END).alias(OWNER_END), pl.col(f"^{PROBLEM}$"),
    ]  # fmt: skip


def _withdrawn(
    spoke: pl.DataFrame, owed: pl.DataFrame | None, keys: Sequence[str], ask: WindowedStep
) -> list[pl.DataFrame]:
    """What windows that speak take back: panes of sessions merged into them, then their own last one."""
    found = [last_panes(spoke.filter(pl.col(SPOKEN) > 0), keys, ask)]
    if owed is not None:
        owners = spoke.select(*keys, pl.col(START).alias(OWNER_START), pl.col(END).alias(OWNER_END))
        found.insert(0, owed.join(owners, on=owners.columns, how="semi", nulls_equal=True))
    return found


def last_panes(windows: pl.DataFrame, keys: Sequence[str], ask: WindowedStep) -> pl.DataFrame:
    """The last pane of each window, as it was told, marked as taken back."""
    early = pl.col(TOLD_TIMING) == Timing.EARLY.value
    return windows.select(
        *keys, START, END, *(pl.col(TOLD + name).alias(name) for name, _ in ask.aggregates),
        pl.col(TOLD_TIMING).alias(TIMING), (pl.col(SPOKEN) - 1).alias(INDEX),
        pl.when(early).then(-1).otherwise(pl.col(SETTLED) - 1).cast(pl.Int64).alias(NONSPECULATIVE),
        (pl.col(SPOKEN) == 1).alias(FIRST), pl.lit(False).alias(LAST), pl.col(TOLD_TIME).alias(TIMESTAMP),
        pl.lit(True).alias(RETRACTION), pl.col(START).alias(OWNER_START), pl.col(END).alias(OWNER_END),
    )  # fmt: skip


def _settle(
    windows: pl.DataFrame, spoke: pl.DataFrame, kept: OpenWindows, keys: Sequence[str], ask: WindowedStep
) -> OpenWindows:
    """What firing leaves behind; windows at the end of their life are forgotten."""
    names = identity(keys)
    if keeps_told(ask):
        windows = _remember(windows, spoke, ask)
    items = dict(kept.items)
    if items:
        emptied = windows.filter(pl.col(_OVER) | _forgets(ask)).select(names)
        items = {name: each.join(emptied, on=names, how="anti", nulls_equal=True) for name, each in items.items()}
    if ask.evictor is not None and ELEMENTS in items:
        items[ELEMENTS] = _after(items[ELEMENTS], windows.filter(_FIRES), keys, ask)
    alive = collected(_unmarked(windows.lazy().filter(~pl.col(_OVER)).with_columns(**_settled(ask))), windows.height)
    return OpenWindows(alive, items, _still_owed(kept.owed, windows, keys))


@cache
def _settled(ask: WindowedStep) -> Mapping[str, pl.Expr]:
    """What firing makes of each column."""
    fires, emitted, forgets = pl.col(_FIRES), pl.col(_EMITTED), _forgets(ask)
    return {
        ADDED: pl.when(fires).then(0).otherwise(pl.col(ADDED)),
        HOLD: pl.when(~fires).then(pl.col(HOLD)),
        SPOKEN: pl.col(SPOKEN) + emitted.cast(pl.Int64),
        SETTLED: pl.col(SETTLED) + (emitted & (pl.col(TIMING) != Timing.EARLY.value)).cast(pl.Int64),
        CLOSED: _CLOSES,
        **{part.name: pl.when(forgets).then(part.nothing).otherwise(pl.col(part.name)) for part in parts_of(ask)},
    }


def _forgets(ask: WindowedStep) -> pl.Expr:
    """Whether a window's contents go with its pane."""
    return _CLOSES | pl.col(_FIRES) if ask.accumulation is Accumulation.DISCARDING else _CLOSES


def _after(elements: pl.DataFrame, fired: pl.DataFrame, keys: Sequence[str], ask: WindowedStep) -> pl.DataFrame:
    names = identity(keys)
    mine = elements.join(fired.select(names), on=names, how="semi", nulls_equal=True)
    others = elements.join(fired.select(names), on=names, how="anti", nulls_equal=True)
    return pl.concat([others, evictors.kept(ask.evictor, Moment.AFTER, mine, keys)], how="diagonal_relaxed")


def _remember(windows: pl.DataFrame, spoke: pl.DataFrame, ask: WindowedStep) -> pl.DataFrame:
    """The values just told, for those windows that told some: `spoke` has their rows, in the same order."""
    new = {TOLD + name: pl.col(_NOW + name) for name, _ in ask.aggregates}
    new |= {TOLD_TIMING: pl.col(TIMING), TOLD_TIME: pl.col(HOLD).fill_null(max_timestamp())}
    told = spoke.select(value.alias(name) for name, value in new.items())
    if told.height < windows.height:
        fresh = windows[_EMITTED]
        told = told[(fresh.cum_sum().cast(pl.Int64) - 1).clip(0)] if told.height else windows.select(told.columns)
        told = told.select(pl.when(fresh).then(pl.col(name)).otherwise(windows[name]).alias(name) for name in new)
    return windows.with_columns(told)


def _still_owed(owed: pl.DataFrame | None, windows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame | None:
    """What has been taken back, or can no longer be, is owed no more."""
    if owed is None:
        return None
    settled = windows.filter(pl.col(_EMITTED) | pl.col(_OVER))
    owners = settled.select(*keys, pl.col(START).alias(OWNER_START), pl.col(END).alias(OWNER_END))
    left = owed.join(owners, on=owners.columns, how="anti", nulls_equal=True)
    return left if left.height else None


def _moment(ask: WindowedStep, now: Instant) -> triggers.Moment:
    return triggers.Moment(
        new=pl.col(NEW),
        earliest=pl.col(EARLIEST),  # read only where the trigger goes by it, and then it is there
        end=max_timestamp(),
        watermark=now.after,
        clock=now.clock,
        holds=_holds,
        merging=isinstance(ask.window, Session),
    )


def _holds(condition: Expression) -> pl.Expr:
    return to_expr(condition.tree, _column)


def _column(name: Name) -> pl.Expr:
    if name.name == "since" and not name.scope:
        return pl.col(ADDED)
    return pl.col((TOLD if name.scope else _NOW) + name.name)


def _said(timing: Timing) -> pl.Expr:
    return pl.lit(timing.value)
