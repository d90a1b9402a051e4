"""Keep the versions of each key: those that are ahead or still needed by time, the newest older one by key.

    "versions_<level>:<n>"  versions by event time; a slice is deleted when no row that is emitted later can need it
    "current_whole:0"       the newest version of each key before these slices
    "current:<n>"           the same in slices by key, once there are many keys

A batch reads the slices up to the watermark, and of the current versions the slices of its keys. With a tolerance no
row needs an older version, so there are no current versions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import polars as pl

from strandline.kernel.blocks.block import AT
from strandline.kernel.blocks.small_frames import only
from strandline.kernel.join.as_of_search import Flags, Versions, as_of, new_versions, newest_of_each_key
from strandline.kernel.join.side_store import plus
from strandline.kernel.join.time_slices import Opened, TimeSlices, Writes, appended, deleted, opened, packed
from strandline.kernel.state.partitioning import key_slices
from strandline.kernel.state.slice_deltas import LARGE, MIN_RATIO
from strandline.kernel.state.slice_rows import Store
from strandline.kernel.state.slice_store import Slice, Slices, by_slice
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.model.temporal_join import Direction, TemporalJoin

CURRENT: Final = Store("current", "current")
WHOLE: Final = Store("current_whole", "current_whole")
MOST_WHOLE: Final = 8_192
"""Greatest number of keys whose versions are in one slice; several small slices cost more in each batch."""
DELETED: Final = "@deleted"
"""Whether a version is a deletion. Only joins that know deletions have the column."""
NAME: Final = "versions"


@dataclass(slots=True, eq=False)
class VersionStore:
    """The versions of one key group in one batch."""

    definition: TemporalJoin
    keys: Sequence[str]
    held: Mapping[str, bytes]
    ahead: TimeSlices
    current: dict[int, Slice]
    store: Store = WHOLE
    """The store of the current versions."""
    known: dict[int, Opened] = field(default_factory=dict)
    writes: Writes = field(default_factory=dict)

    @classmethod
    def read(
        cls, definition: TemporalJoin, keys: Sequence[str], held: Mapping[str, bytes], stores: Mapping[str, Slices]
    ) -> "VersionStore":
        ahead = TimeSlices.read(NAME, keys, held, stores)
        store = CURRENT if stores.get(CURRENT.name) else WHOLE
        return cls(definition, keys, held, ahead, dict(stores.get(store.name, {})), store)

    @property
    def _reach(self) -> int | None:
        return None if self.definition.reach is None else self.definition.reach.ms

    def passed(self, number: int, watermark: int) -> bool:
        """Tell whether rows that are emitted or corrected later need at most the newest version of a slice."""
        last = self.ahead.bounds(number)[1] + (self._reach or 0) + self.definition.corrections.ms
        return last <= watermark

    def parts(self, rows: pl.DataFrame) -> list[Versions]:
        """Return the blocks that may have a version of these rows, older ones first."""
        times = rows[AT].to_numpy()
        first, last = int(times.min()), int(times.max())
        tolerance = self.definition.tolerance
        back = NEVER if tolerance is None else first - tolerance.ms
        low = first if self.definition.direction is Direction.FORWARD else back
        high = last if tolerance is None or self.definition.direction is Direction.BACKWARD else last + tolerance.ms
        found: list[Versions] = []
        if tolerance is None and self.current:
            for number in self._key_slices(rows):
                found += self._open(number).versions()
        for number in self.ahead.between(max(low, NEVER), min(high, FOREVER)):
            found += self.ahead.open(number).versions()
        return found

    def _key_slices(self, rows: pl.DataFrame) -> list[int]:
        numbers = self._numbers(rows).unique()
        return [number for number in sorted(numbers) if number in self.current]

    def _numbers(self, rows: pl.DataFrame) -> pl.Series:
        """Return the slice of the current version of each row."""
        if self.store is WHOLE:
            return pl.Series("slice", np.zeros(rows.height, np.int64))
        return key_slices(only(rows, self.keys))

    def _open(self, number: int) -> Opened:
        if number not in self.known:
            self.known[number] = opened(self.held, self.store, number, self.current[number], self.keys)
        return self.known[number]

    def is_ended(self, new: pl.DataFrame, watermark: int) -> Flags:
        """Tell which new versions are not needed by any row that is emitted or corrected after this watermark."""
        times = new[AT].to_numpy()
        if watermark == NEVER:
            return np.zeros(len(times), np.bool_)
        reached = int(plus(np.array([watermark]), -self.definition.corrections.ms)[0])
        if watermark == FOREVER:
            return np.ones(len(times), np.bool_)
        ended = np.zeros(len(times), np.bool_)
        if self._reach is not None:
            ended |= plus(times, self._reach) <= reached
        behind = np.flatnonzero((times < reached) & ~ended)
        if self.definition.direction is not Direction.BACKWARD or not len(behind):
            return ended
        # The last version at or before the watermark ends those before it.
        asked = new[behind].with_columns(pl.lit(reached, pl.Int64).alias(AT))
        parts = [*self.parts(asked), new_versions(new)]
        found = as_of(parts, asked, self.keys, Direction.BACKWARD, None)
        for number, part in enumerate(parts):
            mine = np.flatnonzero(found.part == number)
            ended[behind[mine]] = part.times[found.place[mine]] > times[behind[mine]]
        return ended

    def add(self, new: pl.DataFrame | None, watermark: int) -> None:
        """Store new versions, and keep only the newest version of each key of slices that the watermark has passed."""
        passed = [number for number in self.ahead.slices if self.passed(number, watermark)]
        if new is not None and new.height:
            self._mark_replaced(new)
            numbers = self.ahead.numbers(new)
            over = np.isin(numbers, [each for each in np.unique(numbers).tolist() if self.passed(each, watermark)])
            ahead = new if not over.any() else new.filter(pl.Series(~over))
            older = [new.filter(pl.Series(over))] if over.any() else []
        else:
            ahead, older = None, []
        if self._reach is None:
            stored = [part for number in sorted(passed) for part in self.ahead.open(number).versions(kept=True)]
            self._keep_newest([*stored, *(new_versions(each) for each in older)])
        self.ahead.delete(passed)
        self.ahead.add(ahead)
        for number in self.ahead.slices:
            last = self.ahead.bounds(number)[1] + (self._reach or 0) + self.definition.corrections.ms
            self.ahead.set_deadline(number, last)

    def _mark_replaced(self, new: pl.DataFrame) -> None:
        """Mark stored versions with the key and time of a new one as replaced."""
        for number in sorted({*self.ahead.numbers(new).tolist()} & self.ahead.slices.keys()):
            slice_ = self.ahead.open(number)
            parts = slice_.versions()
            found = as_of(parts, new, self.keys, Direction.BACKWARD, 0)
            for run, part_number in zip(slice_.runs, range(len(parts)), strict=True):
                places = found.place[found.part == part_number]
                if len(places):
                    slice_.replaced.append(run.since + parts[part_number].in_block(places))

    def _keep_newest(self, parts: Sequence[Versions]) -> None:
        """Replace the current version of each key by the newest of these."""
        newest = newest_of_each_key(parts, self.keys)
        if newest is None:
            return
        if self.store is WHOLE and newest.height + sum(entry.rows for entry in self.current.values()) > MOST_WHOLE:
            newest = self._split(newest)
        for number, part in by_slice(newest, self._numbers(newest)).items():
            if number not in self.current:
                writes, self.current[number] = packed(self.store, number, part)
                self.writes |= writes
                continue
            slice_ = self._open(number)
            self._replace(slice_, part)
            entry, gone = slice_.entry, sum(len(each) for each in slice_.replaced)
            if entry.rows >= LARGE and (gone + part.height + entry.gone) * MIN_RATIO < entry.rows:
                writes, self.current[number] = appended(self.store, number, slice_, part)
                self.writes |= writes
            else:
                left = slice_.rows()
                both = part if left.is_empty() else pl.concat([left, part], how="diagonal_relaxed")
                self.writes |= deleted(self.store, number, entry)
                writes, self.current[number] = packed(self.store, number, both)
                self.writes |= writes

    def _split(self, newest: pl.DataFrame) -> pl.DataFrame:
        """Move from one slice to slices by key; return all current versions."""
        rows = [newest]
        for number, entry in self.current.items():
            slice_ = self._open(number)
            self._replace(slice_, newest)
            rows.append(slice_.rows())
            self.writes |= deleted(self.store, number, entry)
        self.current, self.known, self.store = {}, {}, CURRENT
        return pl.concat([each for each in rows if each.height], how="diagonal_relaxed")

    def _replace(self, slice_: Opened, rows: pl.DataFrame) -> None:
        """Mark the versions of these keys as replaced, whatever their time."""
        asked = rows.with_columns(pl.lit(FOREVER - 1).alias(AT))
        parts = slice_.versions()
        found = as_of(parts, asked, self.keys, Direction.BACKWARD, None)
        for number, run in enumerate(slice_.runs):
            places = found.place[found.part == number]
            if len(places):
                slice_.replaced.append(run.since + parts[number].in_block(places))

    def clear(self) -> None:
        """Delete everything: no row can come any more."""
        self.ahead.delete([*self.ahead.slices])
        for number, entry in self.current.items():
            self.writes |= deleted(self.store, number, entry)
        self.current = {}

    def result(self) -> tuple[Writes, dict[str, Slices]]:
        """Return the blocks to write and the slices of both stores."""
        stores: dict[str, Slices] = {self.store.name: self.current} if self.current else {}
        stores |= {self.ahead.store.name: self.ahead.slices} if self.ahead.slices else {}
        return {**self.ahead.writes, **self.writes}, stores
