"""Window columns: an element's windows, as a start and an end in milliseconds, for whole blocks at once.

Bounds stay inside time: where a sum would pass an end of time it stops there.
"""

from functools import cache
from typing import assert_never

import polars as pl

from strandline.kernel.blocks.block import AT, END, GAP, NEWEST, START
from strandline.kernel.blocks.sorting import as_integers, is_worth_it
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
            inside = _starts(elements, size, offset)
            if inside is not None:
                return elements.with_columns(inside.alias(START), (inside + size.ms).alias(END))
            age = since_boundary(size, offset)
            return elements.with_columns(earlier(age).alias(START), later(pl.col(AT), size.ms - age).alias(END))
        case Sliding(size, every, offset):
            # How far an element lies behind the start of each of its windows: counted so, no sum passes an end of time.
            newest = since_boundary(every, offset)
            ages = pl.int_ranges(newest, size.ms, every.ms)
            placed = elements.with_columns(ages.alias("@age")).explode("@age")
            age = pl.col("@age")
            bounds = earlier(age).alias(START), later(pl.col(AT), size.ms - age).alias(END)
            return placed.with_columns(*bounds, (age == newest).alias(NEWEST)).drop("@age")
        case Cumulating(size, step, offset):
            age = since_boundary(size, offset)
            lefts = pl.int_ranges(step.ms - since_boundary(step, offset), size.ms - age + 1, step.ms)
            placed = elements.with_columns(lefts.alias("@left")).explode("@left")
            left = pl.col("@left")
            bounds = earlier(age).alias(START), later(pl.col(AT), left).alias(END)
            return placed.with_columns(*bounds, (left == size.ms - age).alias(NEWEST)).drop("@left")
        case Session(gap):
            length = pl.col(GAP) if isinstance(gap, GapColumn) else pl.lit(gap.ms)
            return elements.with_columns(pl.col(AT).alias(START), later(pl.col(AT), length).alias(END))
        case Global():
            return elements.with_columns(pl.lit(NEVER).alias(START), pl.lit(FOREVER).alias(END))
        case Custom() | Count():
            # Custom bounds were read with the element; count windows are found by arrival, in the key group.
            return elements
    assert_never(kind)


def _starts(elements: pl.DataFrame, size: Duration, offset: Duration) -> pl.Series | None:
    """Where the windows of many elements start, none near an end of time: NumPy divides in a third of the time."""
    times = as_integers(elements[AT]) if is_worth_it(elements.height) else None
    if times is None or times.min() < NEVER + size.ms or times.max() > FOREVER - size.ms:
        return None
    shift = offset.ms % size.ms
    return pl.Series((times - shift) // size.ms * size.ms + shift)


def since_boundary(period: Duration, offset: Duration) -> pl.Expr:
    """How long ago an element's last boundary of a period was."""
    age, shift = pl.col(AT) % period.ms, offset.ms % period.ms
    return (age - shift) % period.ms if shift else age


def earlier(age: pl.Expr) -> pl.Expr:
    """A time so long before an element, at most at the beginning of time."""
    return pl.when(pl.col(AT) < NEVER + age).then(NEVER).otherwise(pl.col(AT) - age)


def later(at: pl.Expr, ms: int | pl.Expr) -> pl.Expr:
    """A time moved on, at most to the end of time."""
    return pl.when(at > FOREVER - ms).then(FOREVER).otherwise(at + ms)


def max_timestamp(end: pl.Expr | None = None) -> pl.Expr:
    """The last instant of a window; that of a window without an end is the end of time itself."""
    return _max_timestamp() if end is None else _last_before(end)


@cache
def _max_timestamp() -> pl.Expr:
    return _last_before(pl.col(END))


def _last_before(end: pl.Expr) -> pl.Expr:
    return pl.when(end == FOREVER).then(FOREVER).otherwise(end - 1)


def expires(ask: WindowedStep, end: pl.Expr | None = None) -> pl.Expr:
    """The gc time: once the watermark is here, the window is gone."""
    allowed = ask.lateness.allowed
    return pl.lit(FOREVER) if allowed is None else later(max_timestamp(end), allowed.ms)


def expiry(ask: WindowedStep, end: int) -> int:
    """The gc time of one window."""
    allowed, last = ask.lateness.allowed, end if end == FOREVER else end - 1
    return FOREVER if allowed is None else min(last + allowed.ms, FOREVER)


def has_one(kind: WindowKind) -> bool:
    """Whether an element has one window, and no more."""
    return isinstance(kind, Tumbling | Session | Global | Custom)
