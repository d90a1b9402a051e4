"""Elements that hardly ever share a window are not combined: each is a row by itself, as if it had been.

To find out which of them share one costs more than the few rows that there would be less. Whoever adds them to what is
kept must put rows together in any case, as other tasks send some for the same windows.
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
_ROW: Final = 8_000
"""So many elements in a row are looked at first."""
_SHARE: Final = 32
"""Of one key out of so many, all elements are counted."""
_APART: Final = 0.6
"""How many of the elements must have a window to themselves, or be the first in theirs."""


def alone(
    placed: pl.DataFrame, keys: Sequence[str], ask: WindowedStep, only: pl.Series | None = None
) -> Combined | None:
    """A row for each element beside each of its windows; None where to combine them is better, or must be."""
    made = _made(placed, ask)
    if made is None or not _seldom_meet(placed, keys):
        return None
    rows = placed.select(*identity(keys), **made)
    return Combined(rows if only is None else rows.filter(only), {}, repeats=True)


def _made(placed: pl.DataFrame, ask: WindowedStep) -> dict[str, pl.Expr] | None:
    """The columns of such a row; None if not all of them can be told of one element."""
    one = pl.lit(1, pl.Int64)
    made = {NEW: one, COUNTED: pl.col(NEWEST).cast(pl.Int64) if NEWEST in placed.columns else one}
    for part in plain_parts(ask):
        if part.alone is None or (part.sums is not None and not _sums_by_row(placed[part.sums])):
            return None
        made[part.name] = part.alone
    if picks_of(ask) or items_of(ask):
        return None
    if needs_earliest(ask):
        made[EARLIEST] = pl.col(AT)
    if ask.pane_timestamp is not PaneTimestamp.END_OF_WINDOW:
        made[TIME] = pl.col(AT)
    return made


def _sums_by_row(values: pl.Series) -> bool:
    """A sum over decimals has more digits than each of them, and one that may leave its range is marked."""
    return (values.dtype.is_integer() or values.dtype.is_float()) and not at_risk(values)


def _seldom_meet(placed: pl.DataFrame, keys: Sequence[str]) -> bool:
    """Whether elements of one window are mostly of different keys, by a look at some of them.

    A few that came together tell of keys that come all the time, and of how many keys there are, if they come in any
    order. Where they take turns, all elements of a few keys tell it.
    """
    if placed.height < _WORTH_IT or _in_any_order(placed, keys) < _APART:
        return False
    some = placed.lazy().select(identity(keys)).filter(_mixed(keys) % _SHARE == 0).collect()
    return some.n_unique() >= _APART * some.height


def _in_any_order(placed: pl.DataFrame, keys: Sequence[str]) -> float:
    """How many of the elements of a window are of different keys, if those few that came together are like all."""
    middle = placed.height // 2
    start = placed[START][middle]
    row = placed.select(*keys, START).slice(middle - _ROW // 2, _ROW).filter(pl.col(START) == start)
    there, different = row.height, row.select(keys).n_unique()
    # Drawn at random, half the square of how many were drawn, over how many keys there are, come once more.
    drawn_from = there * there / (2 * max(there - different, 1))
    each = int((placed[START] == start).sum()) / drawn_from
    return (1 - exp(-each)) / each


def _mixed(keys: Sequence[str]) -> pl.Expr:
    """A number for each key, quickly: to hash all columns as one would take five times as long."""
    return reduce(xor, (pl.col(name).hash(seed) for seed, name in enumerate(keys)))
