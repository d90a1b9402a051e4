"""Fill count windows in order of arrival, independent of batch boundaries; they have no lateness and no trigger.

Per key the state is the number of elements seen, the number not yet emitted, and the newest elements that a later pane
may contain.
"""

from collections.abc import Sequence

import polars as pl

from strandline.kernel.aggregation.accumulators import ELEMENTS, combine, parts_of, with_values
from strandline.kernel.blocks.block import AT, END, OFFSET, PARTITION, START
from strandline.kernel.blocks.nan_safe_join import join_nan_safe
from strandline.kernel.state.slice_store import HOLD
from strandline.kernel.watermarks import FOREVER
from strandline.kernel.window.panes import FIRST, INDEX, LAST, NONSPECULATIVE, RETRACTION, TIMESTAMP, TIMING
from strandline.kernel.window.window_rows import OpenWindows
from strandline.model.panes import PaneTimestamp, Timing
from strandline.model.steps import WindowedStep
from strandline.model.windows import Count

SEEN, PENDING, ORDINAL = "@seen", "@untold", "@ordinal"
_NOW = "@now."


def fill_windows(
    state: OpenWindows, rows: pl.DataFrame | None, keys: Sequence[str], step: WindowedStep, kind: Count, watermark: int
) -> tuple[pl.DataFrame | None, OpenWindows]:
    """Emit a pane for each full window, and at the end of input one for the rest; return the new state."""
    every = kind.every or kind.size
    seen = None if state.windows is None else state.windows.select(*keys, SEEN, PENDING)
    numbered = _with_ordinals(state.items.get(ELEMENTS), seen, rows, keys)
    if numbered is None:
        return None, OpenWindows() if watermark == FOREVER else state
    totals = _count_by_key(seen, rows, keys, every)
    assigned = _elements_of_full_windows(numbered, totals, keys, kind)
    if watermark == FOREVER:
        assigned = pl.concat(
            [assigned, _elements_of_last_windows(numbered, totals, keys, kind)], how="diagonal_relaxed"
        )
    panes = _panes(assigned, keys, step) if assigned.height else None
    if watermark == FOREVER:
        return panes, OpenWindows()
    return panes, _state_after(numbered, totals, keys, kind)


def _with_ordinals(
    recent: pl.DataFrame | None, seen: pl.DataFrame | None, rows: pl.DataFrame | None, keys: Sequence[str]
) -> pl.DataFrame | None:
    """Number kept and new elements by their position among all elements of the key."""
    found = [] if recent is None else [recent]
    if rows is not None and rows.height:
        ordered = rows.sort(*keys, PARTITION, OFFSET)
        if seen is not None:
            ordered = join_nan_safe(ordered, seen.select(*keys, SEEN), keys)
        base = pl.col(SEEN).fill_null(0) if seen is not None else pl.lit(0)
        found.append(ordered.with_columns((base + pl.int_range(pl.len()).over(keys)).alias(ORDINAL)))
    return pl.concat(found, how="diagonal_relaxed") if found else None


def _count_by_key(
    seen: pl.DataFrame | None, rows: pl.DataFrame | None, keys: Sequence[str], every: int
) -> pl.DataFrame:
    """Count for each key the elements before the batch, the elements of the batch, and the elements not yet emitted."""
    frames = []
    if seen is not None:
        frames.append(seen.select(*keys, pl.col(SEEN).alias("@before"), pl.lit(0, pl.Int64).alias("@batch"), PENDING))
    if rows is not None and rows.height:
        arrived = rows.group_by(keys).agg(pl.len().cast(pl.Int64).alias("@batch"))
        frames.append(arrived.with_columns(pl.lit(0, pl.Int64).alias("@before"), pl.lit(0, pl.Int64).alias(PENDING)))
    both = pl.concat(frames, how="diagonal_relaxed").group_by(keys).agg(pl.col("@before", "@batch", PENDING).sum())
    now = pl.col("@before") + pl.col("@batch")
    fired = now // every > pl.col("@before") // every
    pending = pl.when(fired).then(now % every).otherwise(pl.col(PENDING) + pl.col("@batch"))
    return both.with_columns(now.alias(SEEN), pending.alias(PENDING))


def _elements_of_full_windows(
    numbered: pl.DataFrame, totals: pl.DataFrame, keys: Sequence[str], kind: Count
) -> pl.DataFrame:
    """Assign elements to the windows that become full in this batch."""
    every = kind.every or kind.size
    first = (pl.col(ORDINAL) // every + 1) * every
    known = join_nan_safe(numbered.drop(SEEN, strict=False), totals, keys)
    ends = known.with_columns(pl.int_ranges(first, pl.col(ORDINAL) + kind.size + 1, every).alias(END)).explode(END)
    filled = ends.filter((pl.col(END) > pl.col("@before")) & (pl.col(END) <= pl.col(SEEN)))
    return filled.with_columns((pl.col(END) - kind.size).clip(0).alias(START))


def _elements_of_last_windows(
    numbered: pl.DataFrame, totals: pl.DataFrame, keys: Sequence[str], kind: Count
) -> pl.DataFrame:
    """Assign elements to the windows that are not full at the end of input."""
    known = join_nan_safe(numbered.drop(SEEN, strict=False), totals, keys)
    if kind.every:
        start, end = (pl.col(SEEN) - kind.size).clip(0), pl.col(SEEN)
    else:
        start = (pl.col(SEEN) - 1) // kind.size * kind.size
        end = start + kind.size
    left = known.with_columns(start.alias(START), end.alias(END))
    return left.filter((pl.col(PENDING) > 0) & (pl.col(ORDINAL) >= pl.col(START)))


def _panes(assigned: pl.DataFrame, keys: Sequence[str], step: WindowedStep) -> pl.DataFrame:
    combined = combine(assigned, keys, step)
    times = assigned.group_by(*keys, START, END).agg(
        (pl.col(AT).min() if step.pane_timestamp is PaneTimestamp.EARLIEST else pl.col(AT).max()).alias(TIMESTAMP)
    )
    empties = [pl.col(part.name).fill_null(part.nothing) for part in parts_of(step) if part.empty is not None]
    valued = with_values(combined.rows.with_columns(empties), combined.items, keys, step, _NOW)
    timed = valued.join(times, on=[*keys, START, END], nulls_equal=True)
    return timed.select(
        *keys, START, END, *(pl.col(_NOW + name).alias(name) for name, _ in step.aggregates),
        pl.lit(Timing.ON_TIME.value).alias(TIMING), pl.lit(0, pl.Int64).alias(INDEX),
        pl.lit(0, pl.Int64).alias(NONSPECULATIVE), pl.lit(True).alias(FIRST), pl.lit(True).alias(LAST), TIMESTAMP,
        pl.lit(False).alias(RETRACTION),
    ).sort(*keys, START, END)  # fmt: skip


def _state_after(numbered: pl.DataFrame, totals: pl.DataFrame, keys: Sequence[str], kind: Count) -> OpenWindows:
    """Keep the elements that a later pane may contain, and the counts of each key."""
    known = join_nan_safe(numbered.drop(SEEN, strict=False), totals.select(*keys, SEEN), keys)
    oldest = pl.col(SEEN) - kind.size if kind.every else pl.col(SEEN) // kind.size * kind.size
    recent = known.filter(pl.col(ORDINAL) >= oldest).drop(SEEN)
    no_bounds = (pl.lit(0, pl.Int64).alias(START), pl.lit(0, pl.Int64).alias(END))
    windows = totals.select(*keys, *no_bounds, SEEN, PENDING, pl.lit(None, pl.Int64).alias(HOLD))
    return OpenWindows(windows, {ELEMENTS: recent.with_columns(no_bounds)})
