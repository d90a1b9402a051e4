"""Where state lives: the key group of a key, and the slice of a window within it.

Both are kept in checkpoints, so no release may ever change them.
"""

from collections.abc import Sequence
from typing import Final, assert_never

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import END, START
from strandline.kernel.blocks.hashing import hashed
from strandline.kernel.blocks.small_frames import only
from strandline.kernel.blocks.sorting import (
    Places,
    as_integers,
    indexes_in,
    is_constant,
    is_increasing,
    is_worth_it,
    sort_by,
)
from strandline.model.windows import Count, Cumulating, Custom, Global, Session, Sliding, Tumbling, WindowKind

KEY_SLICES: Final = 8
"""Slices of a key group whose windows are kept by key."""


def key_groups(keys: pl.DataFrame, groups: int) -> pl.Series:
    """For each row the key group of its key: the same for equal keys, on every machine and in every release."""
    return pl.Series("group", group_numbers(keys, groups))


def group_numbers(keys: pl.DataFrame, groups: int) -> Places:
    """The same, as plain numbers."""
    hashes = hashed(keys)
    # The same remainder, and a division is what takes longest here.
    halves = groups & (groups - 1) == 0
    found = hashes & np.uint64(groups - 1) if halves else hashes % np.uint64(groups)
    return found.view(np.int64)


def key_slices(keys: pl.DataFrame) -> pl.Series:
    """For each row the slice of its key within its group, where windows have no common bounds to be sliced by."""
    # The upper bits, so that keys of one group, whose lower bits agree, are still spread.
    return pl.Series("slice", ((hashed(keys) >> np.uint64(40)) % np.uint64(KEY_SLICES)).view(np.int64))


def ordered(frame: pl.DataFrame, by: Sequence[str], bounds: Sequence[str] = (START, END)) -> pl.DataFrame:
    """Rows in order. A bound that all of them share is left out.

    Column after column, from the last to the first: three sorts of one take a third of the time of one sort of three.
    """
    different = [name for name in by if name not in bounds or not is_constant(frame[name])]
    for name in reversed(different):
        frame = sort_by(frame, name)
    return frame


def among(rows: pl.DataFrame, wanted: pl.DataFrame) -> pl.Series:
    """Which rows have an equal among those that are wanted, by the columns of these."""
    mask = np.zeros(rows.height, np.bool_)
    places = _places_of(rows, wanted) if is_worth_it(rows.height) else None
    if places is None:
        names = wanted.columns
        found = rows.select(names).with_row_index("@at").join(wanted, on=names, how="semi", nulls_equal=True)["@at"]
        places = found.to_numpy()
    mask[places] = True
    return pl.Series(mask)


def _places_of(rows: pl.DataFrame, wanted: pl.DataFrame) -> Places | None:
    """Where they are, if all rows are of one window and their only key is a number that rises."""
    bounds = [name for name in wanted.columns if name in {START, END}]
    keys = [name for name in wanted.columns if name not in bounds]
    if len(keys) != 1 or not all(is_constant(rows[name]) for name in bounds):
        return None
    mine = as_integers(rows[keys[0]])
    for name in bounds:
        wanted = wanted.filter(wanted[name] == rows[name][0])
    theirs = as_integers(wanted[keys[0]])
    return indexes_in(mine, theirs) if mine is not None and theirs is not None and is_increasing(mine) else None


def slices_of(frame: pl.DataFrame, keys: Sequence[str], span: int | None) -> pl.Series:
    """For each row the slice of its window: by its start, in spans of event time, or by its key."""
    if span is None:
        return key_slices(only(frame, keys))
    return pl.Series("slice", frame[START].to_numpy() // span)


def span_of(kind: WindowKind) -> int | None:
    """How much event time a slice of state covers; None where windows are kept by key instead."""
    match kind:
        case Tumbling(size, _):
            return size.ms
        case Sliding(_, every, _):
            return every.ms
        case Cumulating(size, _, _):
            return size.ms
        case Session() | Global() | Custom() | Count():
            return None
    assert_never(kind)
