"""Keep changes to a large slice in delta blocks beside it, so that unchanged rows are not written again.

    "changes:<n>"      rows of slice n as they are now, and the positions of the rows that they replace; rows of the
    "changes:<n>:2"…   slice and of its deltas are counted through

Sorting and writing all rows for the sake of a few costs more than everything else in a batch. Every batch adds a delta;
deltas of similar size are merged, so that there are never many and a row is seldom written again. When too much of a
slice is replaced, the slice is written whole.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import Block, Packed, open_block, pack
from strandline.kernel.blocks.small_frames import without
from strandline.kernel.state.partitioning import among, ordered
from strandline.kernel.state.slice_rows import GONE, ROW, Places, Store, alive, gone_by
from strandline.kernel.state.slice_store import DUE_CLOCK, DUE_WATERMARK, HOLD, NOT_STORED, Slice, Slices

LARGE: Final = 2_000
"""Rows from which on a slice gets deltas."""
SELDOM: Final = 2
"""Rows touched now or replaced before must be fewer than one in so many."""
ALIKE: Final = 4
"""So many deltas, none of them so many times as large as the last, are merged."""


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """One block of a slice: the first is the slice, others are deltas."""

    store: Store
    block: Packed
    """Read as far as it must be."""
    names: pl.DataFrame
    """The columns of its rows that were asked for: those that identify them, and their hold."""
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
class Changing:
    """A slice of which some rows change in this batch."""

    store: Store
    number: int
    entry: Slice
    runs: tuple[Run, ...]
    places: Places
    """Where the touched rows are."""
    others: Places
    """Where the others are."""
    mine: pl.DataFrame
    """The touched rows as they are before this batch."""


def seldom(slices: Slices, touched: Mapping[int, int], due: set[int]) -> frozenset[int]:
    """Return the slices that get a delta: so few rows of them are touched, and they are not due as a whole."""
    return frozenset(
        number
        for number, rows in touched.items()
        if number not in due
        and (entry := slices.get(number)) is not None
        and entry.rows >= LARGE
        and (rows + entry.gone) * SELDOM < entry.rows
    )


def begin(
    held: Mapping[str, bytes],
    store: Store,
    slices: Slices,
    touched: Mapping[int, Sequence[pl.DataFrame]],
    names: Sequence[str],
    bounds: Sequence[str] = (),
    also: Sequence[str] = (),
) -> dict[int, Changing]:
    """Read the touched rows of these slices, identified by `names`; bounds that all rows share are left out."""
    found = {}
    for number, frames in sorted(touched.items()):
        entry = slices[number]
        runs = read_runs(held, store, number, entry, [*names, *also])
        known = pl.concat([run.names for run in runs], how="vertical_relaxed")
        wanted = among(known, wanted_rows(known, frames, names, bounds)).to_numpy()
        left = alive(known.height, (run.gone for run in runs))
        places, others = np.flatnonzero(left & wanted), np.flatnonzero(left & ~wanted)
        found[number] = Changing(store, number, entry, runs, places, others, _at(runs, places))
    return found


def appending(store: Store, number: int, entry: Slice, runs: tuple[Run, ...]) -> Changing:
    """Describe a slice to which rows are added, and none replaced."""
    left = alive(sum(run.names.height for run in runs), (run.gone for run in runs))
    return Changing(store, number, entry, runs, np.zeros(0, np.int64), np.flatnonzero(left), pl.DataFrame())


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
        gone = gone_by(store, block) if runs else np.zeros(0, np.int64)
        runs.append(Run(store, block, known, len(data), gone, since))
        since += known.height
    return tuple(runs)


def _at(runs: Sequence[Run], places: Places) -> pl.DataFrame:
    """Read the rows of these runs at some positions."""
    found = [run.at(mine) for run in runs if len(mine := run.among(places))]
    return pl.concat(found, how="diagonal_relaxed") if found else pl.DataFrame()


def end(each: Changing, rows: pl.DataFrame, names: Sequence[str]) -> tuple[dict[str, bytes | None], Slice]:
    """Write the touched rows of a slice after a batch, merged with earlier deltas where that pays."""
    left = _left(each, rows.height)
    merged, since = each.runs[left:], sum(run.names.height for run in each.runs[:left])
    kept = without(rows, NOT_STORED)
    frames = [_at(merged, each.others), kept] if merged else [kept]
    gone = np.concatenate([each.places, *(run.gone for run in merged)])
    now = ordered(pl.concat(frames, how="diagonal_relaxed"), names)
    places = pl.DataFrame({ROW: np.sort(gone[gone < since])})
    data = pack(Block({each.store.rows: now, GONE: places}))
    beside = each.store.delta_places(each.number, max(left, each.entry.deltas))
    writes: dict[str, bytes | None] = {**dict.fromkeys(beside[left:]), beside[left - 1]: data}
    there = each.entry.rows + rows.height - each.mine.height
    entry = Slice(
        there,
        sum(run.size for run in each.runs[:left]) + len(data),
        min(each.entry.due_watermark, _least(rows[DUE_WATERMARK])),
        _earlier(each.entry.due_clock, _least(rows[DUE_CLOCK])),
        _hold(each, rows) if HOLD in rows.columns else None,
        since + now.height - there,
        left,
    )
    return writes, entry


def _left(each: Changing, rows: int) -> int:
    """Count the blocks that stay as they are when so many rows are added: the slice, and larger deltas."""
    sizes = [len(run.among(each.others)) for run in each.runs]
    left = len(sizes)
    while True:
        alike = left
        while alike > 1 and sizes[alike - 1] < ALIKE * rows:
            alike -= 1
        if left - alike < ALIKE - 1:
            return left
        rows += sum(sizes[alike:left])
        left = alike


def wanted_rows(
    rows: pl.DataFrame, frames: Sequence[pl.DataFrame], names: Sequence[str], bounds: Sequence[str]
) -> pl.DataFrame:
    """Return the identities that frames touch; bounds are left out where all rows of a slice share them."""
    one = all(rows[name].min() == rows[name].max() for name in bounds)
    needed = [name for name in names if name not in bounds] if one else [*names]
    return pl.concat([frame.select(needed) for frame in frames]).unique()


def _hold(each: Changing, rows: pl.DataFrame) -> int | None:
    """Return the least hold of all rows; where none held anything before, only touched rows can."""
    least: int | None = _least(rows[HOLD])
    if each.entry.hold is None:
        return least
    others = [_least(run.names[HOLD].gather(run.among(each.others))) for run in each.runs]
    return _earlier(least, *others)


def _earlier(*each: int | None) -> int | None:
    return min((one for one in each if one is not None), default=None)


def _least(column: pl.Series) -> Any:
    return column.min()
