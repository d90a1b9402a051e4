"""Rows in order of a column of integers, or apart by one: numbers are sorted, and of rows only what differs is moved.

An integer and the place where it stands fit into one number, and numbers alone sort in a fourth of the time that Polars
takes to sort places by them. Of the kernel's own columns many say the same in every row, and stay as they are.
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
_FEW: Final = 8
"""So many parts are filtered out one by one in less time than all at once."""

Fold = Literal["add", "least", "greatest"]
"""What becomes of two numbers that are put together."""
_FOLDS: Final = {"add": np.add, "least": np.minimum, "greatest": np.maximum}

Places = npt.NDArray[np.int64]


def is_worth_it(rows: int) -> bool:
    """Whether there are so many that this saves time; of fewer, Polars is asked in fewer words."""
    return rows >= WORTH_IT


@dataclass(frozen=True, slots=True, eq=False)
class Order:
    """Integers in order, and where each of them stood; equal ones as they stood."""

    numbers: npt.NDArray[np.int64]
    places: Places


def order_of(numbers: npt.NDArray[np.int64]) -> Order:
    """These integers in order."""
    if not len(numbers):
        return Order(numbers, np.zeros(0, np.int64))
    low, room = int(numbers.min()), (len(numbers) - 1).bit_length()
    if (int(numbers.max()) - low).bit_length() + room > _BITS:
        places = np.argsort(numbers, kind="stable")
        return Order(numbers[places], places)
    both = (numbers - low).view(np.uint64)
    both <<= np.uint64(room)
    both |= np.arange(len(numbers), dtype=np.uint64)
    both.sort()
    ordered = (both >> np.uint64(room)).view(np.int64)
    ordered += low
    both &= np.uint64((1 << room) - 1)
    return Order(ordered, both.view(np.int64))


def plain(column: pl.Series) -> npt.NDArray[np.int64] | None:
    """Integers or times as numbers that stand in the same order; None if it is no such column, or some are missing."""
    whole = column.dtype.is_integer() and column.dtype not in {pl.UInt64, pl.Int128, pl.UInt128}
    if not (whole or column.dtype.is_temporal()) or column.null_count():
        return None
    return column.to_physical().cast(pl.Int64).to_numpy()


def sort_by(frame: pl.DataFrame, name: str) -> pl.DataFrame:
    """Rows in order of a column, equal ones as they stood."""
    numbers = plain(frame[name])
    if numbers is None:
        return frame.sort(name, maintain_order=True)
    if (numbers[1:] >= numbers[:-1]).all():
        return frame
    if is_worth_it(frame.height):
        return rows_at(frame, order_of(numbers).places)
    return frame[pl.Series(np.argsort(numbers, kind="stable").astype(np.uint32))]


def is_one(column: pl.Series) -> bool:
    """Whether it says one thing. Numbers with a point are not asked: one that is none equals nothing, and two zeros
    look alike."""
    if not column.len() or column.null_count():
        return column.null_count() == column.len()
    asked = column.dtype.is_integer() or column.dtype in {pl.Boolean, pl.String}
    return asked and bool(column[0] == column[-1]) and bool((column == column[0]).all())


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """The columns of a frame, and those among them that differ from row to row."""

    all: Sequence[pl.Series]
    rest: pl.DataFrame

    def moved(self, rest: pl.DataFrame, height: int) -> pl.DataFrame:
        """So many rows of them all: what the same rows hold elsewhere, and of the others any."""
        return pl.DataFrame([
            rest[each.name] if each.name in rest.columns else each.head(height) for each in self.all
        ])  # fmt: skip


def _columns(frame: pl.DataFrame) -> _Columns:
    # Asked for once: a column that was said to hold one value is made whole whenever it is asked for.
    every = frame.get_columns()
    return _Columns(every, pl.DataFrame([each for each in every if not is_one(each)]))


def rows_at(frame: pl.DataFrame, places: Places) -> pl.DataFrame:
    """The rows at some places, as many as there are or fewer."""
    columns = _columns(frame)
    return columns.moved(columns.rest[places] if columns.rest.width else columns.rest, len(places))


def rows_where(frame: pl.DataFrame, wanted: pl.Series) -> pl.DataFrame:
    """The rows that are wanted."""
    columns = _columns(frame)
    return columns.moved(columns.rest.filter(wanted) if columns.rest.width else columns.rest, int(wanted.sum()))


def apart(frame: pl.DataFrame, numbers: Places, many: int) -> dict[int, pl.DataFrame]:
    """Rows by their numbers, which are below so many, in the order in which they stand."""
    by = pl.Series("@number", numbers)
    if many > _FEW:
        found = frame.with_columns(by).partition_by("@number", as_dict=True, include_key=False, maintain_order=True)
        return {number: part for (number,), part in found.items()}
    columns = _columns(frame)
    there = [(number, size) for number, size in enumerate(np.bincount(numbers, minlength=many).tolist()) if size]
    return {number: columns.moved(columns.rest.filter(by == number), size) for number, size in there}


def put_together(frame: pl.DataFrame, key: str, folds: Sequence[tuple[str, Fold]]) -> pl.DataFrame | None:
    """A row for each key, in order, and in it these columns of integers folded; None if they are no such columns."""
    numbers = plain(frame[key])
    if numbers is None or any(frame[name].dtype != pl.Int64 or frame[name].null_count() for name, _ in folds):
        return None
    order = order_of(numbers)
    begins = np.flatnonzero(np.append(True, order.numbers[1:] != order.numbers[:-1]))
    many = np.diff(np.append(begins, len(numbers)))
    columns = [pl.Series(key, order.numbers[begins]).cast(frame[key].dtype)]
    for name, fold in folds:
        column = frame[name]
        if is_one(column):
            found = many * int(column[0]) if fold == "add" else np.full(len(begins), int(column[0]))
        else:
            found = _FOLDS[fold].reduceat(column.to_numpy()[order.places], begins)
        columns.append(pl.Series(name, found))
    return pl.DataFrame(columns)


def place_in(rows: npt.NDArray[np.int64], wanted: npt.NDArray[np.int64]) -> Places:
    """Where those that are wanted stand among rows that rise, as far as they are there."""
    places = np.searchsorted(rows, wanted)
    there = places < len(rows)
    places = places[there]
    found: Places = places[rows[places] == wanted[there]]
    return found


def rises(numbers: npt.NDArray[np.int64]) -> bool:
    """Whether each is larger than the one before it."""
    return bool((numbers[1:] > numbers[:-1]).all())


def replaced_in_order(frame: pl.DataFrame, gone: pl.Series, others: pl.DataFrame, key: str) -> pl.DataFrame | None:
    """The rows of a frame but those that are gone, and others, in order; None if the frame's own keys do not rise."""
    mine, theirs = plain(frame[key]), plain(others[key])
    if mine is None or theirs is None or not rises(mine):
        return None
    order, left = order_of(theirs), np.flatnonzero(~gone.to_numpy())
    places = np.insert(left, np.searchsorted(mine[left], order.numbers), frame.height + order.places)
    return rows_at(stacked([frame, others.select(frame.columns)]), places)
