"""Aggregates as columns: what is kept of a window's elements, how parts merge, and the value told in a pane."""

from dataclasses import dataclass

import polars as pl

from strandline.errors import Unsupported
from strandline.model.aggregates import Aggregate, Count, Max, Mean, Min, Sum


@dataclass(frozen=True, slots=True)
class Part:
    """One kept column: made from elements by `partial`, joined by `merge`, `empty` when nothing was added."""

    name: str
    partial: pl.Expr
    merge: pl.Expr
    empty: float | None


@dataclass(frozen=True, slots=True)
class Columns:
    """An aggregate in columns: the parts it keeps and the value it tells."""

    parts: tuple[Part, ...]
    value: pl.Expr


def columns_of(name: str, aggregate: Aggregate) -> Columns:
    """An aggregate's columns; each kept column is called after the value it serves."""
    kept = f"@{name}"
    match aggregate:
        case Count(None):
            return _single(kept, pl.len().cast(pl.Int64), pl.col(kept).sum(), 0)
        case Count(column):
            return _single(kept, pl.col(str(column)).count().cast(pl.Int64), pl.col(kept).sum(), 0)
        case Sum(column):
            # A column of narrow integers would be summed in its own width, and wrap.
            wide = pl.col(column) + pl.lit(0, pl.Int64)
            return _single(kept, wide.sum(), pl.col(kept).sum(), 0)
        case Min(column):
            return _single(kept, pl.col(column).min(), pl.col(kept).min(), None)
        case Max(column):
            # NaN is the greatest number; a plain max would pass over it.
            return _single(kept, pl.col(column).nan_max(), pl.col(kept).nan_max(), None)
        case Mean(column):
            total, many = f"{kept}.sum", f"{kept}.count"
            parts = (
                Part(total, pl.col(column).cast(pl.Float64).sum(), pl.col(total).sum(), 0.0),
                Part(many, pl.col(column).count().cast(pl.Int64), pl.col(many).sum(), 0),
            )
            return Columns(parts, pl.when(pl.col(many) > 0).then(pl.col(total) / pl.col(many)))
    raise Unsupported(
        f"the kernel does not compute {type(aggregate).__name__} yet", hint="use count, sum, min, max or mean"
    )


def _single(kept: str, partial: pl.Expr, merge: pl.Expr, empty: float | None) -> Columns:
    return Columns((Part(kept, partial, merge, empty),), pl.col(kept))
