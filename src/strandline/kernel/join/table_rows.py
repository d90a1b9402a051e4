"""Keep the rows of a table in slices by key hash, sorted by key hash, and find the rows of given keys.

A lookup opens only the slices of its keys. It reads their hashes, and of the rows with an equal hash the key and the
event time; other columns are read only of rows that the result shows. New rows and removals are appended as deltas.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.blocks.block import AT
from strandline.kernel.blocks.hashing import hashed
from strandline.kernel.blocks.small_frames import only
from strandline.kernel.join.hash_slices import can_split, slices_of, split
from strandline.kernel.join.pairs import Longs, ranges
from strandline.kernel.state import slice_deltas
from strandline.kernel.state.partitioning import ordered
from strandline.kernel.state.slice_deltas import LARGE, MIN_RATIO, Run, SliceChanges
from strandline.kernel.state.slice_rows import Store, valid_rows
from strandline.kernel.state.slice_store import DUE_CLOCK, DUE_WATERMARK, Slice, Slices, by_slice, pack_slice
from strandline.kernel.watermarks import FOREVER

HASH: Final = "@hash"
"""The upper half of the hash of the key: rows with equal halves have their keys compared."""
TABLE: Final = "@table"
"""The number of the table that a key with a null belongs to; -1 for other keys."""
_HALF: Final = np.uint64(32)

Flags = npt.NDArray[np.bool_]
Deadlines = Callable[[pl.DataFrame], pl.DataFrame]
"""Adds to rows when they are due."""


def table_store(number: int) -> Store:
    """Return the store of a table."""
    return Store(f"table{number + 1}", f"table{number + 1}")


def with_hash(rows: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Add the half hash of the key columns."""
    return rows.with_columns(pl.Series(HASH, (hashed(only(rows, keys)) >> _HALF).view(np.int64)))


def has_null(keys: pl.DataFrame) -> Flags:
    """Mark the rows with a null in their key, which match no row of another table."""
    if not any(column.null_count() for column in keys):
        return np.zeros(keys.height, np.bool_)
    found: Flags = keys.select(pl.any_horizontal(pl.all().is_null()).alias("null"))["null"].to_numpy()
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Keys:
    """Distinct keys, sorted by half hash. A key is known by its position.

    Null keys of different tables are different keys.
    """

    columns: pl.DataFrame
    hashes: Longs
    table: Longs
    """The number of the table that a null key belongs to; -1 for other keys."""

    @property
    def size(self) -> int:
        return len(self.hashes)

    def in_table(self, number: int | None) -> Longs:
        """Return the keys that rows of a table may have; all keys for None."""
        if number is None:
            return np.arange(self.size)
        return np.flatnonzero((self.table == -1) | (self.table == number))

    def are_equal(self, keys: Longs, rows: pl.DataFrame) -> Flags:
        """Compare keys with the key columns of rows, one by one."""
        same = np.ones(len(keys), np.bool_)
        for column in self.columns:
            same &= column.gather(keys).eq_missing(rows[column.name].cast(column.dtype)).to_numpy()
        return same

    def of_rows(self, rows: pl.DataFrame, number: int) -> Longs:
        """Return the key of each row of a table; every row has one."""
        hashes = rows[HASH].to_numpy()
        mine = self.in_table(number)
        first = np.searchsorted(self.hashes[mine], hashes, "left")
        many = np.searchsorted(self.hashes[mine], hashes, "right") - first
        if (many == 1).all():
            return mine[first]
        candidates, places = mine[ranges(first, many)], np.repeat(np.arange(len(hashes)), many)
        same = self.are_equal(candidates, only(rows, self.columns.columns)[places])
        return candidates[same]


def distinct_keys(frames: Sequence[pl.DataFrame], names: Sequence[str]) -> Keys:
    """Return the distinct keys of rows with HASH and TABLE."""
    parts = [only(frame, [HASH, TABLE, *names]) for frame in frames]
    rows = pl.concat(parts, how="vertical_relaxed").unique(maintain_order=True).sort(HASH, maintain_order=True)
    return Keys(only(rows, names), rows[HASH].to_numpy(), rows[TABLE].to_numpy())


@dataclass(frozen=True, slots=True, eq=False)
class OpenSlice:
    """A slice that a batch reads: its runs and its valid rows."""

    number: int
    entry: Slice
    runs: tuple[Run, ...]
    valid: Flags


@dataclass(slots=True, eq=False)
class StoredRows:
    """The rows of a table that have one of the keys of a batch, in order of slice and position."""

    store: Store
    slices: Slices
    opened: dict[int, OpenSlice] = field(default_factory=dict)
    slice_numbers: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    places: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    """Position of each row in its slice."""
    keys: Longs = field(default_factory=lambda: np.zeros(0, np.int64))
    times: Longs = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def height(self) -> int:
        return len(self.keys)

    def at(self, rows: Longs) -> pl.DataFrame:
        """Read some rows, by increasing numbers."""
        parts = []
        for number, opened in self.opened.items():
            places = self.places[rows[self.slice_numbers[rows] == number]]
            parts += [run.at(own) for run in opened.runs if len(own := run.among(places))]
        return pl.concat(parts, how="diagonal_relaxed") if parts else pl.DataFrame()


def find_rows(
    held: Mapping[str, bytes],
    store: Store,
    slices: Slices,
    keys: Keys,
    number: int | None,
    also: Collection[int] = (),
) -> StoredRows:
    """Find the stored rows of a table that have one of these keys, and open these slices too.

    Without a number the rows have TABLE, which must be that of the key.
    """
    found = StoredRows(store, slices)
    mine = keys.in_table(number)
    of_slice = slices_of(keys.hashes[mine], slices)
    parts: list[tuple[Longs, Longs, Longs, Longs]] = []
    for each in sorted({*np.unique(of_slice).tolist(), *also} & slices.keys()):
        runs = slice_deltas.read_runs(held, store, each, slices[each], [HASH])
        valid = valid_rows(sum(run.names.height for run in runs), (run.gone for run in runs))
        found.opened[each] = OpenSlice(each, slices[each], runs, valid)
        wanted = mine[of_slice == each]
        for run in runs:
            rows, matched = _rows_with(run, keys, wanted)
            alive = valid[run.since + rows]
            rows, matched = rows[alive], matched[alive]
            if not len(rows):
                continue
            extra = [] if number is not None else [TABLE]
            read = run.block.frame(store.rows, [*keys.columns.columns, AT, *extra], rows=rows)
            same = keys.are_equal(matched, read)
            if number is None:
                same &= keys.table[matched] == read[TABLE].to_numpy()
            rows, matched, times = rows[same], matched[same], read[AT].to_numpy()[same]
            order = np.argsort(rows, kind="stable")
            parts.append((np.full(len(rows), each), run.since + rows[order], matched[order], times[order]))
    if parts:
        columns = (np.concatenate(each) for each in zip(*parts, strict=True))
        found.slice_numbers, found.places, found.keys, found.times = columns
    return found


def _rows_with(run: Run, keys: Keys, wanted: Longs) -> tuple[Longs, Longs]:
    """Return the rows of a run whose hash is that of a wanted key, each with the key."""
    hashes = run.names[HASH].to_numpy()
    first = np.searchsorted(hashes, keys.hashes[wanted], "left")
    many = np.searchsorted(hashes, keys.hashes[wanted], "right") - first
    return ranges(first, many), np.repeat(wanted, many)


def with_deadlines(rows: pl.DataFrame) -> pl.DataFrame:
    """Add deadlines that never come: rows of tables are removed by their key."""
    return rows.with_columns(pl.lit(FOREVER).alias(DUE_WATERMARK), pl.lit(None, pl.Int64).alias(DUE_CLOCK))


def write_table(
    stored: StoredRows,
    new: pl.DataFrame | None,
    gone: Longs,
    deadlines: Deadlines = with_deadlines,
    whole: Collection[int] = (),
) -> tuple[dict[str, bytes | None], Slices]:
    """Add new rows with HASH, remove stored rows by number; return the blocks to write and the slices.

    Slices in `whole` are written without deltas, with the deadlines of all of their rows.
    """
    slices = dict(stored.slices)
    parts: dict[int, pl.DataFrame] = {}
    if new is not None and new.height:
        parts = by_slice(deadlines(new), pl.Series("slice", slices_of(new[HASH].to_numpy(), slices)))
    removed = {int(each) for each in np.unique(stored.slice_numbers[gone])}
    writes: dict[str, bytes | None] = {}
    for number in sorted({*parts, *removed, *whole}):
        if number in slices:
            places = np.sort(stored.places[gone[stored.slice_numbers[gone] == number]])
            del slices[number]
            changes = _Changes(stored.store, stored.opened[number], parts.get(number), places)
            changed, entries = changes.written(deadlines, is_whole=number in whole)
        else:
            changed, entries = _packed(stored.store, number, parts[number])
        writes |= changed
        slices |= entries
    return writes, slices


def _packed(store: Store, number: int, rows: pl.DataFrame) -> tuple[dict[str, bytes | None], dict[int, Slice]]:
    """Write all rows of a slice, split if they are many."""
    writes: dict[str, bytes | None] = {}
    entries: dict[int, Slice] = {}
    for each, part in split(number, ordered(rows, (HASH, AT)), HASH):
        writes[store.place(each)], entries[each] = pack_slice(store, part, {})
    return writes, entries


@dataclass(frozen=True, slots=True, eq=False)
class _Changes:
    """What a batch adds to a slice, and the positions of the rows that it removes."""

    store: Store
    opened: OpenSlice
    added: pl.DataFrame | None
    gone: Longs

    def written(self, deadlines: Deadlines, *, is_whole: bool) -> tuple[dict[str, bytes | None], dict[int, Slice]]:
        """Write a delta, or all rows if there are few or too many, or many are gone. No slice: no row is left."""
        opened, added = self.opened, self.added
        left = opened.valid.copy()
        left[self.gone] = False
        others = np.flatnonzero(left)
        if added is None and not len(others):
            return self._deleted(), {}
        if is_whole or self._is_rewritten(len(others)):
            kept = [deadlines(run.at(own)) for run in opened.runs if len(own := run.among(others))]
            rows = pl.concat([*kept, *([] if added is None else [added])], how="diagonal_relaxed")
            writes, entries = _packed(self.store, opened.number, rows)
            return {**self._deleted(), **writes}, entries
        rows = deadlines(opened.runs[0].at(np.zeros(0, np.int64))) if added is None else added
        touched = pl.DataFrame({AT: np.zeros(len(self.gone), np.int64)})
        changes = SliceChanges(self.store, opened.number, opened.entry, opened.runs, self.gone, others, touched)
        writes, entry = slice_deltas.end(changes, rows, (HASH, AT))
        return writes, {opened.number: entry}

    def _is_rewritten(self, others: int) -> bool:
        entry, added = self.opened.entry, 0 if self.added is None else self.added.height
        too_many = can_split(self.opened.number, others + added)
        return too_many or entry.rows < LARGE or (entry.gone + len(self.gone)) * MIN_RATIO >= entry.rows

    def _deleted(self) -> dict[str, bytes | None]:
        """Delete the slice with its deltas."""
        places = self.store.delta_places(self.opened.number, self.opened.entry.deltas)
        return dict.fromkeys((self.store.place(self.opened.number), *places))
