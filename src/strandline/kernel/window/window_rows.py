"""Rows of open windows: the columns they are kept in, and how elements of a batch are added to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import polars as pl

from strandline.kernel.aggregation.accumulators import (
    Combined,
    grouped,
    identity,
    items_of,
    merge_rows,
    merges,
    needs_earliest,
    parts_of,
    picks_of,
    together,
)
from strandline.kernel.aggregation.first_last import ranked
from strandline.kernel.blocks.block import COUNTED, EARLIEST, NEW, START, TIME, Frames
from strandline.kernel.blocks.small_frames import only, without
from strandline.kernel.blocks.sorting import is_constant, is_worth_it, replaced_in_order, rows_where
from strandline.kernel.state.partitioning import among, span_of
from strandline.kernel.state.slice_store import HOLD
from strandline.kernel.window import triggers
from strandline.model.panes import Accumulation, PaneTimestamp
from strandline.model.steps import WindowedStep

ADDED: Final = "@added"
"""Elements since the last firing."""
ARRIVED: Final = "@arrived"
"""The clock at which the last element came."""
SPOKEN: Final = "@spoken"
"""Panes emitted."""
SETTLED: Final = "@settled"
"""Panes emitted that were not early."""
CLOSED: Final = "@closed"
"""Whether the trigger has finished: only the mark is left."""
TOLD: Final = "@told."
"""Before a value's name: the value last emitted, kept where it may have to be retracted."""
TOLD_TIMING: Final = "@told:timing"
TOLD_TIME: Final = "@told:time"
_AT: Final = "@at"
_SELDOM: Final = 4
"""Where fewer than one in so many windows get an element, the others are left alone."""


@dataclass(frozen=True, slots=True)
class OpenWindows:
    """Open windows, their items, and the panes of merged sessions that are still to be retracted."""

    windows: pl.DataFrame | None = None
    items: Frames = field(default_factory=dict)
    owed: pl.DataFrame | None = None
    fresh: pl.DataFrame | None = None
    """Windows that begin where no window did before this batch: in slices of their own, so they need not be copied."""


@cache
def initial(ask: WindowedStep) -> Mapping[str, pl.Expr]:
    """The columns of a window that has just been opened, besides its key, its bounds and its contents."""
    return {
        ADDED: pl.lit(0, pl.Int64),
        HOLD: pl.lit(None, pl.Int64),
        ARRIVED: pl.lit(0, pl.Int64),
        SPOKEN: pl.lit(0, pl.Int64),
        SETTLED: pl.lit(0, pl.Int64),
        CLOSED: pl.lit(False),
        **triggers.columns(ask.trigger),
    }


def keeps_told(ask: WindowedStep) -> bool:
    """Whether the values last told are kept: to be taken back, or because a condition reads them."""
    return ask.accumulation is Accumulation.RETRACTING or triggers.reads_last(ask.trigger)


def add(kept: OpenWindows, added: Combined | None, keys: Sequence[str], ask: WindowedStep) -> OpenWindows:
    """The open windows with a batch's elements added; NEW says how many came to each."""
    windows = kept.windows
    if added is None:
        return (
            kept if windows is None else OpenWindows(windows.with_columns(**_nothing_new(ask)), kept.items, kept.owed)
        )
    fresh = None
    if windows is None:
        rows = merge_rows([added.rows], keys, ask) if added.repeats else added.rows
        merged = rows.with_columns(**initial(ask))
    else:
        merged, fresh = _merge(windows, added.rows, keys, ask)
    held = {}
    for name, kind in items_of(ask).items():
        found = [frame for frame in (kept.items.get(name), added.items.get(name)) if frame is not None]
        if found:
            held[name] = together(found, keys, kind)
    return OpenWindows(merged, held, kept.owed, fresh)


@cache
def _nothing_new(ask: WindowedStep) -> Mapping[str, pl.Expr]:
    nothing = {NEW: pl.lit(0, pl.Int64), COUNTED: pl.lit(0, pl.Int64)}
    if needs_earliest(ask):
        nothing[EARLIEST] = pl.lit(None, pl.Int64)
    if ask.pane_timestamp is not PaneTimestamp.END_OF_WINDOW:
        nothing[TIME] = pl.lit(None, pl.Int64)
    return nothing


def _merge(
    windows: pl.DataFrame, rows: pl.DataFrame, keys: Sequence[str], ask: WindowedStep
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Windows and what is added to them, and windows that begin when none of these does.

    Only windows that something comes to are put together with it.
    """
    found, fresh = [], None
    if span_of(ask.window) is not None:
        known = _begun(rows[START], windows[START])
        if not known.all():
            fresh = merge_rows([rows_where(rows, ~known)], keys, ask).with_columns(**initial(ask))
            rows = rows.filter(known)
    if rows.height * _SELDOM < windows.height or not rows.height:
        touched = among(windows, rows.select(identity(keys)).unique())
        if rows.height and (whole := _met_in_order(windows, touched, rows, keys, ask)) is not None:
            return whole, fresh
        found.append(windows.filter(~touched).with_columns(**_nothing_new(ask)))
        windows = windows.filter(touched)
    if rows.height:
        found.append(_met(windows, rows, keys, ask))
    return found[0] if len(found) == 1 else pl.concat(found, how="diagonal_relaxed"), fresh


def _begun(starts: pl.Series, before: pl.Series) -> pl.Series:
    """Which of the windows that start there start with one that is there already."""
    return starts == before[0] if before.len() and is_constant(before) else starts.is_in(before.unique().implode())


def _met_in_order(
    windows: pl.DataFrame, touched: pl.Series, rows: pl.DataFrame, keys: Sequence[str], ask: WindowedStep
) -> pl.DataFrame | None:
    """All of them, in order, where windows that begin together stand so already: then nothing need be sorted later."""
    if not is_worth_it(windows.height) or len(keys) != 1 or not is_constant(windows[START]):
        return None
    met = _met(windows.filter(touched), rows, keys, ask)
    return replaced_in_order(windows.with_columns(**_nothing_new(ask)), touched, met, keys[0])


def _met(windows: pl.DataFrame, rows: pl.DataFrame, keys: Sequence[str], ask: WindowedStep) -> pl.DataFrame:
    """Windows with what comes to them; one column says where what was kept of a window stands.

    To take the first of every kept column would cost three times as much.
    """
    joined = {*identity(keys), NEW, COUNTED, EARLIEST, TIME, *(part.name for part in parts_of(ask))}
    kept = [name for name in windows.columns if name not in joined]
    mine = without(windows, kept).with_columns(**_nothing_new(ask)).with_row_index(_AT)
    both = pl.concat([mine, rows], how="diagonal_relaxed")
    ranks = ranked(both, picks_of(ask))
    met = ranks.fetched(grouped(ranks.frame, keys, ask, [*merges(ask, both), *ranks.made, pl.col(_AT).max()]))
    places = met[_AT]
    if not places.null_count():
        return without(met, (_AT,)).hstack(only(windows, kept)[places])
    found, opened = windows.select(pl.col(kept).gather(places)), places.is_null()
    new = {name: value for name, value in initial(ask).items() if name in kept}
    found = found.with_columns(pl.when(opened).then(value).otherwise(name).alias(name) for name, value in new.items())
    return without(met, (_AT,)).hstack(found)
