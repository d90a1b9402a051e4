"""Keep rows in slices of event time whose length follows from the data.

    "<name>_<level>:<n>"  rows of the n-th slice; a slice of the next level is four times as long

Rows far ahead of the watermark, such as a history of versions that is read at once, would need too many short slices.
When there are too many, all rows move to longer ones; when few are left, they move back.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import AT
from strandline.kernel.join.as_of_search import Flags, Versions, versions_of
from strandline.kernel.join.pairs import Longs
from strandline.kernel.join.side_store import HASH
from strandline.kernel.state import slice_deltas
from strandline.kernel.state.partitioning import ordered
from strandline.kernel.state.slice_deltas import Run, SliceChanges
from strandline.kernel.state.slice_rows import ROW, Store, valid_rows
from strandline.kernel.state.slice_store import DUE_CLOCK, DUE_WATERMARK, Slice, Slices, by_slice, pack_slice
from strandline.kernel.watermarks import FOREVER, NEVER

SHORTEST: Final = 4_000
"""Length of a slice of the lowest level, in milliseconds."""
_STEP: Final = 4
MOST: Final = 64
"""Greatest number of slices of one store."""
_FEW: Final = 4
"""Up to this many slices are moved to the level below."""
NAMES: Final = (HASH, AT)
_NO_PLACES: Final = np.zeros(0, np.int64)

Writes = dict[str, bytes | None]


@dataclass(slots=True, eq=False)
class Opened:
    """The runs of a slice, which of their rows are valid, and the rows that this batch replaces."""

    entry: Slice
    runs: tuple[Run, ...]
    valid: Flags
    replaced: list[Longs] = field(default_factory=list)

    def versions(self, *, kept: bool = False) -> list[Versions]:
        """Return the valid versions of each run; with `kept` those that this batch does not replace."""
        left = self._kept() if kept else self.valid
        return [versions_of(run, left[run.since : run.since + run.names.height]) for run in self.runs]

    def _kept(self) -> Flags:
        if not self.replaced:
            return self.valid
        left = self.valid.copy()
        left[np.concatenate(self.replaced)] = False
        return left

    def times(self) -> Longs:
        return np.concatenate([run.names[AT].to_numpy() for run in self.runs])

    def rows(self, wanted: Flags | None = None) -> pl.DataFrame:
        """Read the rows that are valid, not replaced, and wanted."""
        left = self._kept() if wanted is None else self._kept() & wanted
        if left.all() and len(self.runs) == 1:
            return self.runs[0].block.frame(self.runs[0].store.rows).drop(ROW, strict=False)
        places = np.flatnonzero(left)
        parts = [run.at(rows) for run in self.runs if len(rows := run.among(places))]
        return pl.concat(parts, how="diagonal_relaxed") if parts else pl.DataFrame()


def opened(held: Mapping[str, bytes], store: Store, number: int, entry: Slice, keys: Sequence[str]) -> Opened:
    """Read key hashes, times and keys of a slice."""
    runs = slice_deltas.read_runs(held, store, number, entry, (*NAMES, *keys))
    return Opened(entry, runs, valid_rows(sum(run.names.height for run in runs), (run.gone for run in runs)))


def deleted(store: Store, number: int, entry: Slice) -> Writes:
    """Delete a slice with its deltas."""
    return dict.fromkeys((store.place(number), *store.delta_places(number, entry.deltas)))


def appended(store: Store, number: int, slice_: Opened, rows: pl.DataFrame) -> tuple[Writes, Slice]:
    """Add rows to a slice as a delta, in place of the replaced ones."""
    places = np.unique(np.concatenate(slice_.replaced)) if slice_.replaced else _NO_PLACES
    left = slice_.valid.copy()
    left[places] = False
    touched = pl.DataFrame({AT: np.zeros(len(places), np.int64)})
    changes = SliceChanges(store, number, slice_.entry, slice_.runs, places, np.flatnonzero(left), touched)
    return slice_deltas.end(changes, without_deadline(rows), NAMES)


def packed(store: Store, number: int, rows: pl.DataFrame) -> tuple[Writes, Slice]:
    """Write a slice anew."""
    data, entry = pack_slice(store, ordered(without_deadline(rows), NAMES, ()), {})
    return {store.place(number): data}, entry


def without_deadline(rows: pl.DataFrame) -> pl.DataFrame:
    """Add the columns of deadlines. The operator sets the deadline of a slice as a whole."""
    return rows.with_columns(pl.lit(FOREVER).alias(DUE_WATERMARK), pl.lit(None, pl.Int64).alias(DUE_CLOCK))


@dataclass(slots=True, eq=False)
class TimeSlices:
    """A store of rows in slices of event time, in one batch."""

    name: str
    keys: Sequence[str]
    """Key columns that are read with the times."""
    held: Mapping[str, bytes]
    level: int
    slices: dict[int, Slice]
    known: dict[int, Opened] = field(default_factory=dict)
    writes: Writes = field(default_factory=dict)

    @classmethod
    def read(
        cls, name: str, keys: Sequence[str], held: Mapping[str, bytes], stores: Mapping[str, Slices]
    ) -> "TimeSlices":
        """Find the store and its level in an index."""
        prefix = f"{name}_"
        level = next((int(each.removeprefix(prefix)) for each in stores if each.startswith(prefix)), 0)
        return cls(name, keys, held, level, dict(stores.get(f"{name}_{level}", {})))

    @property
    def store(self) -> Store:
        return store_at(self.name, self.level)

    @property
    def span(self) -> int:
        return SHORTEST * int(_STEP**self.level)

    def bounds(self, number: int) -> tuple[int, int]:
        """Return the first and the last time of a slice."""
        return max(number * self.span, NEVER), min((number + 1) * self.span - 1, FOREVER)

    def open(self, number: int) -> Opened:
        if number not in self.known:
            self.known[number] = opened(self.held, self.store, number, self.slices[number], self.keys)
        return self.known[number]

    def between(self, first: int, last: int) -> list[int]:
        """Return the slices that may have rows with times from first to last."""
        low, high = first // self.span, last // self.span
        return sorted(number for number in self.slices if low <= number <= high)

    def numbers(self, rows: pl.DataFrame) -> Longs:
        found: Longs = rows[AT].to_numpy() // self.span
        return found

    def delete(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.writes |= deleted(self.store, number, self.slices.pop(number))

    def add(self, rows: pl.DataFrame | None) -> None:
        """Add rows, in place of those that are marked as replaced."""
        new = None if rows is None or rows.is_empty() else rows
        level = self._fitting_level(_NO_PLACES if new is None else np.unique(self.numbers(new)))
        if level != self.level:
            self._move(level, new)
        elif new is not None:
            for number, part in by_slice(new, pl.Series("slice", self.numbers(new))).items():
                if number in self.slices:
                    writes, self.slices[number] = appended(self.store, number, self.open(number), part)
                else:
                    writes, self.slices[number] = packed(self.store, number, part)
                self.writes |= writes

    def set_deadline(self, number: int, watermark: int, hold: int | None = None) -> None:
        """Set the watermark at which a slice is read next, and the time below which it holds the output watermark."""
        self.slices[number] = replace(self.slices[number], due_watermark=min(watermark, FOREVER), hold=hold)

    def _fitting_level(self, added: Longs) -> int:
        """Return a level with longer slices if there are too many, with shorter ones if there are few."""
        numbers = {*self.slices, *added.tolist()}
        level = self.level
        if len(numbers) > MOST:
            while len({number // _STEP ** (level - self.level) for number in numbers}) > MOST // _STEP:
                level += 1
        elif self.slices and len(numbers) <= _FEW and level > 0:
            level -= 1
        return level

    def _move(self, level: int, new: pl.DataFrame | None) -> None:
        """Write all rows again, in the slices of another level."""
        found = [self.open(number).rows() for number in sorted(self.slices)]
        found += [] if new is None else [new]
        self.delete([*self.slices])
        self.level, self.known = level, {}
        rows = pl.concat([each for each in found if each.height], how="diagonal_relaxed")
        for number, part in by_slice(rows, pl.Series("slice", self.numbers(rows))).items():
            writes, self.slices[number] = packed(self.store, number, part)
            self.writes |= writes


def store_at(name: str, level: int) -> Store:
    """Return the store of a level."""
    return Store(f"{name}_{level}", f"{name}_{level}")
