"""Count windows: exact by arrival, whatever the batches. They know no lateness and take no trigger.

A key keeps how many elements have come, how many are untold, and the newest elements that a pane may still hold.
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

SEEN, UNTOLD, ORDINAL = "@seen", "@untold", "@ordinal"
_NOW = "@now."


def count(
    kept: OpenWindows, rows: pl.DataFrame | None, keys: Sequence[str], ask: WindowedStep, kind: Count, watermark: int
) -> tuple[pl.DataFrame | None, OpenWindows]:
    """A pane for each window that fills, and at the end of input one for the rest; and what each key keeps."""
    every = kind.every or kind.size
    seen = None if kept.windows is None else kept.windows.select(*keys, SEEN, UNTOLD)
    numbered = _numbered(kept.items.get(ELEMENTS), seen, rows, keys)
    if numbered is None:
        return None, OpenWindows() if watermark == FOREVER else kept
    totals = _totals(seen, rows, keys, every)
    placed = _placed(numbered, totals, keys, kind)
    if watermark == FOREVER:
        placed = pl.concat([placed, _rest(numbered, totals, keys, kind)], how="diagonal_relaxed")
    panes = _panes(placed, keys, ask) if placed.height else None
    if watermark == FOREVER:
        return panes, OpenWindows()
    return panes, _left(numbered, totals, keys, kind)


def _numbered(
    recent: pl.DataFrame | None, seen: pl.DataFrame | None, rows: pl.DataFrame | None, keys: Sequence[str]
) -> pl.DataFrame | None:
    """Every element that is still at hand, with its ordinal among those of its key."""
    found = [] if recent is None else [recent]
    if rows is not None and rows.height:
        ordered = rows.sort(*keys, PARTITION, OFFSET)
        if seen is not None:
            ordered = join_nan_safe(ordered, seen.select(*keys, SEEN), keys)
        base = pl.col(SEEN).fill_null(0) if seen is not None else pl.lit(0)
        found.append(ordered.with_columns((base + pl.int_range(pl.len()).over(keys)).alias(ORDINAL)))
    return pl.concat(found, how="diagonal_relaxed") if found else None


def _totals(seen: pl.DataFrame | None, rows: pl.DataFrame | None, keys: Sequence[str], every: int) -> pl.DataFrame:
    """For each key how many had come before the batch, how many have come now, and how many of them are untold."""
    frames = []
    if seen is not None:
        frames.append(seen.select(*keys, pl.col(SEEN).alias("@before"), pl.lit(0, pl.Int64).alias("@came"), UNTOLD))
    if rows is not None and rows.height:
        came = rows.group_by(keys).agg(pl.len().cast(pl.Int64).alias("@came"))
        frames.append(came.with_columns(pl.lit(0, pl.Int64).alias("@before"), pl.lit(0, pl.Int64).alias(UNTOLD)))
    both = pl.concat(frames, how="diagonal_relaxed").group_by(keys).agg(pl.col("@before", "@came", UNTOLD).sum())
    now = pl.col("@before") + pl.col("@came")
    told = now // every > pl.col("@before") // every
    untold = pl.when(told).then(now % every).otherwise(pl.col(UNTOLD) + pl.col("@came"))
    return both.with_columns(now.alias(SEEN), untold.alias(UNTOLD))


def _placed(numbered: pl.DataFrame, totals: pl.DataFrame, keys: Sequence[str], kind: Count) -> pl.DataFrame:
    """Elements beside each window that fills in this batch and holds them."""
    every = kind.every or kind.size
    first = (pl.col(ORDINAL) // every + 1) * every
    known = join_nan_safe(numbered.drop(SEEN, strict=False), totals, keys)
    ends = known.with_columns(pl.int_ranges(first, pl.col(ORDINAL) + kind.size + 1, every).alias(END)).explode(END)
    filled = ends.filter((pl.col(END) > pl.col("@before")) & (pl.col(END) <= pl.col(SEEN)))
    return filled.with_columns((pl.col(END) - kind.size).clip(0).alias(START))


def _rest(numbered: pl.DataFrame, totals: pl.DataFrame, keys: Sequence[str], kind: Count) -> pl.DataFrame:
    """Elements of the windows that the end of input leaves unfilled."""
    known = join_nan_safe(numbered.drop(SEEN, strict=False), totals, keys)
    if kind.every:
        start, end = (pl.col(SEEN) - kind.size).clip(0), pl.col(SEEN)
    else:
        start = (pl.col(SEEN) - 1) // kind.size * kind.size
        end = start + kind.size
    left = known.with_columns(start.alias(START), end.alias(END))
    return left.filter((pl.col(UNTOLD) > 0) & (pl.col(ORDINAL) >= pl.col(START)))


def _panes(placed: pl.DataFrame, keys: Sequence[str], ask: WindowedStep) -> pl.DataFrame:
    combined = combine(placed, keys, ask)
    times = placed.group_by(*keys, START, END).agg(
        (pl.col(AT).min() if ask.pane_timestamp is PaneTimestamp.EARLIEST else pl.col(AT).max()).alias(TIMESTAMP)
    )
    empties = [pl.col(part.name).fill_null(part.nothing) for part in parts_of(ask) if part.empty is not None]
    told = with_values(combined.rows.with_columns(empties), combined.items, keys, ask, _NOW)
    timed = told.join(times, on=[*keys, START, END], nulls_equal=True)
    return timed.select(
        *keys, START, END, *(pl.col(_NOW + name).alias(name) for name, _ in ask.aggregates),
        pl.lit(Timing.ON_TIME.value).alias(TIMING), pl.lit(0, pl.Int64).alias(INDEX),
        pl.lit(0, pl.Int64).alias(NONSPECULATIVE), pl.lit(True).alias(FIRST), pl.lit(True).alias(LAST), TIMESTAMP,
        pl.lit(False).alias(RETRACTION),
    ).sort(*keys, START, END)  # fmt: skip


def _left(numbered: pl.DataFrame, totals: pl.DataFrame, keys: Sequence[str], kind: Count) -> OpenWindows:
    """The elements that a pane may still hold, and the count of each key."""
    known = join_nan_safe(numbered.drop(SEEN, strict=False), totals.select(*keys, SEEN), keys)
    oldest = pl.col(SEEN) - kind.size if kind.every else pl.col(SEEN) // kind.size * kind.size
    recent = known.filter(pl.col(ORDINAL) >= oldest).drop(SEEN)
    nowhere = (pl.lit(0, pl.Int64).alias(START), pl.lit(0, pl.Int64).alias(END))
    windows = totals.select(*keys, *nowhere, SEEN, UNTOLD, pl.lit(None, pl.Int64).alias(HOLD))
    return OpenWindows(windows, {ELEMENTS: recent.with_columns(nowhere)})
