"""Skip pre-aggregation when (key, window) pairs rarely repeat: emit one partial row per element.

Grouping would then cost more than the few rows it saves. The operator merges partial rows in any case, because several
tasks send rows for the same window.
"""

from collections.abc import Sequence
from functools import reduce
from math import exp
from operator import xor
from typing import Final

import polars as pl

from strandline.kernel.aggregation.accumulators import (
    Combined,
    identity,
    items_of,
    needs_earliest,
    picks_of,
    plain_parts,
)
from strandline.kernel.aggregation.overflow import at_risk
from strandline.kernel.blocks.block import AT, COUNTED, EARLIEST, NEW, NEWEST, START, TIME
from strandline.model.panes import PaneTimestamp
from strandline.model.steps import WindowedStep

_WORTH_IT: Final = 10_000
_SAMPLED_RUN: Final = 8_000
"""Number of consecutive elements in the first sample."""
_KEY_SAMPLING: Final = 32
"""The second sample has all elements of one key in this many."""
_MIN_DISTINCT: Final = 0.6
"""Minimum share of distinct (key, window) pairs among elements for which pre-aggregation is skipped."""


def one_row_per_element(
    placed: pl.DataFrame, keys: Sequence[str], step: WindowedStep, only: pl.Series | None = None
) -> Combined | None:
    """Make one partial row per (element, window); None where pre-aggregation is cheaper or required.

    `only` selects the rows to return.
    """
    made = _row_columns(placed, step)
    if made is None or not _rarely_repeats(placed, keys):
        return None
    rows = placed.select(*identity(keys), **made)
    return Combined(rows if only is None else rows.filter(only), {}, repeats=True)


def _row_columns(placed: pl.DataFrame, step: WindowedStep) -> dict[str, pl.Expr] | None:
    """Return the columns of a partial row; None if an accumulator cannot be computed from a single element."""
    one = pl.lit(1, pl.Int64)
    made = {NEW: one, COUNTED: pl.col(NEWEST).cast(pl.Int64) if NEWEST in placed.columns else one}
    for part in plain_parts(step):
        if part.per_row is None or (part.sums is not None and not _can_sum_by_row(placed[part.sums])):
            return None
        made[part.name] = part.per_row
    if picks_of(step) or items_of(step):
        return None
    if needs_earliest(step):
        made[EARLIEST] = pl.col(AT)
    if step.pane_timestamp is not PaneTimestamp.END_OF_WINDOW:
        made[TIME] = pl.col(AT)
    return made


def _can_sum_by_row(values: pl.Series) -> bool:
    """Tell whether a value is its own partial sum: not for decimals, whose sums have more digits, nor near overflow."""
    return (values.dtype.is_integer() or values.dtype.is_float()) and not at_risk(values)


def _rarely_repeats(placed: pl.DataFrame, keys: Sequence[str]) -> bool:
    """Tell whether (key, window) pairs rarely repeat, by two samples.

    A run of consecutive elements shows hot keys, and estimates the number of keys if their order is random. If keys
    alternate in a regular order, all elements of a sample of keys show how often these repeat.
    """
    if placed.height < _WORTH_IT or _distinct_share(placed, keys) < _MIN_DISTINCT:
        return False
    sample = placed.lazy().select(identity(keys)).filter(_key_hash(keys) % _KEY_SAMPLING == 0).collect()
    return sample.n_unique() >= _MIN_DISTINCT * sample.height


def _distinct_share(placed: pl.DataFrame, keys: Sequence[str]) -> float:
    """Estimate the share of distinct keys in one window, assuming that a run of elements is a random sample."""
    middle = placed.height // 2
    start = placed[START][middle]
    run = placed.select(*keys, START).slice(middle - _SAMPLED_RUN // 2, _SAMPLED_RUN).filter(pl.col(START) == start)
    size, distinct = run.height, run.select(keys).n_unique()
    # Birthday problem: a random sample of n elements over k keys has about n * n / (2 * k) repeats.
    key_count = size * size / (2 * max(size - distinct, 1))
    elements_per_key = int((placed[START] == start).sum()) / key_count
    return (1 - exp(-elements_per_key)) / elements_per_key


def _key_hash(keys: Sequence[str]) -> pl.Expr:
    """Hash each key column by column; hashing all columns as one struct would take five times as long."""
    return reduce(xor, (pl.col(name).hash(seed) for seed, name in enumerate(keys)))
