"""From strips to windows: the contents of many overlapping windows at once, in a few steps for each.

Windows that all reach over one instant are seen from there. To its left each holds the strips from its start on, to its
right those up to its end: so with a running total to either side, in a matrix of keys by strips, a window is two cells
put together. Nothing is ever subtracted, so that it holds for least and greatest and for fractions too. What cannot be
put together number by number is grouped, window by window, after its strips have been put together as far as possible.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.aggregation.accumulators import (
    Combined,
    items_of,
    merges,
    needs_earliest,
    picks_of,
    plain_parts,
    together,
    wide_sums,
)
from strandline.kernel.aggregation.aggregates import Items, Part
from strandline.kernel.aggregation.first_last import ranked
from strandline.kernel.blocks.block import COUNTED, EARLIEST, END, NEW, START, Frames
from strandline.kernel.blocks.sorting import Fold
from strandline.model.steps import WindowedStep

Spans = Sequence[tuple[int, int]]
Matrix = npt.NDArray[Any]

_CODE, _PLACE, _CELL, _WINDOW = "@code", "@place", "@cell", "@window"
_CELLS: Final = 1 << 22
"""Cells of a matrix that are held at a time."""


def combine_into_windows(
    shared: pl.DataFrame, items: Frames, windows: Spans, keys: Sequence[str], step: WindowedStep
) -> Combined:
    """What these windows hold, in order of keys and windows; those that hold nothing are left out."""
    groups = [*_overlapping_groups(windows)]
    placed = [_combine_by_place(shared, group, keys, step) for group in groups]
    key_rows = pl.concat([each.select(keys) for each in placed]).unique().sort(keys)
    codes = key_rows.with_row_index(_CODE).with_columns(pl.col(_CODE).cast(pl.Int64))
    coded = [each.join(codes, on=list(keys), how="left", nulls_equal=True) for each in placed]
    pieces = [_rows_of_group(each, key_rows.height, group, step) for each, group in zip(coded, groups, strict=True)]
    rows = pl.concat(pieces)
    if len(pieces) > 1:
        rows = rows.sort(_CODE, START, END)
    rows = pl.concat([key_rows[rows[_CODE]], rows.drop(_CODE)], how="horizontal")
    held = {name: _items(items[name], windows, keys, kind) for name, kind in items_of(step).items() if name in items}
    return Combined(rows, held)


def _overlapping_groups(windows: Spans) -> Iterator[Spans]:
    """Windows, in order, in groups that all reach over (or touch) the first end among them."""
    group: list[tuple[int, int]] = []
    for window in windows:
        if group and window[0] > group[0][1]:
            yield group
            group = []
        group.append(window)
    if group:
        yield group


def _combine_by_place(shared: pl.DataFrame, windows: Spans, keys: Sequence[str], step: WindowedStep) -> pl.DataFrame:
    """Strips put together where the same of these windows hold them: each key has twice as many places as windows.

    A strip at place i of the left half belongs to the windows up to i; of the right half, to those from i on: at its
    first place to all.
    """
    (starts, ends), many, at = _bounds(windows), len(windows), shared[START].to_numpy()
    is_left = at < starts[-1]
    left, right = np.searchsorted(starts, at, "right") - 1, np.searchsorted(ends, at, "right")
    place = np.where(is_left, left, many + right)
    inside = (place >= 0) & (place < 2 * many)
    placed = shared.with_columns(pl.Series(_PLACE, place)).filter(pl.Series(inside))
    of_all = pl.col(_PLACE) == many
    ranks = ranked(placed, picks_of(step))
    placed, made = ranks.frame, [*merges(step, placed), *ranks.made]
    # Most strips belong to all windows, and grouping by keys alone is faster.
    core = placed.lazy().filter(of_all).group_by(keys).agg(*made).with_columns(pl.lit(many, pl.Int64).alias(_PLACE))
    edges = placed.lazy().filter(~of_all).group_by(*keys, _PLACE).agg(*made)
    return ranks.fetched(pl.concat([core.select(edges.collect_schema().names()), edges]).collect())


def _rows_of_group(placed: pl.DataFrame, many: int, windows: Spans, step: WindowedStep) -> pl.DataFrame:
    """The rows of a group of windows: so many keys at a time that the matrices stay small."""
    each = 2 * len(windows)
    cells = placed.with_columns((pl.col(_CODE) * each + pl.col(_PLACE)).alias(_CELL))
    keys_at_once = max(1, _CELLS // each)
    if many <= keys_at_once:
        return _from_cells(cells, range(many), windows, step)
    ranges = [range(first, min(first + keys_at_once, many)) for first in range(0, many, keys_at_once)]
    parts_of_cells = [
        cells.filter(pl.col(_CELL).is_between(each * codes[0], each * codes[-1] + each - 1)) for codes in ranges
    ]
    return pl.concat(
        [_from_cells(part, codes, windows, step) for part, codes in zip(parts_of_cells, ranges, strict=True)]
    )


def _bounds(windows: Spans) -> tuple[Matrix, Matrix]:
    starts, ends = zip(*windows, strict=True)
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _from_cells(cells: pl.DataFrame, codes: range, windows: Spans, step: WindowedStep) -> pl.DataFrame:
    """The rows of the windows of some keys."""
    (starts, ends), shape = _bounds(windows), (len(codes), len(windows))
    cell = cells[_CELL].to_numpy() - 2 * len(windows) * codes.start
    counts = _running_totals(cells[NEW].to_numpy(), cell, shape, np.add, 0)
    has_rows = counts > 0
    key, window = np.nonzero(has_rows)
    rows = [
        pl.Series(_CODE, key + codes.start, pl.Int64),
        pl.Series(START, starts[window]),
        pl.Series(END, ends[window]),
        pl.Series(NEW, counts[has_rows]),
        pl.zeros(len(key), pl.Int64, eager=True).alias(COUNTED),
    ]
    wide = wide_sums(step, cells)
    found = {name: fold for name, fold in _folds(step).items() if fold is not None and name not in wide}
    folds = {name: fold for name, fold in found.items() if _is_number(cells[name].dtype)}
    rows += [_fold_column(cells[name], cell, shape, has_rows, fold) for name, fold in folds.items()]
    others = [part for part in plain_parts(step) if part.name not in folds]
    return pl.DataFrame(
        rows + (_group_non_numeric(cells, cell, len(windows), others, step) if others or picks_of(step) else [])
    )


def _folds(step: WindowedStep) -> dict[str, Fold | None]:
    earliest: dict[str, Fold | None] = {EARLIEST: "least"} if needs_earliest(step) else {}
    return earliest | {part.name: part.fold for part in plain_parts(step)}


def _is_number(kind: pl.DataType) -> bool:
    """Whether numpy holds it as a number without loss."""
    return kind in (
        pl.Float32,
        pl.Float64,
        pl.Int8,
        pl.Int16,
        pl.Int32,
        pl.Int64,
        pl.UInt8,
        pl.UInt16,
        pl.UInt32,
        pl.UInt64,
    )


def _fold_column(values: pl.Series, cell: Matrix, shape: tuple[int, int], has_rows: Matrix, fold: Fold) -> pl.Series:
    """One number for each window that is there, or null if none of its strips has one."""
    function, nothing = _fold_function(values.fill_null(0).to_numpy().dtype, fold)
    numbers = _running_totals(values.fill_null(nothing).to_numpy(), cell, shape, function, nothing)
    folded = pl.Series(values.name, numbers[has_rows], values.dtype)
    if not values.null_count():
        return folded
    known = _running_totals(values.is_not_null().to_numpy(), cell, shape, np.logical_or, nothing=False)
    return folded.to_frame().select(pl.when(pl.Series(known[has_rows])).then(pl.col(values.name))).to_series()


def _fold_function(kind: np.dtype[Any], fold: Fold) -> tuple[np.ufunc, Any]:
    """The function that makes one of two, and what it leaves alone. NaN is the greatest number."""
    if fold == "add":
        return np.add, 0
    if kind.kind == "f":
        return (np.fmin, np.nan) if fold == "least" else (np.maximum, -np.inf)
    limits = np.iinfo(kind)
    return (np.minimum, limits.max) if fold == "least" else (np.maximum, limits.min)


def _running_totals(values: Matrix, cell: Matrix, shape: tuple[int, int], function: np.ufunc, nothing: Any) -> Matrix:
    """Running totals to the left and to the right of the instant that all windows reach over, put together."""
    many, width = shape
    # A column for each key, so that a running total is one operation over all of them.
    matrix = np.full(2 * width * many, nothing, values.dtype)
    matrix[cell % (2 * width) * many + cell // (2 * width)] = values
    left, right = np.vsplit(matrix.reshape(2 * width, many), 2)
    for i in range(1, width):
        function(right[i - 1], right[i], out=right[i])
        function(left[-i], left[-i - 1], out=left[-i - 1])
    return np.ascontiguousarray(function(left, right, out=right).T)


def _group_non_numeric(
    cells: pl.DataFrame, cell: Matrix, width: int, parts: Sequence[Part], step: WindowedStep
) -> list[pl.Series]:
    """What is no number: a row for each cell and window, grouped by windows."""
    place = cell % (2 * width)
    is_left = place < width
    first, last = np.where(is_left, 0, place - width), np.where(is_left, place, width - 1)
    rows = cells.select(
        pl.Series(_CODE, cell // (2 * width)), pl.int_ranges(pl.Series(first), pl.Series(last + 1)).alias(_WINDOW),
        *(part.name for part in parts), *(name for pick in picks_of(step) for name in pick.columns),
    )  # fmt: skip
    ranks = ranked(rows, picks_of(step))
    groups = ranks.frame.explode(_WINDOW).group_by(_CODE, _WINDOW)
    made = ranks.fetched(groups.agg(*(part.merge.alias(part.name) for part in parts), *ranks.made))
    return made.sort(_CODE, _WINDOW).drop(_CODE, _WINDOW).get_columns()


def _items(items: pl.DataFrame, windows: Spans, keys: Sequence[str], kind: Items) -> pl.DataFrame:
    """The items of each window; those of a strip are there once for each of its windows that speaks."""
    found = [
        items.filter((pl.col(START) >= start) & (pl.col(START) < end)).with_columns(
            pl.lit(start, pl.Int64).alias(START), pl.lit(end, pl.Int64).alias(END)
        )
        for start, end in windows
    ]
    return together(found, keys, kind)
