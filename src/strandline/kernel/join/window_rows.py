"""Find the rows of one side of a join that windows contain, by key and by the bounds of the windows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import AT, END, START
from strandline.kernel.blocks.hashing import hashed
from strandline.kernel.blocks.small_frames import only, stacked
from strandline.kernel.join.pairs import Longs, Sorted, close_pairs
from strandline.kernel.join.window_store import BATCH, Flags, OpenSlice, SideRows, sorted_names
from strandline.kernel.state.slice_deltas import Run


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Windows by key, sorted by key hash and start."""

    windows: pl.DataFrame
    order: Longs
    """The number of each sorted window."""
    sorted: Sorted
    ends: Longs

    @property
    def longest(self) -> int:
        return int((self.ends - self.sorted.times).max())


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Rows of one run of a slice, or new rows, that windows contain: pairs of a window and a position."""

    windows: Longs
    places: Longs
    opened: OpenSlice | None = None
    run: Run | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Members:
    """The rows of one side that windows contain. A row of several windows is a member of each."""

    rows: pl.DataFrame
    windows: Longs
    """The window of each member, ascending."""
    places: Longs
    """The position of each member in the rows."""

    def at(self, members: Longs) -> pl.DataFrame:
        """Return the rows of some members."""
        return self.rows[self.places[members]]

    @property
    def times(self) -> Longs:
        found: Longs = self.rows[AT].to_numpy()[self.places]
        return found

    @property
    def batches(self) -> Longs:
        found: Longs = self.rows[BATCH].to_numpy()[self.places]
        return found


def bounds_of(windows: pl.DataFrame, keys: Sequence[str]) -> Bounds:
    """Sort windows by key hash and start."""
    hashes = hashed(only(windows, keys)).view(np.int64)
    starts = windows[START].to_numpy()
    order = np.lexsort((starts, hashes))
    return Bounds(windows, order, Sorted(hashes[order], starts[order]), windows[END].to_numpy()[order])


def members_of(side: SideRows, bounds: Bounds, keys: Sequence[str]) -> Members:
    """Return the rows of a side, stored and new, that these windows contain."""
    frames: list[pl.DataFrame] = []
    windows: list[Longs] = []
    for found in find(side, bounds):
        rows = _rows(side, found)
        true = has_keys_of(rows, bounds.windows, found.windows, keys)
        frames.append(rows if true.all() else rows.filter(pl.Series(true)))
        windows.append(found.windows[true])
    if not frames:
        none = np.zeros(0, np.int64)
        return Members(pl.DataFrame(schema={AT: pl.Int64, BATCH: pl.Int64}), none, none)
    number = np.concatenate(windows)
    order = np.argsort(number, kind="stable")
    return Members(stacked(frames), number[order], order)


def find(side: SideRows, bounds: Bounds) -> Iterator[Found]:
    """Find the rows that windows contain, run by run. Keys are compared by their hash only."""
    if not len(bounds.order):
        return
    for opened in _slices(side, bounds):
        for run in opened.runs:
            windows, places = _inside(bounds, sorted_names(run.names))
            valid = opened.valid[run.since + places]
            if not valid.all():
                windows, places = windows[valid], places[valid]
            if len(places):
                yield Found(windows, places, opened, run)
    if side.new is not None and side.new.height:
        windows, places = _inside(bounds, sorted_names(side.new))
        if len(places):
            yield Found(windows, places)


def _slices(side: SideRows, bounds: Bounds) -> list[OpenSlice]:
    layout = side.layout
    first, last = layout.numbers(bounds.sorted.times), layout.numbers(bounds.ends - 1)
    wanted = [number for number in side.slices if bool(((first <= number) & (number <= last)).any())]
    return [side.open(number) for number in sorted(wanted)]


def _inside(bounds: Bounds, rows: Sorted) -> tuple[Longs, Longs]:
    """Return pairs of a window and a row with equal key hashes, where the window contains the time of the row."""
    windows, places = close_pairs(bounds.sorted, rows, 0, bounds.longest - 1)
    inside = rows.times[places] < bounds.ends[windows]
    if not inside.all():
        windows, places = windows[inside], places[inside]
    return bounds.order[windows], places


def _rows(side: SideRows, found: Found) -> pl.DataFrame:
    if found.run is not None:
        return found.run.at(found.places)
    assert side.new is not None  # noqa: S101 - what is not in a run is new
    return side.new[found.places]


def has_keys_of(rows: pl.DataFrame, windows: pl.DataFrame, numbers: Longs, keys: Sequence[str]) -> Flags:
    """Compare the keys of rows with those of their windows, since different keys may have equal hashes."""
    true = np.ones(rows.height, np.bool_)
    for name in keys:
        wanted = windows[name][numbers]
        true &= rows[name].eq_missing(wanted.cast(rows.schema[name])).to_numpy()
    return true
