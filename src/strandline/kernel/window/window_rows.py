"""Define the columns of open windows, and add the elements of a batch to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Final

import polars as pl

from strandline.kernel.aggregation.accumulators import (
    Combined,
    carries_in,
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
"""Clock of the last batch with an element."""
PANE_COUNT: Final = "@spoken"
"""Panes emitted."""
NON_EARLY_COUNT: Final = "@settled"
"""Panes emitted that were not early."""
CLOSED: Final = "@closed"
"""Whether the trigger has finished: the row only marks the window as closed."""
LAST_VALUE: Final = "@told."
"""Prefix of the last emitted values, kept for retractions and conditions."""
LAST_TIMING: Final = "@told:timing"
LAST_TIME: Final = "@told:time"
_AT: Final = "@at"
_FEW_TOUCHED: Final = 4
"""If fewer than one in this many windows get elements, only these windows are merged."""


@dataclass(frozen=True, slots=True)
class OpenWindows:
    """Open windows, their items, and the pending retractions of merged sessions."""

    windows: pl.DataFrame | None = None
    items: Frames = field(default_factory=dict)
    pending: pl.DataFrame | None = None
    fresh: pl.DataFrame | None = None
    """Windows with a start that no earlier window has: they are in slices of their own, so they need no copy."""


@cache
def initial(step: WindowedStep) -> Mapping[str, pl.Expr]:
    """Return the columns of a new window besides its key, bounds and contents."""
    return {
        ADDED: pl.lit(0, pl.Int64),
        HOLD: pl.lit(None, pl.Int64),
        ARRIVED: pl.lit(0, pl.Int64),
        PANE_COUNT: pl.lit(0, pl.Int64),
        NON_EARLY_COUNT: pl.lit(0, pl.Int64),
        CLOSED: pl.lit(False),
        **triggers.columns(step.trigger),
    }


def keeps_last_values(step: WindowedStep) -> bool:
    """Tell whether windows keep their last emitted values: for retractions, or for a condition that reads them."""
    return step.accumulation is Accumulation.RETRACTING or triggers.reads_last(step.trigger)


def add(state: OpenWindows, added: Combined | None, keys: Sequence[str], step: WindowedStep) -> OpenWindows:
    """Add the elements of a batch to open windows; NEW counts the new elements of each."""
    windows = state.windows
    if added is None:
        return (
            state
            if windows is None
            else OpenWindows(windows.with_columns(**_no_new_elements(step)), state.items, state.pending)
        )
    fresh = None
    if windows is None:
        rows = merge_rows([added.rows], keys, step) if added.repeats else added.rows
        merged = rows.with_columns(**initial(step))
    else:
        merged, fresh = _merge(windows, added.rows, keys, step)
    items = {}
    for name, kind in items_of(step).items():
        found = [frame for frame in (state.items.get(name), added.items.get(name)) if frame is not None]
        if found:
            items[name] = together(found, keys, kind)
    return OpenWindows(merged, items, state.pending, fresh)


@cache
def _no_new_elements(step: WindowedStep) -> Mapping[str, pl.Expr]:
    columns = {NEW: pl.lit(0, pl.Int64), COUNTED: pl.lit(0, pl.Int64)}
    if needs_earliest(step):
        columns[EARLIEST] = pl.lit(None, pl.Int64)
    if step.pane_timestamp is not PaneTimestamp.END_OF_WINDOW:
        columns[TIME] = pl.lit(None, pl.Int64)
    return columns


def _merge(
    windows: pl.DataFrame, rows: pl.DataFrame, keys: Sequence[str], step: WindowedStep
) -> tuple[pl.DataFrame, pl.DataFrame | None]:
    """Merge new rows into windows; return separately the windows whose start no open window has.

    Only windows that get elements are merged.
    """
    found, fresh = [], None
    if span_of(step.window) is not None:
        known = _starts_known(rows[START], windows[START])
        if not known.all():
            fresh = merge_rows([rows_where(rows, ~known)], keys, step).with_columns(**initial(step))
            rows = rows.filter(known)
    if rows.height * _FEW_TOUCHED < windows.height or not rows.height:
        touched = among(windows, rows.select(identity(keys)).unique())
        if rows.height and (whole := _merge_in_order(windows, touched, rows, keys, step)) is not None:
            return whole, fresh
        found.append(windows.filter(~touched).with_columns(**_no_new_elements(step)))
        windows = windows.filter(touched)
    if rows.height:
        found.append(_merge_touched(windows, rows, keys, step))
    return found[0] if len(found) == 1 else pl.concat(found, how="diagonal_relaxed"), fresh


def _starts_known(starts: pl.Series, before: pl.Series) -> pl.Series:
    """Mark the starts that an open window already has."""
    return starts == before[0] if before.len() and is_constant(before) else starts.is_in(before.unique().implode())


def _merge_in_order(
    windows: pl.DataFrame, touched: pl.Series, rows: pl.DataFrame, keys: Sequence[str], step: WindowedStep
) -> pl.DataFrame | None:
    """Merge rows into sorted windows with one start, so that nothing is sorted later; else return None."""
    if not is_worth_it(windows.height) or len(keys) != 1 or not is_constant(windows[START]):
        return None
    merged = _merge_touched(windows.filter(touched), rows, keys, step)
    if carries_in(step, windows) or carries_in(step, merged):
        return None  # their columns differ
    return replaced_in_order(windows.with_columns(**_no_new_elements(step)), touched, merged, keys[0])


def _merge_touched(windows: pl.DataFrame, rows: pl.DataFrame, keys: Sequence[str], step: WindowedStep) -> pl.DataFrame:
    """Merge new rows with their windows, and gather the other columns of each window by its row number.

    Aggregating every other column with `first` would cost three times as much.
    """
    joined = {*identity(keys), NEW, COUNTED, EARLIEST, TIME, *(part.name for part in parts_of(step))}
    joined |= {*carries_in(step, windows)}
    state = [name for name in windows.columns if name not in joined]
    mergeable = without(windows, state).with_columns(**_no_new_elements(step)).with_row_index(_AT)
    both = pl.concat([mergeable, rows], how="diagonal_relaxed")
    ranks = ranked(both, picks_of(step))
    merged = ranks.fetched(grouped(ranks.frame, keys, step, [*merges(step, both), *ranks.made, pl.col(_AT).max()]))
    places = merged[_AT]
    if not places.null_count():
        return without(merged, (_AT,)).hstack(only(windows, state)[places])
    found, opened = windows.select(pl.col(state).gather(places)), places.is_null()
    new = {name: value for name, value in initial(step).items() if name in state}
    found = found.with_columns(pl.when(opened).then(value).otherwise(name).alias(name) for name, value in new.items())
    return without(merged, (_AT,)).hstack(found)
