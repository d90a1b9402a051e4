"""Keep the first element of each key: drop elements that are less than `within` away from an emitted one.

Rows of state are sorted by a hash of the key, so a batch looks its keys up by binary search; only rows with an equal
hash have their key compared. New rows are appended to the slice of their time; a slice expires as a whole.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.blocks.block import AT
from strandline.kernel.blocks.small_frames import only
from strandline.kernel.deduplicate.stores import (
    FIRST,
    HASH,
    deleted,
    first_slices,
    span_of,
    with_deadline,
    write_rows,
)
from strandline.kernel.operator import Batch
from strandline.kernel.state import slice_deltas
from strandline.kernel.state.slice_deltas import Run, SliceChanges
from strandline.kernel.state.slice_store import DUE_WATERMARK, Slice, Slices
from strandline.model.deduplicate import Deduplicate

Longs = npt.NDArray[np.int64]
_FEW = 64
"""Number of keys with several spans in a batch up to which a loop is faster than array operations."""


def keep_first(
    batch: Batch, elements: pl.DataFrame | None, keys: Sequence[str], definition: Deduplicate
) -> tuple[pl.DataFrame | None, dict[str, bytes | None], Slices]:
    """Return the elements that are not duplicates, the blocks to write and the slices after the batch.

    Elements have their keys, AT and HASH, and are sorted by HASH, then by time and position.
    """
    slices = dict(batch.index.store(FIRST.name))
    expired = {} if definition.within is None else _expired(slices, batch.now.after)
    writes: dict[str, bytes | None] = {}
    for number, entry in expired.items():
        writes |= deleted(FIRST, number, entry)
    fresh: pl.DataFrame | None = None
    if elements is not None and elements.height:
        runs = {number: _runs(batch, number, slices[number]) for number in _reached(elements, slices, definition)}
        unseen = elements.filter(~pl.Series(_in_state(elements, runs, keys, definition)))
        fresh = unseen.filter(pl.Series(_firsts(unseen, keys, definition)))
        if fresh.height:
            added, entries = _add(batch, fresh, keys, definition, slices, runs)
            writes |= added
            slices |= entries
    slices = {number: entry for number, entry in slices.items() if number not in expired}
    return fresh, writes, slices


def _expired(slices: Slices, watermark: int) -> Slices:
    return {number: entry for number, entry in slices.items() if entry.due_watermark <= watermark}


def _runs(batch: Batch, number: int, entry: Slice) -> tuple[Run, ...]:
    return slice_deltas.read_runs(batch.held, FIRST, number, entry, (HASH, AT))


def _reached(elements: pl.DataFrame, slices: Slices, definition: Deduplicate) -> list[int]:
    """Return the slices that may contain an emitted element within the deduplication span of one of these."""
    span = span_of(definition)
    if span is None or definition.within is None:
        return sorted(slices)
    times = elements[AT].to_numpy()
    least = (int(times.min()) - definition.within.ms) // span
    most = (int(times.max()) + definition.within.ms) // span
    return sorted(number for number in slices if least <= number <= most)


def _in_state(
    elements: pl.DataFrame, runs: Mapping[int, Sequence[Run]], keys: Sequence[str], definition: Deduplicate
) -> npt.NDArray[np.bool_]:
    """Mark the elements that duplicate an emitted element in state."""
    duplicate = np.zeros(elements.height, np.bool_)
    hashes, times = elements[HASH].to_numpy(), elements[AT].to_numpy()
    for run in (run for each in runs.values() for run in each):
        own, rows = _equal_pairs(hashes, run.names[HASH].to_numpy())
        if definition.within is not None:
            near = np.abs(run.names[AT].to_numpy()[rows] - times[own]) < definition.within.ms
            own, rows = own[near], rows[near]
        if len(own):
            same = _same_keys(only(elements, keys)[own], run.block.frame(FIRST.rows, keys, rows=rows))
            duplicate[own[same]] = True
    return duplicate


def _equal_pairs(one: Longs, other: Longs) -> tuple[Longs, Longs]:
    """Return the positions of all pairs of equal values in two sorted arrays; the shorter is searched in the longer."""
    swapped = len(other) < len(one)
    short, long = (other, one) if swapped else (one, other)
    if not len(short):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    first = np.searchsorted(long, short, "left")
    found = np.flatnonzero(long[np.minimum(first, len(long) - 1)] == short)
    begin = first[found]
    many = np.searchsorted(long, short[found], "right") - begin
    left = np.repeat(found, many)
    right = np.repeat(begin - np.cumsum(many) + many, many) + np.arange(len(left))
    return (right, left) if swapped else (left, right)


def _same_keys(one: pl.DataFrame, other: pl.DataFrame) -> npt.NDArray[np.bool_]:
    """Compare keys row by row: equal hashes may belong to different keys."""
    same = np.ones(one.height, np.bool_)
    for name in one.columns:
        same &= one[name].eq_missing(other[name].cast(one.schema[name])).to_numpy()
    return same


def _firsts(elements: pl.DataFrame, keys: Sequence[str], definition: Deduplicate) -> npt.NDArray[np.bool_]:
    """Mark the elements to emit: the earliest of each key, then each one at least `within` after the last emitted."""
    many = elements.height
    if not many:
        return np.zeros(0, np.bool_)
    begins = _begins(elements, keys)
    if definition.within is None:
        return begins
    first = begins.copy()
    starts = np.flatnonzero(begins)
    ends = np.append(starts[1:], many)
    times = elements[AT].to_numpy()
    # If all elements of a key are within the span of its first one, only the first is emitted.
    open_ = times[ends - 1] - times[starts] >= definition.within.ms
    following = _following(times, starts, ends, definition.within.ms) if open_.any() else starts
    at, end = starts[open_], ends[open_]
    while len(at) > _FEW:
        at = following[at]
        left = at < end
        at, end = at[left], end[left]
        first[at] = True
    for begin, stop in zip(at.tolist(), end.tolist(), strict=True):
        place = int(following[begin])
        while place < stop:
            first[place] = True
            place = int(following[place])
    return first


def _following(times: Longs, starts: Longs, ends: Longs, within: int) -> Longs:
    """Return per element the position of the first one of its key at least `within` later, or the end of the key."""
    found = np.empty(len(times), np.int64)
    key = np.repeat(np.arange(len(starts)), ends - starts)
    # One search over all keys: the times of each key are shifted after those of the previous key.
    least = times.min()
    stride = int(times.max() - least) + within + 1
    if stride * len(starts) < 2**62:
        line = key * stride + (times - least)
        found[:] = np.searchsorted(line, line + within, "left")
        return np.minimum(found, np.repeat(ends, ends - starts), out=found)
    for begin, end in zip(starts.tolist(), ends.tolist(), strict=True):
        own = times[begin:end]
        found[begin:end] = begin + np.searchsorted(own, own + within, "left")
    return found


def _begins(elements: pl.DataFrame, keys: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Mark the first row of each key; rows are grouped by key."""
    begins = np.ones(elements.height, np.bool_)
    if elements.height > 1:
        rows = only(elements, keys)
        begins[1:] = ~_same_keys(rows.slice(0, elements.height - 1), rows.slice(1))
    return begins


def _add(
    batch: Batch,
    fresh: pl.DataFrame,
    keys: Sequence[str],
    definition: Deduplicate,
    slices: Slices,
    runs: Mapping[int, tuple[Run, ...]],
) -> tuple[dict[str, bytes | None], dict[int, Slice]]:
    """Append emitted elements to the slices of their times."""
    rows = with_deadline(only(fresh, [*keys, AT, HASH]), definition)
    if definition.within is not None:
        rows = rows.filter(pl.col(DUE_WATERMARK) > batch.now.after)
    numbers = first_slices(rows, keys, definition)
    changing: dict[int, SliceChanges] = {
        number: slice_deltas.appending(
            FIRST, number, slices[number], runs[number] if number in runs else _runs(batch, number, slices[number])
        )
        for number in numbers.unique().to_list()
        if number in slices
    }
    return write_rows(FIRST, rows, numbers, changing)
