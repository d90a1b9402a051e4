"""Combine shared slices into the contents of many overlapping windows at once.

A group of windows that all contain one instant is combined around it: left of the instant a window contains the shared
slices from its start on, right of it those up to its end. With running totals to both sides, in a matrix of keys by
shared slices, each window is the combination of two cells. Nothing is subtracted, so minimum, maximum and
floating-point sums work too. Non-numeric aggregates are grouped by window after their shared slices have been combined
as far as possible.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.aggregation.accumulators import (
    Combined,
    WideSums,
    carries_in,
    items_of,
    merged_parts,
    merges,
    needs_earliest,
    picks_of,
    plain_parts,
    sums_of,
    together,
    wide_sums,
)
from strandline.kernel.aggregation.aggregates import Items, Part
from strandline.kernel.aggregation.first_last import ranked
from strandline.kernel.aggregation.overflow import without_empty_carries
from strandline.kernel.blocks.block import COUNTED, EARLIEST, END, NEW, START, Frames
from strandline.kernel.blocks.small_frames import stacked
from strandline.kernel.blocks.sorting import Fold
from strandline.model.steps import WindowedStep

Spans = Sequence[tuple[int, int]]
Matrix = npt.NDArray[Any]

_CODE, _PLACE, _CELL, _WINDOW = "@code", "@place", "@cell", "@window"
_CELLS: Final = 1 << 22
"""Maximum number of matrix cells in memory at a time."""


def combine_into_windows(
    shared: pl.DataFrame, items: Frames, windows: Spans, keys: Sequence[str], step: WindowedStep
) -> Combined:
    """Return the contents of non-empty windows, sorted by key and window."""
    groups = [*_overlapping_groups(windows)]
    placed = [_combine_by_place(shared, group, keys, step) for group in groups]
    key_rows = pl.concat([each.select(keys) for each in placed]).unique().sort(keys)
    codes = key_rows.with_row_index(_CODE).with_columns(pl.col(_CODE).cast(pl.Int64))
    coded = [each.join(codes, on=list(keys), how="left", nulls_equal=True) for each in placed]
    pieces = [_rows_of_group(each, key_rows.height, group, step) for each, group in zip(coded, groups, strict=True)]
    rows = stacked(pieces)
    if len(pieces) > 1:
        rows = rows.sort(_CODE, START, END)
    rows = pl.concat([key_rows[rows[_CODE]], rows.drop(_CODE)], how="horizontal")
    held = {name: _items(items[name], windows, keys, kind) for name, kind in items_of(step).items() if name in items}
    return Combined(rows, held)


def _overlapping_groups(windows: Spans) -> Iterator[Spans]:
    """Split sorted windows into groups that all contain or touch the first end of the group."""
    group: list[tuple[int, int]] = []
    for window in windows:
        if group and window[0] > group[0][1]:
            yield group
            group = []
        group.append(window)
    if group:
        yield group


def _combine_by_place(shared: pl.DataFrame, windows: Spans, keys: Sequence[str], step: WindowedStep) -> pl.DataFrame:
    """Combine the shared slices that belong to the same windows of a group; each key has two places per window.

    A shared slice at place i of the left half belongs to the windows up to i, one of the right half to the windows from
    i on. At the first place of the right half it belongs to all windows.
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
    # Most shared slices belong to all windows, and grouping by keys alone is faster.
    core = placed.lazy().filter(of_all).group_by(keys).agg(*made).with_columns(pl.lit(many, pl.Int64).alias(_PLACE))
    edges = placed.lazy().filter(~of_all).group_by(*keys, _PLACE).agg(*made)
    found = ranks.fetched(pl.concat([core.select(edges.collect_schema().names()), edges]).collect())
    return without_empty_carries(found, sums_of(step))


def _rows_of_group(placed: pl.DataFrame, many: int, windows: Spans, step: WindowedStep) -> pl.DataFrame:
    """Return the rows of a group of windows, in chunks of keys that keep the matrices small."""
    each = 2 * len(windows)
    cells = placed.with_columns((pl.col(_CODE) * each + pl.col(_PLACE)).alias(_CELL))
    keys_at_once = max(1, _CELLS // each)
    if many <= keys_at_once:
        return _from_cells(cells, range(many), windows, step)
    ranges = [range(first, min(first + keys_at_once, many)) for first in range(0, many, keys_at_once)]
    parts_of_cells = [
        cells.filter(pl.col(_CELL).is_between(each * codes[0], each * codes[-1] + each - 1)) for codes in ranges
    ]
    return stacked(
        [_from_cells(part, codes, windows, step) for part, codes in zip(parts_of_cells, ranges, strict=True)]
    )


def _bounds(windows: Spans) -> tuple[Matrix, Matrix]:
    starts, ends = zip(*windows, strict=True)
    return np.array(starts, np.int64), np.array(ends, np.int64)


def _from_cells(cells: pl.DataFrame, codes: range, windows: Spans, step: WindowedStep) -> pl.DataFrame:
    """Return the window rows of a range of keys."""
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
    wide_names = {name for name, _, _ in wide}
    found = {name: fold for name, fold in _folds(step).items() if fold is not None and name not in wide_names}
    folds = {name: fold for name, fold in found.items() if _is_number(cells[name].dtype)}
    rows += [_fold_column(cells[name], cell, shape, has_rows, fold) for name, fold in folds.items()]
    others = [part for part in plain_parts(step) if part.name not in folds]
    return pl.DataFrame(
        rows + (_group_non_numeric(cells, cell, len(windows), others, step, wide) if others or picks_of(step) else [])
    )


def _folds(step: WindowedStep) -> dict[str, Fold | None]:
    earliest: dict[str, Fold | None] = {EARLIEST: "least"} if needs_earliest(step) else {}
    return earliest | {part.name: part.fold for part in plain_parts(step)}


def _is_number(kind: pl.DataType) -> bool:
    """Tell whether NumPy represents the type as a number without loss."""
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
    """Return one number per non-empty window, or null if all its shared slices are null."""
    function, nothing = _fold_function(values.fill_null(0).to_numpy().dtype, fold)
    numbers = _running_totals(values.fill_null(nothing).to_numpy(), cell, shape, function, nothing)
    folded = pl.Series(values.name, numbers[has_rows], values.dtype)
    if not values.null_count():
        return folded
    known = _running_totals(values.is_not_null().to_numpy(), cell, shape, np.logical_or, nothing=False)
    return folded.to_frame().select(pl.when(pl.Series(known[has_rows])).then(pl.col(values.name))).to_series()


def _fold_function(kind: np.dtype[Any], fold: Fold) -> tuple[np.ufunc, Any]:
    """Return the binary function of a fold and its neutral element. NaN is the greatest number."""
    if fold == "add":
        return np.add, 0
    if kind.kind == "f":
        return (np.fmin, np.nan) if fold == "least" else (np.maximum, -np.inf)
    limits = np.iinfo(kind)
    return (np.minimum, limits.max) if fold == "least" else (np.maximum, limits.min)


def _running_totals(values: Matrix, cell: Matrix, shape: tuple[int, int], function: np.ufunc, nothing: Any) -> Matrix:
    """Combine the running totals left and right of the instant that all windows contain."""
    many, width = shape
    # One column per key, so that each step of a running total is one operation over all keys.
    matrix = np.full(2 * width * many, nothing, values.dtype)
    matrix[cell % (2 * width) * many + cell // (2 * width)] = values
    left, right = np.vsplit(matrix.reshape(2 * width, many), 2)
    for i in range(1, width):
        function(right[i - 1], right[i], out=right[i])
        function(left[-i], left[-i - 1], out=left[-i - 1])
    return np.ascontiguousarray(function(left, right, out=right).T)


def _group_non_numeric(
    cells: pl.DataFrame, cell: Matrix, width: int, parts: Sequence[Part], step: WindowedStep, wide: WideSums
) -> list[pl.Series]:
    """Aggregate non-numeric parts: one row per cell and window, grouped by window."""
    place = cell % (2 * width)
    is_left = place < width
    first, last = np.where(is_left, 0, place - width), np.where(is_left, place, width - 1)
    rows = cells.select(
        pl.Series(_CODE, cell // (2 * width)), pl.int_ranges(pl.Series(first), pl.Series(last + 1)).alias(_WINDOW),
        *(part.name for part in parts), *(name for pick in picks_of(step) for name in pick.columns),
        *carries_in(step, cells),
    )  # fmt: skip
    ranks = ranked(rows, picks_of(step))
    groups = ranks.frame.explode(_WINDOW).group_by(_CODE, _WINDOW)
    made = ranks.fetched(groups.agg(*merged_parts(parts, wide), *ranks.made))
    made = without_empty_carries(made, sums_of(step))
    return made.sort(_CODE, _WINDOW).drop(_CODE, _WINDOW).get_columns()


def _items(items: pl.DataFrame, windows: Spans, keys: Sequence[str], kind: Items) -> pl.DataFrame:
    """Return the items of each window; an item is repeated for every window that contains its shared slice."""
    found = [
        items.filter((pl.col(START) >= start) & (pl.col(START) < end)).with_columns(
            pl.lit(start, pl.Int64).alias(START), pl.lit(end, pl.Int64).alias(END)
        )
        for start, end in windows
    ]
    return together(found, keys, kind)
