"""Sort, partition and fold rows by an integer column, faster than Polars does.

An integer and its row index are packed into one number. Sorting these numbers takes a fourth of the time of a Polars
arg sort. Many of the kernel's columns are constant, so only the other columns are reordered.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.blocks.small_frames import stacked

WORTH_IT: Final = 4_096
_BITS: Final = 64
_MAX_FILTERED_PARTS: Final = 8
"""Up to this many parts, one filter per part is faster than one partitioning."""

Fold = Literal["add", "least", "greatest"]
"""Operation that merges two numbers."""
_FOLDS: Final = {"add": np.add, "least": np.minimum, "greatest": np.maximum}

Places = npt.NDArray[np.int64]


def is_worth_it(rows: int) -> bool:
    """Tell whether there are enough rows for this module to be faster than a plain Polars operation."""
    return rows >= WORTH_IT


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """Sorted integers with their former row indexes. The sort is stable."""

    numbers: npt.NDArray[np.int64]
    places: Places


def order_of(numbers: npt.NDArray[np.int64]) -> Order:
    """Sort integers, stably."""
    if not len(numbers):
        return Order(numbers, np.zeros(0, np.int64))
    low, index_bits = int(numbers.min()), (len(numbers) - 1).bit_length()
    if (int(numbers.max()) - low).bit_length() + index_bits > _BITS:
        places = np.argsort(numbers, kind="stable")
        return Order(numbers[places], places)
    packed = (numbers - low).view(np.uint64)
    packed <<= np.uint64(index_bits)
    packed |= np.arange(len(numbers), dtype=np.uint64)
    packed.sort()
    ordered = (packed >> np.uint64(index_bits)).view(np.int64)
    ordered += low
    packed &= np.uint64((1 << index_bits) - 1)
    return Order(ordered, packed.view(np.int64))


def as_integers(column: pl.Series) -> npt.NDArray[np.int64] | None:
    """Return an integer or temporal column as 64-bit integers of the same order; None for other types or with nulls."""
    fits = column.dtype.is_integer() and column.dtype not in {pl.UInt64, pl.Int128, pl.UInt128}
    if not (fits or column.dtype.is_temporal()) or column.null_count():
        return None
    return column.to_physical().cast(pl.Int64).to_numpy()


def sort_by(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Sort rows by a column, stably."""
    numbers = as_integers(frame[name])
    if numbers is None:
        return frame.sort(name, maintain_order=True)
    if (numbers[1:] >= numbers[:-1]).all():
        return frame
    if is_worth_it(frame.height):
        return rows_at(frame, order_of(numbers).places)
    return frame[pl.Series(np.argsort(numbers, kind="stable").astype(np.uint32))]


def is_constant(column: pl.Series) -> bool:
    """Tell whether all values of a column are equal.

    False for floats, unless all are null: NaN equals nothing, and -0.0 equals 0.0 though their bits differ.
    """
    if not column.len() or column.null_count():
        return column.null_count() == column.len()
    comparable = column.dtype.is_integer() or column.dtype in {pl.Boolean, pl.String}
    return comparable and bool(column[0] == column[-1]) and bool((column == column[0]).all())


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """Columns of a frame, and a frame of those that are not constant."""

    all: Sequence[pl.Series]
    rest: pl.DataFrame

    def moved(self, rest: pl.DataFrame, height: int) -> pl.DataFrame:
        """Return all columns at this height: the varying ones from `rest`, the constant ones cut."""
        return pl.DataFrame([
            rest[each.name] if each.name in rest.columns else each.head(height) for each in self.all
        ])  # fmt: skip


def _columns(frame: pl.DataFrame) -> _Columns:
    # Get the columns once: Polars materializes a scalar column on every access.
    every = frame.get_columns()
    return _Columns(every, pl.DataFrame([each for each in every if not is_constant(each)]))


def rows_at(frame: pl.DataFrame, places: Places) -> pl.DataFrame:
    """Gather rows by index; at most as many as the frame has."""
    columns = _columns(frame)
    return columns.moved(columns.rest[places] if columns.rest.width else columns.rest, len(places))


def rows_where(frame: pl.DataFrame, wanted: pl.Series) -> pl.DataFrame:
    """Filter rows by a Boolean column."""
    columns = _columns(frame)
    return columns.moved(columns.rest.filter(wanted) if columns.rest.width else columns.rest, int(wanted.sum()))


def partition_by_number(frame: pl.DataFrame, numbers: Places, many: int) -> dict[int, pl.DataFrame]:
    """Partition rows by their numbers, all below `many`; each part keeps the order of rows."""
    by = pl.Series("@number", numbers)
    if many > _MAX_FILTERED_PARTS:
        found = frame.with_columns(by).partition_by("@number", as_dict=True, include_key=False, maintain_order=True)
        return {number: part for (number,), part in found.items()}
    columns = _columns(frame)
    sizes = [(number, size) for number, size in enumerate(np.bincount(numbers, minlength=many).tolist()) if size]
    return {number: columns.moved(columns.rest.filter(by == number), size) for number, size in sizes}


def fold_by_key(frame: pl.DataFrame, key: str, folds: Sequence[tuple[str, Fold]]) -> pl.DataFrame | None:
    """Fold integer columns to one row per key, in key order; None if a column is not 64-bit integers without nulls."""
    numbers = as_integers(frame[key])
    if numbers is None or any(frame[name].dtype != pl.Int64 or frame[name].null_count() for name, _ in folds):
        return None
    order = order_of(numbers)
    begins = np.flatnonzero(np.append(True, order.numbers[1:] != order.numbers[:-1]))
    many = np.diff(np.append(begins, len(numbers)))
    columns = [pl.Series(key, order.numbers[begins]).cast(frame[key].dtype)]
    for name, fold in folds:
        column = frame[name]
        if is_constant(column):
            found = many * int(column[0]) if fold == "add" else np.full(len(begins), int(column[0]))
        else:
            found = _FOLDS[fold].reduceat(column.to_numpy()[order.places], begins)
        columns.append(pl.Series(name, found))
    return pl.DataFrame(columns)


def indexes_in(rows: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> Places:
    """Return the indexes of `wanted` in strictly increasing `rows`; ignore numbers that are missing."""
    places = np.searchsorted(rows, wanted)
    inside = places < len(rows)
    places = places[inside]
    found: Places = places[rows[places] == wanted[inside]]
    return found


def is_increasing(numbers: npt.NDArray[np.int64]) -> bool:
    """Tell whether the numbers strictly increase."""
    return bool((numbers[1:] > numbers[:-1]).all())


def replaced_in_order(frame: pl.DataFrame, gone: pl.Series, others: pl.DataFrame, key: str) -> pl.DataFrame | None:
    """Drop the rows marked `gone` and insert others in key order; None if the frame's keys do not increase."""
    keys, other_keys = as_integers(frame[key]), as_integers(others[key])
    if keys is None or other_keys is None or not is_increasing(keys):
        return None
    order, kept = order_of(other_keys), np.flatnonzero(~gone.to_numpy())
    places = np.insert(kept, np.searchsorted(keys[kept], order.numbers), frame.height + order.places)
    return rows_at(stacked([frame, others.select(frame.columns)]), places)
