"""Count durations and latenesses in exponential buckets: they merge, and take little space.

There are four buckets between a time and its double, so a percentile is off by a tenth at most. Times are milliseconds;
bucket 0 holds times below one, bucket n times from 2^((n-1)/4) up to 2^(n/4).
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

PER_OCTAVE: Final = 4


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by bucket, in bucket order."""

    counts: tuple[tuple[int, int], ...] = ()

    @property
    def total(self) -> int:
        return sum(many for _, many in self.counts)

    def __add__(self, other: "Histogram") -> "Histogram":
        return histogram(Counter(dict(self.counts)) + Counter(dict(other.counts)))

    def percentile(self, share: float) -> float | None:
        """Return the time in milliseconds that this share of all times does not exceed; None without any."""
        needed, passed = share * self.total, 0
        for bucket, many in self.counts:
            passed += many
            if passed >= needed:
                return middle(bucket)
        return None

    def share_within(self, ms: float) -> float:
        """Return the share of times up to `ms`: what is complete after such a wait."""
        total = self.total
        return 1.0 if total == 0 else sum(many for bucket, many in self.counts if upper(bucket) <= ms) / total

    def bars(self) -> Iterator[tuple[float, float, int]]:
        """Yield each bucket as (from, to, count), in milliseconds."""
        return ((lower(bucket), upper(bucket), many) for bucket, many in self.counts)


def histogram(counts: Mapping[int, int]) -> Histogram:
    """Build a histogram from counts by bucket."""
    return Histogram(tuple(sorted((bucket, many) for bucket, many in counts.items() if many)))


def of_times(times: Iterable[float]) -> Histogram:
    """Build a histogram from times in milliseconds."""
    return histogram(Counter(bucket_of(each) for each in times))


def bucket_of(ms: float) -> int:
    return 0 if ms < 1 else 1 + math.floor(math.log2(ms) * PER_OCTAVE)


def lower(bucket: int) -> float:
    return 0.0 if bucket <= 0 else float(2 ** ((bucket - 1) / PER_OCTAVE))


def upper(bucket: int) -> float:
    return float(2 ** (max(bucket, 0) / PER_OCTAVE))


def middle(bucket: int) -> float:
    """Return the time that represents a bucket: off by a tenth at most."""
    return 0.0 if bucket <= 0 else math.sqrt(lower(bucket) * upper(bucket))
