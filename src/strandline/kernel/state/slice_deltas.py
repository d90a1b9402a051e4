"""Keep changes to a large slice in delta blocks beside it, so that unchanged rows are not written again.

    "changes:<n>"      current rows of slice n, and the positions of the rows that they replace; positions count
    "changes:<n>:2"…   through the slice and all of its deltas

Sorting and writing all rows to change a few costs more than everything else in a batch. Every batch adds a delta.
Deltas of similar size are merged, as in an LSM tree, so there are few and a row is rarely rewritten. When too many rows
of a slice are replaced, the slice is rewritten.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import Block, Packed, open_block, pack
from strandline.kernel.blocks.small_frames import without
from strandline.kernel.state.partitioning import among, ordered
from strandline.kernel.state.slice_rows import GONE, ROW, Places, Store, replaced_rows, valid_rows
from strandline.kernel.state.slice_store import DUE_CLOCK, DUE_WATERMARK, HOLD, NOT_STORED, Slice, Slices

LARGE: Final = 2_000
"""Minimum rows of a slice that gets deltas."""
MIN_RATIO: Final = 2
"""A slice gets a delta while fewer than one in this many of its rows are touched now or were replaced before."""
MERGE_FACTOR: Final = 4
"""This many deltas are merged if none of them has this many times the rows of the last."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One block of a slice: the first is the slice, others are deltas."""

    store: Store
    block: Packed
    """Decoded lazily, column by column."""
    names: pl.DataFrame
    """The requested columns of its rows: their identity and their hold."""
    size: int
    """Its bytes."""
    gone: Places
    """Positions of earlier rows that it invalidates."""
    since: int
    """Position of its first row."""

    def among(self, places: Places) -> Places:
        """Return those of its rows that are at these positions."""
        first, last = np.searchsorted(places, [self.since, self.since + self.names.height])
        return places[first:last] - self.since

    def at(self, rows: Places) -> pl.DataFrame:
        """Read some of its rows."""
        return self.block.frame(self.store.rows, rows=rows).drop(ROW, strict=False)


@dataclass(frozen=True, slots=True, eq=False)
class SliceChanges:
    """A slice of which a batch changes some rows."""

    store: Store
    number: int
    entry: Slice
    runs: tuple[Run, ...]
    places: Places
    """Positions of the touched rows."""
    others: Places
    """Positions of the other valid rows."""
    touched: pl.DataFrame
    """The touched rows before this batch."""


def slices_with_few_changes(slices: Slices, touched: Mapping[int, int], due: set[int]) -> frozenset[int]:
    """Return the slices that get a delta: few of their rows are touched, and no deadline makes them due."""
    return frozenset(
        number
        for number, rows in touched.items()
        if number not in due
        and (entry := slices.get(number)) is not None
        and entry.rows >= LARGE
        and (rows + entry.gone) * MIN_RATIO < entry.rows
    )


def begin(
    held: Mapping[str, bytes],
    store: Store,
    slices: Slices,
    touched: Mapping[int, Sequence[pl.DataFrame]],
    names: Sequence[str],
    bounds: Sequence[str] = (),
    also: Sequence[str] = (),
) -> dict[int, SliceChanges]:
    """Read the touched rows of these slices, identified by `names`; bounds that all rows share are left out."""
    found = {}
    for number, frames in sorted(touched.items()):
        entry = slices[number]
        runs = read_runs(held, store, number, entry, [*names, *also])
        known = pl.concat([run.names for run in runs], how="vertical_relaxed")
        wanted = among(known, wanted_rows(known, frames, names, bounds)).to_numpy()
        left = valid_rows(known.height, (run.gone for run in runs))
        places, others = np.flatnonzero(left & wanted), np.flatnonzero(left & ~wanted)
        found[number] = SliceChanges(store, number, entry, runs, places, others, _at(runs, places))
    return found


def appending(store: Store, number: int, entry: Slice, runs: tuple[Run, ...]) -> SliceChanges:
    """Describe a slice that gets new rows and no replacements."""
    left = valid_rows(sum(run.names.height for run in runs), (run.gone for run in runs))
    return SliceChanges(store, number, entry, runs, np.zeros(0, np.int64), np.flatnonzero(left), pl.DataFrame())


def read_runs(
    held: Mapping[str, bytes], store: Store, number: int, entry: Slice, names: Sequence[str]
) -> tuple[Run, ...]:
    """Read some columns of a slice and of its deltas."""
    runs: list[Run] = []
    since = 0
    for place in (store.place(number), *store.delta_places(number, entry.deltas)):
        data = held[place]
        block = open_block(data, place)
        known = block.frame(store.rows, names)
        gone = replaced_rows(store, block) if runs else np.zeros(0, np.int64)
        runs.append(Run(store, block, known, len(data), gone, since))
        since += known.height
    return tuple(runs)


def _at(runs: Sequence[Run], places: Places) -> pl.DataFrame:
    """Read the rows of these runs at some positions."""
    found = [run.at(rows) for run in runs if len(rows := run.among(places))]
    return pl.concat(found, how="diagonal_relaxed") if found else pl.DataFrame()


def end(changes: SliceChanges, rows: pl.DataFrame, names: Sequence[str]) -> tuple[dict[str, bytes | None], Slice]:
    """Write the touched rows of a slice as a delta, merged with earlier deltas of similar size."""
    left = _unmerged_runs(changes, rows.height)
    merged, since = changes.runs[left:], sum(run.names.height for run in changes.runs[:left])
    kept = without(rows, NOT_STORED)
    frames = [_at(merged, changes.others), kept] if merged else [kept]
    gone = np.concatenate([changes.places, *(run.gone for run in merged)])
    now = ordered(pl.concat(frames, how="diagonal_relaxed"), names)
    places = pl.DataFrame({ROW: np.sort(gone[gone < since])})
    data = pack(Block({changes.store.rows: now, GONE: places}))
    delta_places = changes.store.delta_places(changes.number, max(left, changes.entry.deltas))
    writes: dict[str, bytes | None] = {**dict.fromkeys(delta_places[left:]), delta_places[left - 1]: data}
    row_count = changes.entry.rows + rows.height - changes.touched.height
    entry = Slice(
        row_count,
        sum(run.size for run in changes.runs[:left]) + len(data),
        min(each for each in (changes.entry.due_watermark, _least(rows[DUE_WATERMARK])) if each is not None),
        _earlier(changes.entry.due_clock, _least(rows[DUE_CLOCK])),
        _hold(changes, rows) if HOLD in rows.columns else None,
        since + now.height - row_count,
        left,
    )
    return writes, entry


def _unmerged_runs(changes: SliceChanges, rows: int) -> int:
    """Count the blocks that are not merged when this many rows are added: the slice and larger deltas."""
    sizes = [len(run.among(changes.others)) for run in changes.runs]
    left = len(sizes)
    while True:
        first = left
        while first > 1 and sizes[first - 1] < MERGE_FACTOR * rows:
            first -= 1
        if left - first < MERGE_FACTOR - 1:
            return left
        rows += sum(sizes[first:left])
        left = first


def wanted_rows(
    rows: pl.DataFrame, frames: Sequence[pl.DataFrame], names: Sequence[str], bounds: Sequence[str]
) -> pl.DataFrame:
    """Return the identities that frames touch, without the bounds if they are equal in all rows of the slice."""
    one = all(rows[name].min() == rows[name].max() for name in bounds)
    needed = [name for name in names if name not in bounds] if one else [*names]
    return pl.concat([frame.select(needed) for frame in frames]).unique()


def _hold(changes: SliceChanges, rows: pl.DataFrame) -> int | None:
    """Return the least hold of all rows; without a hold before, only touched rows can have one."""
    least: int | None = _least(rows[HOLD])
    if changes.entry.hold is None:
        return least
    others = [_least(run.names[HOLD].gather(run.among(changes.others))) for run in changes.runs]
    return _earlier(least, *others)


def _earlier(*values: int | None) -> int | None:
    return min((one for one in values if one is not None), default=None)


def _least(column: pl.Series) -> Any:
    return column.min()
