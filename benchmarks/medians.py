"""Compute medians and spreads of runs; compare two cells round by round, so that the machine's speed cancels out."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median, quantiles


@dataclass(frozen=True, slots=True)
class Spread:
    """Median and spread of values."""

    median: float
    low: float
    high: float
    iqr: float
    rounds: int


def spread(values: list[float]) -> Spread:
    """Return median, extremes and quartiles of values."""
    if not values:
        raise ValueError("there is nothing to take the middle of")
    lower, _, upper = quantiles(values, n=4, method="inclusive") if len(values) > 1 else (values[0],) * 3
    return Spread(median(values), min(values), max(values), upper - lower, len(values))


def ratios(mine: Mapping[int, float], theirs: Mapping[int, float]) -> list[float]:
    """Return ratios for the rounds in which both were measured."""
    return [mine[round_] / theirs[round_] for round_ in sorted(mine.keys() & theirs.keys())]


def percentile(values: list[float], share: float) -> float:
    """Return a percentile by nearest rank."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
