"""Select, replace and stack columns of small frames without Polars queries.

Planning a query over a few hundred rows takes longer than running it. A key group runs dozens of operations in a batch
of one second's events, so planning would take most of its time.
"""

from collections.abc import Collection, Sequence
from typing import Final

import polars as pl

_SMALL: Final = 4_096
_UNOPTIMIZED: Final = pl.QueryOptFlags.none()


def only(frame: pl.DataFrame, names: Sequence[str]) -> pl.DataFrame:
    """Select these columns, in this order."""
    if frame.columns == [*names]:
        return frame
    return frame[[*names]] if names else pl.DataFrame()  # indexing by an empty list would select rows


def without(frame: pl.DataFrame, names: Collection[str]) -> pl.DataFrame:
    """Drop these columns; ignore names that are missing."""
    return only(frame, [name for name in frame.columns if name not in names])


def replaced(frame: pl.DataFrame, columns: Sequence[pl.Series]) -> pl.DataFrame:
    """Replace the columns that have the names of these."""
    if not columns:
        return frame
    named = {column.name: column for column in columns}
    return pl.DataFrame([named.get(column.name, column) for column in frame])


def stacked(frames: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Concatenate the rows of frames; a column that a frame lacks becomes null."""
    if len(frames) == 1:
        return frames[0]
    first = frames[0].schema
    same_schema = all(each.schema == first for each in frames[1:])
    return pl.concat(frames, how="vertical" if same_schema else "diagonal_relaxed")


def collected(query: pl.LazyFrame, rows: int) -> pl.DataFrame:
    """Collect a query over this many rows; skip the optimizer if they are few."""
    return query.collect(optimizations=_UNOPTIMIZED) if rows < _SMALL else query.collect()
