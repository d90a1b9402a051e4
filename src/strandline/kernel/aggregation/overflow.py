"""Detect overflow of integer sums: an overflowed sum is stored as LIMIT and emitted as null.

One check per frame, by its greatest value and its height, tells whether a sum could overflow. Only then is the sum
computed in 128 bits.
"""

from typing import Any, Final

import polars as pl

LIMIT: Final = 1 << 62
"""Sums from this magnitude on have overflowed. In state, this value marks an overflowed sum of either sign."""


def at_risk(values: pl.Series) -> bool:
    """Tell whether a sum over any of these values could reach LIMIT."""
    if not values.dtype.is_integer() or values.is_empty():
        return False
    least: Any = values.min()
    most: Any = values.max()
    return least is not None and max(-least, most) * len(values) >= LIMIT


def total(values: pl.Expr) -> pl.Expr:
    """Sum in 128 bits; LIMIT if the sum, or one of its summands, has overflowed."""
    wide = values.cast(pl.Int128)
    over = ((wide >= LIMIT) | (wide <= -LIMIT)).any()
    summed = wide.sum()
    beyond = over | (summed >= LIMIT) | (summed <= -LIMIT)
    return pl.when(beyond).then(pl.lit(LIMIT, pl.Int128)).otherwise(summed).cast(pl.Int64)


def value_or_null(kept: str) -> pl.Expr:
    """Return a stored sum, or null where it has overflowed. Float sums become infinite instead."""
    return pl.when(pl.col(kept) != LIMIT).then(pl.col(kept))
