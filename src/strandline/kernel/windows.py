"""Window columns: an element's windows, as a start and an end in milliseconds, for whole blocks at once.

Bounds stay inside time: where a sum would pass an end of time it stops there.
"""

from typing import assert_never

import polars as pl

from strandline.kernel.blocks import AT, END, GAP, NEWEST, START
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.model.elements import Duration
from strandline.model.steps import WindowedStep
from strandline.model.windows import (
    Count,
    Cumulating,
    Custom,
    GapColumn,
    Global,
    Session,
    Sliding,
    Tumbling,
    WindowKind,
)


def assign(elements: pl.DataFrame, kind: WindowKind) -> pl.DataFrame:
    """The elements with a row for each of their windows. A session's window is the element's own, before any meet."""
    match kind:
        case Tumbling(size, offset):
            start = boundary(size, offset)
            return elements.with_columns(start.clip(NEVER).alias(START), later(start, size.ms).alias(END))
        case Sliding(size, every, offset):
            starts = pl.int_ranges(boundary(every, offset), pl.col(AT) - size.ms, -every.ms)
            placed = elements.with_columns(starts.alias(START)).explode(START)
            newest = pl.col(START) == boundary(every, offset)
            return placed.with_columns(later(pl.col(START), size.ms).alias(END), newest.alias(NEWEST))
        case Cumulating(size, step, offset):
            start = boundary(size, offset)
            ends = pl.int_ranges(boundary(step, offset) + step.ms, start + size.ms + 1, step.ms)
            placed = elements.with_columns(start.alias(START), ends.alias(END)).explode(END)
            return placed.with_columns((pl.col(END) == start + size.ms).alias(NEWEST))
        case Session(gap):
            length = pl.col(GAP) if isinstance(gap, GapColumn) else pl.lit(gap.ms)
            return elements.with_columns(pl.col(AT).alias(START), _reach(pl.col(AT), length).alias(END))
        case Global():
            return elements.with_columns(pl.lit(NEVER).alias(START), pl.lit(FOREVER).alias(END))
        case Custom() | Count():
            # Custom bounds were read with the element; count windows are found by arrival, in the key group.
            return elements
    assert_never(kind)


def boundary(period: Duration, offset: Duration) -> pl.Expr:
    """The last boundary of a period at or before an element."""
    return pl.col(AT) - (pl.col(AT) - offset.ms % period.ms) % period.ms


def later(at: pl.Expr, ms: int) -> pl.Expr:
    """A time moved on, at most to the end of time."""
    return pl.when(at > FOREVER - ms).then(FOREVER).otherwise(at + ms)


def _reach(at: pl.Expr, length: pl.Expr) -> pl.Expr:
    return pl.when(at > pl.lit(FOREVER) - length).then(FOREVER).otherwise(at + length)


def max_timestamp() -> pl.Expr:
    """The last instant of a window; that of a window without an end is the end of time itself."""
    return pl.when(pl.col(END) == FOREVER).then(FOREVER).otherwise(pl.col(END) - 1)


def expires(ask: WindowedStep) -> pl.Expr:
    """The gc time: once the watermark is here, the window is gone."""
    allowed = ask.lateness.allowed
    return pl.lit(FOREVER) if allowed is None else later(max_timestamp(), allowed.ms)


def span_of(kind: WindowKind) -> int | None:
    """How much event time a slice of state covers; None where windows are kept by key instead."""
    match kind:
        case Tumbling(size, _):
            return size.ms
        case Sliding(_, every, _):
            return every.ms
        case Cumulating(size, _, _):
            return size.ms
        case Session() | Global() | Custom() | Count():
            return None
    assert_never(kind)
