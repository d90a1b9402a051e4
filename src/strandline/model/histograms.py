"""How long things took, or how late they came, in buckets that grow with the time: they merge, and take little room.

Four buckets lie between a time and its double, so that a percentile is off by a tenth at most. Times are milliseconds;
bucket 0 holds those below one, bucket n those from 2^((n-1)/4) up to 2^(n/4).
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

PER_OCTAVE: Final = 4


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts by bucket, in the order of the buckets."""

    counts: tuple[tuple[int, int], ...] = ()

    @property
    def total(self) -> int:
        return sum(many for _, many in self.counts)

    def __add__(self, other: "Histogram") -> "Histogram":
        return histogram(Counter(dict(self.counts)) + Counter(dict(other.counts)))

    def percentile(self, share: float) -> float | None:
        """The time in milliseconds that this share of all does not exceed; None where there are none."""
        needed, passed = share * self.total, 0
        for bucket, many in self.counts:
            passed += many
            if passed >= needed:
                return middle(bucket)
        return None

    def share_within(self, ms: float) -> float:
        """The share of all that took no longer: what would be complete after such a wait."""
        total = self.total
        return 1.0 if total == 0 else sum(many for bucket, many in self.counts if upper(bucket) <= ms) / total

    def bars(self) -> Iterator[tuple[float, float, int]]:
        """Each bucket as (from, to, how many), in milliseconds."""
        return ((lower(bucket), upper(bucket), many) for bucket, many in self.counts)


def histogram(counts: Mapping[int, int]) -> Histogram:
    """Of counts by bucket."""
    return Histogram(tuple(sorted((bucket, many) for bucket, many in counts.items() if many)))


def of_times(times: Iterable[float]) -> Histogram:
    """Of times in milliseconds."""
    return histogram(Counter(bucket_of(each) for each in times))


def bucket_of(ms: float) -> int:
    return 0 if ms < 1 else 1 + math.floor(math.log2(ms) * PER_OCTAVE)


def lower(bucket: int) -> float:
    return 0.0 if bucket <= 0 else float(2 ** ((bucket - 1) / PER_OCTAVE))


def upper(bucket: int) -> float:
    return float(2 ** (max(bucket, 0) / PER_OCTAVE))


def middle(bucket: int) -> float:
    """What a bucket's times are taken for: off by a tenth at most."""
    return 0.0 if bucket <= 0 else math.sqrt(lower(bucket) * upper(bucket))
