"""Migrate window state that older releases wrote.

Form 1 kept picked elements (first, last, maximum by) and distinct values as items beside the row of a window. Since
form 2 they are columns of the row.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from strandline.kernel.aggregation.accumulators import picks_of, sets_of
from strandline.kernel.aggregation.aggregates import BY, POSITION, VALUE
from strandline.kernel.aggregation.first_last import Pick
from strandline.kernel.blocks.block import Frames
from strandline.model.steps import WindowedStep

_OF_ITEMS: Final = (VALUE, BY, *POSITION)


_MOVED: Final = 2
"""First form that keeps them as columns of the row."""


def is_older(form: int, step: WindowedStep) -> bool:
    """Tell whether state of this form must be migrated for a step."""
    return form < _MOVED and bool(picks_of(step) or sets_of(step))


def in_rows(rows: pl.DataFrame, items: Frames, step: WindowedStep) -> tuple[pl.DataFrame, Frames]:
    """Move picked elements and distinct values from items into rows; return rows and the other items."""
    left = dict(items)
    for pick in picks_of(step):
        old = left.pop(pick.name, None)
        if pick.kept not in rows.columns:
            rows = _joined(rows, None if old is None else _one(old, pick), [*pick.columns])
    for name in sets_of(step):
        old = left.pop(name, None)
        if f"@{name}" not in rows.columns:
            found = _joined(rows, None if old is None else _values(old, f"@{name}"), [f"@{name}"])
            rows = found.with_columns(pl.col(f"@{name}").fill_null(pl.lit([])))
    return rows, left


def _one(items: pl.DataFrame, pick: Pick) -> pl.DataFrame:
    names = dict(zip(pick.columns, (VALUE, *([BY] if pick.by else []), *POSITION), strict=True))
    return items.select(*_window(items), *(pl.col(old).alias(new) for new, old in names.items()))


def _values(items: pl.DataFrame, kept: str) -> pl.DataFrame:
    return items.group_by(_window(items), maintain_order=True).agg(pl.col(VALUE).alias(kept))


def _window(items: pl.DataFrame) -> list[str]:
    """Return the columns that identify the window of an item."""
    return [name for name in items.columns if name not in _OF_ITEMS]


def _joined(rows: pl.DataFrame, found: pl.DataFrame | None, columns: Sequence[str]) -> pl.DataFrame:
    if found is None:
        return rows.with_columns(pl.lit(None).alias(name) for name in columns)
    window = [name for name in found.columns if name not in columns]
    return rows.join(found, on=window, how="left", nulls_equal=True, maintain_order="left")
