"""State as releases before this one kept it, made into what this one keeps.

The first or last element of a window, or the one with the most of something, was an item beside its row; it is now in
the row (`picking`).
"""

from typing import Final

import polars as pl

from strandline.kernel.aggregates import BY, POSITION, VALUE
from strandline.kernel.contents import Frames, picks_of
from strandline.kernel.picking import Pick
from strandline.model.steps import WindowedStep

_OF_ITEMS: Final = (VALUE, BY, *POSITION)


def in_rows(rows: pl.DataFrame, items: Frames, ask: WindowedStep) -> tuple[pl.DataFrame, Frames]:
    """Rows of windows or strips with the elements that they keep one of, and the items that are still items."""
    left = dict(items)
    for pick in picks_of(ask):
        old = left.pop(pick.name, None)
        if pick.kept not in rows.columns:
            rows = _with_nobody(rows, pick) if old is None else _with_one(rows, old, pick)
    return rows, left


def _with_one(rows: pl.DataFrame, items: pl.DataFrame, pick: Pick) -> pl.DataFrame:
    names = dict(zip(pick.columns, (VALUE, *([BY] if pick.by else []), *POSITION), strict=True))
    window = [name for name in items.columns if name not in _OF_ITEMS]
    found = items.select(*window, *(pl.col(old).alias(new) for new, old in names.items()))
    return rows.join(found, on=window, how="left", nulls_equal=True, maintain_order="left")


def _with_nobody(rows: pl.DataFrame, pick: Pick) -> pl.DataFrame:
    return rows.with_columns(pl.lit(None).alias(name) for name in pick.columns)
