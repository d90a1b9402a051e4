"""Assign keys to key groups, and windows to slices of a key group.

Checkpoints depend on both assignments, so no release may change them.
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
"""Number of slices of a key group where slices are assigned by key."""


def key_groups(keys: pl.DataFrame, groups: int) -> pl.Series:
    """Return the key group of each row: the same for equal keys, on every machine and in every release."""
    return pl.Series("group", group_numbers(keys, groups))


def group_numbers(keys: pl.DataFrame, groups: int) -> Places:
    """Return the key group of each row as a NumPy array."""
    hashes = hashed(keys)
    # A bit mask gives the same remainder; the division would take most of the time.
    halves = groups & (groups - 1) == 0
    found = hashes & np.uint64(groups - 1) if halves else hashes % np.uint64(groups)
    return found.view(np.int64)


def key_slices(keys: pl.DataFrame) -> pl.Series:
    """Return the slice of each row by its key, for windows without common bounds."""
    # Use the upper bits: the lower bits of all keys of one group agree.
    return pl.Series("slice", ((hashed(keys) >> np.uint64(40)) % np.uint64(KEY_SLICES)).view(np.int64))


def ordered(frame: pl.DataFrame, by: Sequence[str], bounds: Sequence[str] = (START, END)) -> pl.DataFrame:
    """Sort rows; skip a bound that is equal in all rows.

    Sort by one column at a time, from the last to the first: three such sorts take a third of the time of one sort by
    three columns.
    """
    different = [name for name in by if name not in bounds or not is_constant(frame[name])]
    for name in reversed(different):
        frame = sort_by(frame, name)
    return frame


def among(rows: pl.DataFrame, wanted: pl.DataFrame) -> pl.Series:
    """Mark the rows that equal a wanted row in the columns of `wanted` (semi-join as a mask)."""
    mask = np.zeros(rows.height, np.bool_)
    places = _places_in_order(rows, wanted) if is_worth_it(rows.height) else None
    if places is None:
        names = wanted.columns
        found = rows.select(names).with_row_index("@at").join(wanted, on=names, how="semi", nulls_equal=True)["@at"]
        places = found.to_numpy()
    mask[places] = True
    return pl.Series(mask)


def _places_in_order(rows: pl.DataFrame, wanted: pl.DataFrame) -> Places | None:
    """Return the positions of wanted rows by binary search; None unless one window and one increasing numeric key."""
    bounds = [name for name in wanted.columns if name in {START, END}]
    keys = [name for name in wanted.columns if name not in bounds]
    if len(keys) != 1 or not all(is_constant(rows[name]) for name in bounds):
        return None
    numbers = as_integers(rows[keys[0]])
    for name in bounds:
        wanted = wanted.filter(wanted[name] == rows[name][0])
    wanted_numbers = as_integers(wanted[keys[0]])
    return (
        indexes_in(numbers, wanted_numbers)
        if numbers is not None and wanted_numbers is not None and is_increasing(numbers)
        else None
    )


def slices_of(frame: pl.DataFrame, keys: Sequence[str], span: int | None) -> pl.Series:
    """Return the slice of each row: by window start in spans of event time, or by key."""
    if span is None:
        return key_slices(only(frame, keys))
    return pl.Series("slice", frame[START].to_numpy() // span)


def span_of(kind: WindowKind) -> int | None:
    """Return the event time that a slice covers; None where slices are assigned by key."""
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
