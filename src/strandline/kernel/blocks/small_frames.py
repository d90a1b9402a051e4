"""Frames of a few hundred rows: a query over one takes longer to be made than to be run, so few are made.

In a batch of a second's events a key group makes dozens of them, and what they take by themselves is most of its time.
"""

from collections.abc import Collection, Sequence
from typing import Final

import polars as pl

_SMALL: Final = 4_096
_AS_IT_IS: Final = pl.QueryOptFlags.none()


def only(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """These columns, in this order."""
    if frame.columns == [*names]:
        return frame
    return frame[[*names]] if names else pl.DataFrame()  # an empty list would be one of rows


def without(frame: pl.DataFrame, names: Collection[str]) -> pl.DataFrame:
    """All columns but these, as far as they are there."""
    return only(frame, [name for name in frame.columns if name not in names])


def replaced(frame: pl.DataFrame, columns: Sequence[pl.Series]) -> pl.DataFrame:
    """With these columns in place of those of their names."""
    if not columns:
        return frame
    named = {column.name: column for column in columns}
    return pl.DataFrame([named.get(column.name, column) for column in frame])


def stacked(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Rows of several frames; where one lacks a column, null."""
    if len(frames) == 1:
        return frames[0]
    first = frames[0].schema
    alike = all(each.schema == first for each in frames[1:])
    return pl.concat(frames, how="vertical" if alike else "diagonal_relaxed")


def collected(asked: pl.LazyFrame, rows: int) -> pl.DataFrame:
    """What is asked of so many rows; of a few, in the words in which it was asked."""
    return asked.collect(optimizations=_AS_IT_IS) if rows < _SMALL else asked.collect()
