"""Find the pairs of rows with equal keys and close event times in two blocks that are sorted by key hash and time.

The cost grows with the rows of keys that both blocks have, and with the number of pairs. A hot key costs its pairs, not
all combinations of its rows.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

Longs = npt.NDArray[np.int64]

_WIDEST: Final = 1 << 60
"""Times and bounds below this can be added without overflow."""
_LONGEST: Final = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Sorted:
    """Key hashes and event times of rows, sorted by both."""

    hashes: Longs
    times: Longs


@dataclass(frozen=True, slots=True, eq=False)
class _Common:
    """The row ranges of the keys that two blocks share: one entry per key."""

    own_first: Longs
    own_end: Longs
    other_first: Longs
    other_end: Longs


def close_pairs(own: Sorted, other: Sorted, lower: int, upper: int) -> tuple[Longs, Longs]:
    """Return the positions of all pairs with equal hashes where `other - own` in event time is from lower to upper."""
    none = np.zeros(0, np.int64)
    if not len(own.hashes) or not len(other.hashes):
        return none, none
    keys = _common_keys(own.hashes, other.hashes)
    if not len(keys.own_first):
        return none, none
    rows, row_keys = _expand(keys.other_first, keys.other_end)
    times = other.times[rows]
    least, span = int(times.min()), int(times.max()) - int(times.min())
    stride = span + 2
    probes, probe_keys = _expand(keys.own_first, keys.own_end)
    if stride * len(keys.own_first) >= _LONGEST or not _is_narrow(own.times, other.times, lower, upper):
        return _pairs_by_key(own, other, keys, lower, upper)
    # Search all keys at once: shift the times of each key past those of the previous key, into one sorted array.
    line = row_keys * stride + (times - least)
    start = np.clip(own.times[probes] - least + lower, 0, span + 1)
    end = np.clip(own.times[probes] - least + upper, -1, span)
    first = np.searchsorted(line, probe_keys * stride + start, "left")
    many = np.maximum(np.searchsorted(line, probe_keys * stride + end, "right") - first, 0)
    return np.repeat(probes, many), rows[ranges(first, many)]


def _common_keys(own: Longs, other: Longs) -> _Common:
    """Return the row ranges of hashes in both blocks; search distinct hashes of the shorter one in the longer one."""
    swapped = len(other) < len(own)
    short, long = (other, own) if swapped else (own, other)
    begins = np.flatnonzero(np.append(True, short[1:] != short[:-1]))
    ends = np.append(begins[1:], len(short))
    values = short[begins]
    first = np.searchsorted(long, values, "left")
    hit = np.flatnonzero(long[np.minimum(first, len(long) - 1)] == values)
    begins, ends, first = begins[hit], ends[hit], first[hit]
    after = np.searchsorted(long, values[hit], "right")
    return _Common(first, after, begins, ends) if swapped else _Common(begins, ends, first, after)


def _expand(first: Longs, end: Longs) -> tuple[Longs, Longs]:
    """Return all positions in these ranges, and for each position the number of its range."""
    many = end - first
    return ranges(first, many), np.repeat(np.arange(len(first)), many)


def ranges(first: Longs, many: Longs) -> Longs:
    """Return the numbers `first, first + 1, …` of every range."""
    total = int(many.sum())
    found: Longs = np.repeat(first - (np.cumsum(many) - many), many) + np.arange(total)
    return found


def _is_narrow(own: Longs, other: Longs, lower: int, upper: int) -> bool:
    extremes = (int(own.min()), int(own.max()), int(other.min()), int(other.max()), lower, upper)
    return all(-_WIDEST < each < _WIDEST for each in extremes)


def _pairs_by_key(own: Sorted, other: Sorted, keys: _Common, lower: int, upper: int) -> tuple[Longs, Longs]:
    """Find pairs key by key, where shifted times would overflow 64 bits."""
    found, partners = [], []
    for own_first, own_end, first, end in zip(
        keys.own_first.tolist(), keys.own_end.tolist(), keys.other_first.tolist(), keys.other_end.tolist(), strict=True
    ):
        times = other.times[first:end]
        for place in range(own_first, own_end):
            at = int(own.times[place])
            low, high = (_clamped(at + bound) for bound in (lower, upper))
            begin, stop = np.searchsorted(times, low, "left"), np.searchsorted(times, high, "right")
            partners.append(np.arange(first + begin, first + stop))
            found.append(np.full(max(int(stop - begin), 0), place))
    return np.concatenate(found).astype(np.int64), np.concatenate(partners).astype(np.int64)


def _clamped(time: int) -> np.int64:
    return np.int64(min(max(time, -(2**63)), 2**63 - 1))
