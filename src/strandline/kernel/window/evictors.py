"""Evict elements from all windows that fire in a batch."""

from collections.abc import Sequence
from typing import assert_never

import polars as pl

from strandline.kernel.aggregation.accumulators import TURN, identity
from strandline.kernel.blocks.block import AT, OFFSET, PARTITION
from strandline.kernel.expressions import to_expr
from strandline.model.evictors import Evictor, KeepDelta, KeepLast, KeepWithin, Moment
from strandline.model.expressions import Name

_ARRIVAL = (TURN, PARTITION, OFFSET)


def evict(evictor: Evictor | None, moment: Moment, elements: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Apply the evictor if this is its moment (before or after firing); return the elements that stay."""
    if evictor is None or evictor.moment is not moment:
        return elements
    windows = identity(keys)
    match evictor:
        case KeepLast(n):
            ordered = elements.sort(*windows, *_ARRIVAL)
            return ordered.filter(pl.int_range(pl.len()).reverse().over(windows) < n)
        case KeepWithin(length):
            return elements.filter(pl.col(AT) > pl.col(AT).max().over(windows) - length.ms)
        case KeepDelta(distance, bound):
            far = to_expr(distance.tree, lambda name: _column(name, windows)) >= bound
            return elements.filter(~far.fill_null(False))
    assert_never(evictor)


def _column(name: Name, windows: Sequence[str]) -> pl.Expr:
    column = pl.col(name.name)
    return column.sort_by(*_ARRIVAL).last().over(windows) if name.scope else column
