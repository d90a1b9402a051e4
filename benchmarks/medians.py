"""Medians and spreads of repeated runs; two cells are compared round by round, so that the machine's mood cancels."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median, quantiles


@dataclass(frozen=True, slots=True)
class Spread:
    """The middle of some values and how far they lie apart."""

    median: float
    low: float
    high: float
    iqr: float
    rounds: int


def spread(values: list[float]) -> Spread:
    """The median, the ends, and the middle half of some values."""
    if not values:
        raise ValueError("there is nothing to take the middle of")
    lower, _, upper = quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return Spread(median(values), min(values), max(values), upper - lower, len(values))


def ratios(mine: Mapping[int, float], theirs: Mapping[int, float]) -> list[float]:
    """One value over the other, for each round in which both were measured."""
    return [mine[round_] / theirs[round_] for round_ in sorted(mine.keys() & theirs.keys())]


def percentile(values: list[float], share: float) -> float:
    """The value below which this share of the others lies; the nearest one there is."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
