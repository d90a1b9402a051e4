"""Find the version of each row in blocks that are sorted by key hash and time.

Every row searches the times of its key by bisection, all rows at once. The cost grows with the rows that search, and
with the logarithm of the versions of a key, never with the size of the state.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.blocks.block import AT
from strandline.kernel.blocks.small_frames import only
from strandline.kernel.join.pairs import Longs
from strandline.kernel.join.side_store import HASH, plus
from strandline.kernel.state.slice_deltas import Run
from strandline.kernel.watermarks import FOREVER, NEVER
from strandline.model.temporal_join import Direction

Flags = npt.NDArray[np.bool_]
_NONE: Final = -1
_SIDES: Final[tuple[Literal["left"], Literal["right"]]] = ("left", "right")


@dataclass(frozen=True, slots=True, eq=False)
class Versions:
    """Valid versions of one block, sorted by key hash and time. Of one key and time there is one."""

    hashes: Longs
    times: Longs
    keys: pl.DataFrame
    """The key columns, maybe among others, of all rows of the block."""
    rows: Callable[[Longs], pl.DataFrame]
    """Reads rows by their position in the block."""
    left: Longs | None = None
    """Positions of the valid rows in the block; None if all are."""

    def in_block(self, places: Longs) -> Longs:
        """Return positions in the block of positions among valid rows."""
        return places if self.left is None else self.left[places]

    def at(self, places: Longs) -> pl.DataFrame:
        """Read valid rows."""
        return self.rows(self.in_block(places))

    def keys_at(self, places: Longs, names: Sequence[str]) -> pl.DataFrame:
        """Return the keys of valid rows."""
        return only(self.keys, names)[self.in_block(places)]


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The number of the block and the position of each row's version; the number is negative without a version."""

    part: Longs
    place: Longs

    @property
    def is_found(self) -> Flags:
        found: Flags = self.part >= 0
        return found


def versions_of(run: Run, valid: Flags) -> Versions:
    """Return the valid versions of a run. `valid` covers the rows of the run."""
    hashes, times = run.names[HASH].to_numpy(), run.names[AT].to_numpy()
    if valid.all():
        return Versions(hashes, times, run.names, run.at)
    left = np.flatnonzero(valid)
    return Versions(hashes[left], times[left], run.names, run.at, left)


def new_versions(rows: pl.DataFrame) -> Versions:
    """Return the versions of a sorted frame."""
    return Versions(rows[HASH].to_numpy(), rows[AT].to_numpy(), rows, lambda places: rows[places])


def as_of(
    parts: Sequence[Versions], rows: pl.DataFrame, keys: Sequence[str], direction: Direction, tolerance: int | None
) -> Found:
    """Find the version of each row. Rows are sorted by HASH. Of versions with one key and time the last block's counts.

    Different keys may have equal hashes. Rows that find a version of another key are searched one by one.
    """
    hashes, times = rows[HASH].to_numpy(), rows[AT].to_numpy()
    found = _nearest(parts, hashes, times, direction, tolerance)
    wrong = _of_other_keys(parts, rows, keys, found)
    if len(wrong):
        own = only(rows, keys)
        for row in wrong.tolist():
            found.part[row], found.place[row] = _search_one(
                parts, own[row], hashes[row], times[row], direction, tolerance
            )
    return found


def _nearest(
    parts: Sequence[Versions], hashes: Longs, times: Longs, direction: Direction, tolerance: int | None
) -> Found:
    match direction:
        case Direction.BACKWARD:
            return _within(*_search(parts, hashes, times, forward=False), times, tolerance)
        case Direction.FORWARD:
            return _within(*_search(parts, hashes, times, forward=True), times, tolerance)
        case Direction.NEAREST:
            earlier, before = _search(parts, hashes, times, forward=False)
            later, after = _search(parts, hashes, times, forward=True)
            # Distances fit in 64 unsigned bits.
            closer = (times.view(np.uint64) - before.view(np.uint64)) < (after.view(np.uint64) - times.view(np.uint64))
            first = earlier.is_found & (closer | ~later.is_found)
            part = np.where(first, earlier.part, later.part)
            place = np.where(first, earlier.place, later.place)
            return _within(Found(part, place), np.where(first, before, after), times, tolerance)


def _within(found: Found, at: Longs, times: Longs, tolerance: int | None) -> Found:
    """Forget versions further away than the tolerance."""
    if tolerance is None:
        return found
    near = (at >= plus(times, -tolerance)) & (at <= plus(times, tolerance))
    return Found(np.where(near, found.part, _NONE), found.place)


def _search(parts: Sequence[Versions], hashes: Longs, times: Longs, *, forward: bool) -> tuple[Found, Longs]:
    """Find the last version at or before each time, or the first at or after it; return its place and its time."""
    found = Found(np.full(len(hashes), _NONE), np.zeros(len(hashes), np.int64))
    at = np.full(len(hashes), FOREVER if forward else NEVER)
    if not len(hashes):
        return found, at
    begins = np.flatnonzero(np.append(True, hashes[1:] != hashes[:-1]))
    many = np.diff(np.append(begins, len(hashes)))
    distinct = hashes[begins]
    for number, part in enumerate(parts):
        if not len(part.hashes):
            continue
        first = np.searchsorted(part.hashes, distinct, "left")
        end = np.searchsorted(part.hashes, distinct, "right")
        if not (end > first).any():
            continue
        place, hit = _bisect(part.times, np.repeat(first, many), np.repeat(end, many), times, forward=forward)
        reached = part.times[place]
        better = hit & ((reached <= at) if forward else (reached >= at))
        found.part[better], found.place[better], at[better] = number, place[better], reached[better]
    return found, at


def _bisect(line: Longs, first: Longs, end: Longs, times: Longs, *, forward: bool) -> tuple[Longs, Flags]:
    """Search each time in its own range of a line; return positions, and whether there is one in the range."""
    low, high = first, end
    for _ in range(int((end - first).max()).bit_length()):
        middle = (low + high) >> 1
        reached = line[np.minimum(middle, len(line) - 1)]
        # A version with the time of the row counts in both directions.
        after = ((reached < times) if forward else (reached <= times)) & (low < high)
        low, high = np.where(after, middle + 1, low), np.where(after, high, middle)
    place = low if forward else low - 1
    hit = (place < end) if forward else (place >= first)
    return np.where(hit, place, 0), hit


def _of_other_keys(parts: Sequence[Versions], rows: pl.DataFrame, keys: Sequence[str], found: Found) -> Longs:
    """Return the rows whose version has another key of the same hash."""
    wrong = np.zeros(rows.height, np.bool_)
    for number, part in enumerate(parts):
        mine = np.flatnonzero(found.part == number)
        if len(mine):
            own = only(rows, keys)
            own = own if len(mine) == rows.height else own[mine]
            wrong[mine] = ~same_keys(own, part.keys_at(found.place[mine], keys), keys)
    return np.flatnonzero(wrong)


def same_keys(one: pl.DataFrame, other: pl.DataFrame, keys: Sequence[str]) -> Flags:
    """Compare the keys of two frames row by row."""
    same = np.ones(one.height, np.bool_)
    for name in keys:
        same &= one[name].eq_missing(other[name].cast(one.schema[name])).to_numpy()
    return same


def newest_of_each_key(parts: Sequence[Versions], keys: Sequence[str]) -> pl.DataFrame | None:
    """Read the newest version of each key, sorted by HASH; of one key and time the version of the last block."""
    found = [part for part in parts if len(part.hashes)]
    if not found:
        return None
    hashes = np.concatenate([part.hashes for part in found])
    order = np.lexsort((np.concatenate([part.times for part in found]), hashes))
    in_order = hashes[order]
    is_last = np.append(in_order[1:] != in_order[:-1], True)
    known = pl.concat([part.keys_at(np.arange(len(part.hashes)), keys) for part in found], how="vertical_relaxed")
    known = known[order]
    same = same_keys(known.slice(0, known.height - 1), known.slice(1), keys)
    if not (same | is_last[:-1]).all():  # different keys have equal hashes
        is_last = _last_of_each(known, keys)
    chosen, since, rows = order[is_last], 0, list[pl.DataFrame]()
    for part in found:
        end = since + len(part.hashes)
        mine = np.sort(chosen[(chosen >= since) & (chosen < end)])
        rows += [part.at(mine - since)] if len(mine) else []
        since = end
    return sorted_by_hash(pl.concat(rows, how="diagonal_relaxed"))


def _last_of_each(rows: pl.DataFrame, keys: Sequence[str]) -> Flags:
    """Mark the last row of each key."""
    last = np.zeros(rows.height, np.bool_)
    last[rows.with_row_index("@row").unique([*keys], keep="last")["@row"].to_numpy()] = True
    return last


def sorted_by_hash(rows: pl.DataFrame) -> pl.DataFrame:
    """Sort rows by HASH, stably."""
    hashes = rows[HASH].to_numpy()
    return rows if (hashes[1:] >= hashes[:-1]).all() else rows[np.argsort(hashes, kind="stable")]


def _search_one(
    parts: Sequence[Versions], key: pl.DataFrame, hash_: int, time: int, direction: Direction, tolerance: int | None
) -> tuple[int, int]:
    """Find the version of one row among all versions with its hash, comparing keys."""
    best: tuple[int, int] = (_NONE, 0)
    rank: tuple[int, int] | None = None
    for number, part in enumerate(parts):
        first, end = (int(np.searchsorted(part.hashes, hash_, side)) for side in _SIDES)
        places = np.arange(first, end)
        if not len(places):
            continue
        stored = part.keys_at(places, key.columns)
        same = same_keys(key[np.zeros(len(places), np.int64)], stored, [*key.columns])
        for place in places[same].tolist():
            distance = _distance(int(part.times[place]) - int(time), direction, tolerance)
            if distance is not None and (rank is None or distance <= rank):
                best, rank = (number, place), distance
    return best


def _distance(after: int, direction: Direction, tolerance: int | None) -> tuple[int, int] | None:
    """Rank a version by how far after the row it is: the distance, then the later one; None if it does not count."""
    wrong_side = (direction is Direction.BACKWARD and after > 0) or (direction is Direction.FORWARD and after < 0)
    if wrong_side or (tolerance is not None and abs(after) > tolerance):
        return None
    return abs(after), 0 if after > 0 else 1
