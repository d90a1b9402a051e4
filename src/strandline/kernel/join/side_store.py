"""Keep the rows of one side of a join in slices by event time, sorted by key hash and time.

A row ends when the watermark shows that it can get no further partner. A batch opens the slices that its rows may
match, the slices that its rows go to, and slices with a row that ends. New rows are appended as deltas. A slice is
deleted as a whole when all of its rows have ended.

HOLD is the event time of a row that is emitted if it ends unmatched. It is null once the row is matched.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.blocks.block import AT
from strandline.kernel.join.pairs import Longs, Sorted
from strandline.kernel.state import slice_deltas
from strandline.kernel.state.partitioning import ordered
from strandline.kernel.state.slice_deltas import Run, SliceChanges
from strandline.kernel.state.slice_rows import Store, valid_rows
from strandline.kernel.state.slice_store import DUE_CLOCK, DUE_WATERMARK, HOLD, Slice, Slices, by_slice, pack_slice
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.model.joins import LEFT, IntervalJoin

HASH: Final = "@hash"
"""Hash of the key columns, as a signed integer."""
STORES: Final = {role: Store(role, role) for role in ("left", "right")}
_SLICES: Final = 4
"""Slices per width of the interval."""
_SHORTEST: Final = 1_000
"""Shortest slice in milliseconds. Without it a narrow interval would put almost every row in a slice of its own."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Side:
    """The layout of one side: its store, the width of slices, and how far past a row the watermark is when it ends."""

    definition: IntervalJoin
    role: str

    @property
    def store(self) -> Store:
        return STORES[self.role]

    @property
    def pads(self) -> bool:
        return self.definition.pads(self.role)

    @property
    def span(self) -> int:
        asked = self.definition
        return max((asked.upper.ms - asked.lower.ms + asked.lateness.ms) // _SLICES, _SHORTEST)

    @property
    def reach(self) -> int:
        """Return how far the watermark is past a row's event time when the row ends."""
        return self.definition.reach(self.role).ms + self.definition.lateness.ms

    @property
    def bounds(self) -> tuple[int, int]:
        """Return the least and the greatest difference in event time from a row of this side to a partner."""
        lower, upper = self.definition.lower.ms, self.definition.upper.ms
        return (lower, upper) if self.role == LEFT else (-upper, -lower)

    def slice_ends(self, number: int) -> int:
        """Return the watermark at which every row of a slice has ended."""
        return min(max((number + 1) * self.span + self.reach, NEVER), FOREVER)

    def with_deadline(self, rows: pl.DataFrame) -> pl.DataFrame:
        """Add the watermark at which rows are due: their end if they may be emitted, else the end of their slice."""
        times = rows[AT].to_numpy()
        due = plus((times // self.span + 1) * self.span, self.reach)
        if self.pads:
            due = np.where(rows[HOLD].is_not_null().to_numpy(), plus(times, self.reach), due)
        return rows.with_columns(pl.Series(DUE_WATERMARK, due), pl.lit(None, pl.Int64).alias(DUE_CLOCK))


def plus(times: Longs, distance: int) -> Longs:
    """Add a distance to times, clamped to the range from NEVER to FOREVER."""
    if distance >= 0:
        return np.minimum(times, FOREVER - distance) + distance
    return np.maximum(times, NEVER - distance) + distance


@dataclass(slots=True, eq=False)
class OpenSlice:
    """A slice that a batch reads: its runs, its valid rows, and what the batch changes."""

    number: int
    entry: Slice
    runs: tuple[Run, ...]
    valid: Flags
    times: Longs
    open: Flags
    """Rows that are emitted if they end unmatched."""
    matched: list[Longs] = field(default_factory=list)
    """Positions of rows that were matched in this batch."""


@dataclass(slots=True, eq=False)
class SideState:
    """One side in one batch: the slices in the index, and the open ones."""

    side: Side
    slices: Slices
    opened: dict[int, OpenSlice]

    def near(self, times: Longs, lower: int, upper: int) -> Iterable[OpenSlice]:
        """Yield open slices that may hold a row whose time is between `lower` and `upper` after one of these times."""
        if not len(times):
            return
        least, most = int(times.min()) + lower, int(times.max()) + upper
        for number in sorted(self.opened):
            if least < (number + 1) * self.side.span and most >= number * self.side.span:
                yield self.opened[number]


def open_side(
    held: Mapping[str, bytes], side: Side, slices: Slices, numbers: Iterable[int], watermark: int
) -> SideState:
    """Read key hashes and times of these slices, and of slices with a row that is due."""
    due = {number for number, entry in slices.items() if entry.due_watermark <= watermark}
    wanted = sorted({*numbers, *due} & slices.keys())
    return SideState(side, slices, {number: _open(held, side, number, slices[number]) for number in wanted})


def reached(slices: Slices, span: int, times: Longs, lower: int, upper: int) -> list[int]:
    """Return the slices that may hold a row whose time is between `lower` and `upper` after one of these times."""
    if not len(times):
        return []
    least, most = (int(times.min()) + lower) // span, (int(times.max()) + upper) // span
    return [number for number in slices if least <= number <= most]


def _open(held: Mapping[str, bytes], side: Side, number: int, entry: Slice) -> OpenSlice:
    names = [HASH, AT, HOLD] if side.pads else [HASH, AT]
    runs = slice_deltas.read_runs(held, side.store, number, entry, names)
    valid = valid_rows(sum(run.names.height for run in runs), (run.gone for run in runs))
    times = np.concatenate([run.names[AT].to_numpy() for run in runs])
    holds = [run.names[HOLD].is_not_null().to_numpy() for run in runs] if side.pads else []
    is_open = np.concatenate(holds) if holds else np.zeros(len(times), np.bool_)
    return OpenSlice(number, entry, runs, valid, times, is_open)


def sorted_rows(run: Run) -> Sorted:
    return Sorted(run.names[HASH].to_numpy(), run.names[AT].to_numpy())


def ended(state: SideState, watermark: int) -> list[tuple[OpenSlice, Longs]]:
    """Return the open rows that end unmatched at this watermark, by slice."""
    found = []
    for opened in state.opened.values():
        is_open = opened.open & opened.valid
        for places in opened.matched:
            is_open[places] = False
        is_open &= plus(opened.times, state.side.reach) <= watermark
        if is_open.any():
            found.append((opened, np.flatnonzero(is_open)))
    return found


def rows_at(opened: OpenSlice, places: Longs) -> pl.DataFrame:
    """Read rows of a slice by sorted positions."""
    parts = [run.at(rows) for run in opened.runs if len(rows := run.among(places))]
    return pl.concat(parts, how="diagonal_relaxed") if parts else pl.DataFrame()


def write_side(
    state: SideState, new: pl.DataFrame | None, gone: Mapping[int, Longs], watermark: int
) -> tuple[dict[str, bytes | None], Slices, int]:
    """Append new rows, mark matched rows, remove rows; return the blocks to write, the slices, and the removed rows.

    `gone` has the positions of rows to remove, by slice.
    """
    side, slices, removed = state.side, dict(state.slices), 0
    parts: dict[int, pl.DataFrame] = {}
    if new is not None and new.height:
        ready = side.with_deadline(new)
        parts = by_slice(ready, pl.Series("slice", ready[AT].to_numpy() // side.span))
    writes: dict[str, bytes | None] = {}
    for number in sorted({*state.opened, *parts}):
        opened = state.opened.get(number)
        if opened is None:
            rows = ordered(parts[number], (HASH, AT))
            writes[side.store.place(number)], slices[number] = pack_slice(side.store, rows, {})
            continue
        part = parts.get(number)
        if side.slice_ends(number) <= watermark:
            writes |= _deleted(side, opened)
            del slices[number]
            removed += int(np.count_nonzero(opened.valid))
            continue
        places = gone.get(number, np.zeros(0, np.int64))
        changed, entry = _changed(side, opened, part, places)
        writes |= changed
        removed += len(places)
        if entry is None:
            del slices[number]
        else:
            slices[number] = entry
    return writes, slices, removed


def _changed(
    side: Side, opened: OpenSlice, added: pl.DataFrame | None, gone: Longs
) -> tuple[dict[str, bytes | None], Slice | None]:
    """Write one slice: a delta with new rows and newly matched rows; the slice is None if no row is left."""
    matched = _distinct(opened.matched)
    rewritten = matched[opened.open[matched]] if side.pads else np.zeros(0, np.int64)
    rewritten = rewritten[~np.isin(rewritten, gone)]
    if added is None and not len(rewritten) and not len(gone):
        return {}, opened.entry
    places = np.union1d(rewritten, gone)
    left = opened.valid.copy()
    left[places] = False
    others = np.flatnonzero(left)
    parts = [] if added is None else [added]
    if len(rewritten):
        rows = rows_at(opened, rewritten).with_columns(pl.lit(None, pl.Int64).alias(HOLD))
        parts.append(side.with_deadline(rows))
    if not parts and not len(others):
        return _deleted(side, opened), None
    rows = pl.concat(parts, how="diagonal_relaxed") if parts else _no_rows(side, opened)
    touched = pl.DataFrame({AT: np.zeros(len(places), np.int64)})
    changes = SliceChanges(side.store, opened.number, opened.entry, opened.runs, places, others, touched)
    writes, entry = slice_deltas.end(changes, rows, (HASH, AT))
    return writes, replace(entry, due_watermark=_due(side, opened, others, rows))


def _due(side: Side, opened: OpenSlice, others: Longs, rows: pl.DataFrame) -> int:
    """Return the next watermark at which a slice is due: the end of its first open row, else the end of all rows."""
    due = [side.slice_ends(opened.number)]
    waiting = others[opened.open[others]]
    if len(waiting):
        due.append(int(plus(opened.times[waiting], side.reach).min()))
    if rows.height:
        due.append(int(rows[DUE_WATERMARK].to_numpy().min()))
    return min(due)


def _no_rows(side: Side, opened: OpenSlice) -> pl.DataFrame:
    """Return an empty frame with the columns of a slice, for a delta that only removes rows."""
    return side.with_deadline(opened.runs[0].at(np.zeros(0, np.int64)))


def _deleted(side: Side, opened: OpenSlice) -> dict[str, bytes | None]:
    places = side.store.delta_places(opened.number, opened.entry.deltas)
    return dict.fromkeys((side.store.place(opened.number), *places))


def _distinct(places: Sequence[Longs]) -> Longs:
    return np.unique(np.concatenate(places)) if places else np.zeros(0, np.int64)
