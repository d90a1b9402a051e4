"""Assign windows to elements: add a start and an end in milliseconds to whole blocks at once.

Bounds are clamped to the minimum and maximum timestamps instead of overflowing.
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
    """Return one row per element and window. A session window is still the element's own, before sessions merge."""
    match kind:
        case Tumbling(size, offset):
            inside = _window_starts(elements, size, offset)
            if inside is not None:
                return elements.with_columns(inside.alias(START), (inside + size.ms).alias(END))
            age = since_boundary(size, offset)
            return elements.with_columns(earlier(age).alias(START), later(pl.col(AT), size.ms - age).alias(END))
        case Sliding(size, every, offset):
            # Distance from the start of each window to the element. Counting distances avoids overflow of timestamps.
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
            # `admit` has read custom bounds. The key group assigns count windows by order of arrival.
            return elements
    assert_never(kind)


def _window_starts(elements: pl.DataFrame, size: Duration, offset: Duration) -> pl.Series | None:
    """Compute window starts with NumPy, which divides in a third of the time.

    Return None for few elements, nulls, or timestamps near the limits.
    """
    times = as_integers(elements[AT]) if is_worth_it(elements.height) else None
    if times is None or times.min() < NEVER + size.ms or times.max() > FOREVER - size.ms:
        return None
    shift = offset.ms % size.ms
    return pl.Series((times - shift) // size.ms * size.ms + shift)


def since_boundary(period: Duration, offset: Duration) -> pl.Expr:
    """Return the time from the last boundary of a period to the element."""
    age, shift = pl.col(AT) % period.ms, offset.ms % period.ms
    return (age - shift) % period.ms if shift else age


def earlier(age: pl.Expr) -> pl.Expr:
    """Subtract an age from the time of an element, clamped to the minimum timestamp."""
    return pl.when(pl.col(AT) < NEVER + age).then(NEVER).otherwise(pl.col(AT) - age)


def later(at: pl.Expr, ms: int | pl.Expr) -> pl.Expr:
    """Add a duration to a time, clamped to the maximum timestamp."""
    return pl.when(at > FOREVER - ms).then(FOREVER).otherwise(at + ms)


def max_timestamp(end: pl.Expr | None = None) -> pl.Expr:
    """Return the last instant of a window; the maximum timestamp for a window without an end."""
    return _max_timestamp() if end is None else _last_before(end)


@cache
def _max_timestamp() -> pl.Expr:
    return _last_before(pl.col(END))


def _last_before(end: pl.Expr) -> pl.Expr:
    return pl.when(end == FOREVER).then(FOREVER).otherwise(end - 1)


def expires(step: WindowedStep, end: pl.Expr | None = None) -> pl.Expr:
    """Return the time at which a window expires: its state is deleted once the watermark reaches it."""
    allowed = step.lateness.allowed
    return pl.lit(FOREVER) if allowed is None else later(max_timestamp(end), allowed.ms)


def expiry(step: WindowedStep, end: int) -> int:
    """Return the time at which one window expires."""
    allowed, last = step.lateness.allowed, end if end == FOREVER else end - 1
    return FOREVER if allowed is None else min(last + allowed.ms, FOREVER)


def has_one(kind: WindowKind) -> bool:
    """Tell whether an element has exactly one window."""
    return isinstance(kind, Tumbling | Session | Global | Custom)
