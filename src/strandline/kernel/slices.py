"""Where state lives: the key group of a key, and the slice of a window within it.

Both are kept in checkpoints, so no release may ever change them.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from strandline.kernel.blocks import END, START
from strandline.kernel.hashes import hashed
from strandline.kernel.small import only

KEY_SLICES: Final = 8
"""Slices of a key group whose windows are kept by key."""


def key_groups(keys: pl.DataFrame, groups: int) -> pl.Series:
    """For each row the key group of its key: the same for equal keys, on every machine and in every release."""
    return pl.Series("group", (hashed(keys) % np.uint64(groups)).view(np.int64))


def key_slices(keys: pl.DataFrame) -> pl.Series:
    """For each row the slice of its key within its group, where windows have no common bounds to be sliced by."""
    # The upper bits, so that keys of one group, whose lower bits agree, are still spread.
    return pl.Series("slice", ((hashed(keys) >> np.uint64(40)) % np.uint64(KEY_SLICES)).view(np.int64))


def ordered(frame: pl.DataFrame, by: Sequence[str], bounds: Sequence[str] = (START, END)) -> pl.DataFrame:
    """Rows in order. A bound that all of them share is left out.

    Column after column, from the last to the first: three sorts of one take a third of the time of one sort of three.
    """
    different = [name for name in by if name not in bounds or not _is_one(frame[name])]
    for name in reversed(different):
        frame = frame.sort(name, maintain_order=True)
    return frame


def among(rows: pl.DataFrame, wanted: pl.DataFrame) -> pl.Series:
    """Which rows have an equal among those that are wanted, by the columns of these."""
    names = wanted.columns
    found = rows.select(names).with_row_index("@at").join(wanted, on=names, how="semi", nulls_equal=True)["@at"]
    mask = np.zeros(rows.height, np.bool_)
    mask[found.to_numpy()] = True
    return pl.Series(mask)


def _is_one(values: pl.Series) -> bool:
    return values.len() > 0 and values.min() == values.max() and not values.null_count()


def slices_of(frame: pl.DataFrame, keys: Sequence[str], span: int | None) -> pl.Series:
    """For each row the slice of its window: by its start, in spans of event time, or by its key."""
    if span is None:
        return key_slices(only(frame, keys))
    return (frame[START] // span).alias("slice")
