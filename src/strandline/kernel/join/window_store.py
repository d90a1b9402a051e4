"""Keep the rows of one side of a window join in slices by event time, sorted by key hash and time.

A row is stored once, also where windows overlap: a firing finds its rows by key and by the bounds of the window. New
rows are appended as deltas. A slice of windows with common bounds is deleted as a whole when the last window of its
rows has expired. Rows of sessions are removed when their session expires.
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
from strandline.kernel.state.slice_store import DUE_CLOCK, DUE_WATERMARK, Slice, Slices, by_slice, pack_slice
from strandline.kernel.watermarks import FOREVER
from strandline.model.elements import Duration
from strandline.model.joins import LEFT, RIGHT
from strandline.model.window_join import WindowJoin
from strandline.model.windows import Cumulating, Session, Sliding, Tumbling

HASH: Final = "@hash"
"""Hash of the key columns, as a signed integer."""
BATCH: Final = "@batch"
"""Number of the batch in which a row arrived."""
STORES: Final = {role: Store(role, role) for role in (LEFT, RIGHT)}
_SLICES: Final = 8
"""Slices per sliding window, at most."""
_SHORTEST: Final = 1_000
"""Shortest slice of sessions in milliseconds."""

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Layout:
    """The slices of both sides: their width, and the watermark at which their rows expire."""

    span: int
    offset: int
    longest: int | None
    """How far after the end of a slice its last window may end, plus the lateness; None for sessions."""

    def numbers(self, times: Longs) -> Longs:
        """Return the slice of each event time."""
        found: Longs = (times - self.offset) // self.span
        return found

    def expiry(self, number: int) -> int:
        """Return the watermark at which all windows of the rows of a slice have expired."""
        if self.longest is None:
            return FOREVER
        return min((number + 1) * self.span + self.offset + self.longest, FOREVER)

    def between(self, slices: Iterable[int], start: int, end: int) -> list[int]:
        """Return the slices that may hold rows from `start` to before `end`."""
        first, last = (start - self.offset) // self.span, (end - 1 - self.offset) // self.span
        return [number for number in sorted(slices) if first <= number <= last]


def layout_of(definition: WindowJoin) -> Layout:
    """Return the layout of the slices of a join."""
    lateness = (definition.lateness.allowed or Duration(0)).ms
    match definition.window:
        case Tumbling(size, offset) | Cumulating(size, _, offset):
            return Layout(size.ms, offset.ms % size.ms, lateness - 1)
        case Sliding(size, every, offset):
            span = every.ms * max(size.ms // (every.ms * _SLICES), 1)
            return Layout(span, offset.ms % every.ms, size.ms - every.ms + lateness - 1)
        case Session(Duration() as gap):
            return Layout(max(gap.ms + lateness, _SHORTEST), 0, None)
    raise AssertionError(definition.window)  # the definition refuses other windows


@dataclass(slots=True, eq=False)
class OpenSlice:
    """A slice whose rows a batch looks up: its runs, its valid rows, and the rows to remove."""

    number: int
    entry: Slice
    runs: tuple[Run, ...]
    valid: Flags
    gone: list[Longs] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class SideRows:
    """The rows of one side in one batch: the slices in state, those that are open, and the new rows."""

    role: str
    layout: Layout
    held: Mapping[str, bytes]
    slices: Slices
    new: pl.DataFrame | None
    """New rows, sorted by key hash and event time."""
    opened: dict[int, OpenSlice] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return STORES[self.role]

    def open(self, number: int) -> OpenSlice:
        """Read key hashes, times and batches of a slice."""
        if number not in self.opened:
            entry = self.slices[number]
            runs = slice_deltas.read_runs(self.held, self.store, number, entry, (HASH, AT, BATCH))
            valid = valid_rows(sum(run.names.height for run in runs), (run.gone for run in runs))
            self.opened[number] = OpenSlice(number, entry, runs, valid)
        return self.opened[number]

    def between(self, start: int, end: int) -> list[OpenSlice]:
        """Open the slices that may hold rows from `start` to before `end`."""
        return [self.open(number) for number in self.layout.between(self.slices, start, end)]


def sorted_names(rows: pl.DataFrame) -> Sorted:
    return Sorted(rows[HASH].to_numpy(), rows[AT].to_numpy())


def write_side(
    side: SideRows, kept: pl.DataFrame | None, watermark: int
) -> tuple[dict[str, bytes | None], Slices, int]:
    """Append new rows, remove rows and expired slices; return the blocks to write, the slices, and the removed rows.

    New rows of an expired slice are removed, too.
    """
    layout, slices, removed = side.layout, dict(side.slices), 0
    parts: dict[int, pl.DataFrame] = {}
    if kept is not None and kept.height:
        parts = by_slice(kept, pl.Series("slice", layout.numbers(kept[AT].to_numpy())))
    writes: dict[str, bytes | None] = {}
    for number in sorted({*parts, *side.opened, *(each for each in slices if layout.expiry(each) <= watermark)}):
        if layout.expiry(number) <= watermark:
            writes |= _deleted(side, number)
            removed += parts[number].height if number in parts else 0
            removed += slices.pop(number).rows if number in slices else 0
            continue
        part = None if number not in parts else _with_deadline(parts[number], layout.expiry(number))
        if number not in slices:
            if part is not None:
                rows = ordered(part, (HASH, AT))
                writes[side.store.place(number)], slices[number] = pack_slice(side.store, rows, {})
            continue
        gone = _distinct(side.opened[number].gone if number in side.opened else ())
        changed, entry = _changed(side, number, part, gone)
        writes |= changed
        removed += len(gone)
        if entry is None:
            del slices[number]
        else:
            slices[number] = entry
    return writes, slices, removed


def _changed(
    side: SideRows, number: int, added: pl.DataFrame | None, gone: Longs
) -> tuple[dict[str, bytes | None], Slice | None]:
    """Write a delta with new rows and the positions of removed rows; the slice is None if no row is left."""
    entry = side.slices[number]
    if added is None and not len(gone):
        return {}, entry
    opened = side.open(number)
    left = opened.valid.copy()
    left[gone] = False
    others = np.flatnonzero(left)
    if added is None and not len(others):
        return _deleted(side, number), None
    none = opened.runs[0].at(np.zeros(0, np.int64))
    rows = _with_deadline(none, side.layout.expiry(number)) if added is None else added
    touched = pl.DataFrame({AT: np.zeros(len(gone), np.int64)})
    changes = SliceChanges(side.store, number, entry, opened.runs, gone, others, touched)
    writes, changed = slice_deltas.end(changes, rows, (HASH, AT))
    return writes, replace(changed, due_watermark=side.layout.expiry(number))


def _with_deadline(rows: pl.DataFrame, expiry: int) -> pl.DataFrame:
    return rows.with_columns(pl.lit(expiry, pl.Int64).alias(DUE_WATERMARK), pl.lit(None, pl.Int64).alias(DUE_CLOCK))


def _deleted(side: SideRows, number: int) -> dict[str, bytes | None]:
    entry = side.slices.get(number)
    if entry is None:
        return {}
    return dict.fromkeys((side.store.place(number), *side.store.delta_places(number, entry.deltas)))


def _distinct(places: Sequence[Longs]) -> Longs:
    return np.unique(np.concatenate(places)) if places else np.zeros(0, np.int64)
