"""Sums of integers stay inside their range: one that would leave it is marked, and told as null.

Whether a sum can leave it at all is asked once for a whole frame, by its greatest value and its height; only then is it
computed in twice the width.
"""

from typing import Any, Final

import polars as pl

LIMIT: Final = 1 << 62
"""From here on a sum is no longer told. As a kept value it is the mark of such a sum, whichever side it left by."""


def at_risk(values: pl.Series) -> bool:
    """Whether any sum over some of these could reach the limit."""
    if not values.dtype.is_integer() or values.is_empty():
        return False
    least: Any = values.min()
    most: Any = values.max()
    return least is not None and max(-least, most) * len(values) >= LIMIT


def total(values: pl.Expr) -> pl.Expr:
    """A sum in twice the width, or the mark."""
    wide = values.cast(pl.Int128)
    over = ((wide >= LIMIT) | (wide <= -LIMIT)).any()
    summed = wide.sum()
    beyond = over | (summed >= LIMIT) | (summed <= -LIMIT)
    return pl.when(beyond).then(pl.lit(LIMIT, pl.Int128)).otherwise(summed).cast(pl.Int64)


def told(kept: str) -> pl.Expr:
    """A kept sum as it is told: null where it has left its range; fractions have their own way to do so."""
    return pl.when(pl.col(kept) != LIMIT).then(pl.col(kept))
