"""Clocks that are wrong: times in the future, times long gone, partitions whose clock is ahead of the others."""

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from strandline.advise.sample import ARRIVAL, PARTITION, TIME, Sample

AHEAD, PACE = "ahead", "pace"
"""PACE is when an element came, as far as that is known: its arrival, or the highest time shown before it."""
_SLACK: Final = 1_000
"""Clocks of two machines differ by this much without being wrong."""
_LEAP: Final = 600_000
_AROUND: Final = 101
_LONG_GONE: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Clocks:
    """What is wrong, in shares of the sample and milliseconds."""

    future: float
    """The share of elements that claim to come before they happened; told by their neighbours without arrivals."""
    farthest_future: int
    usual_future: int
    """How far ahead 99 % of those are at most that are no leaps: what a bound for the future must let through."""
    past: float
    """The share of elements that are more than a day behind."""
    fast: tuple[tuple[str, int], ...]
    """Partitions most of whose elements come before they happened, and by how much."""


def with_ahead(sample: Sample, now: int) -> pl.DataFrame:
    """The rows, with AHEAD where an element's time cannot be, as it would carry the watermark away; and with PACE."""
    if sample.has_arrivals:
        late = (pl.col(TIME) > pl.col(ARRIVAL) + _LEAP).alias(AHEAD)
        return sample.rows.with_columns(late, pl.col(ARRIVAL).alias(PACE))
    around = pl.col(TIME).rolling_median(_AROUND, center=True, min_samples=1).over(PARTITION)
    known = sample.rows.with_columns((pl.col(TIME) - around).alias("@off"))
    usual: Any = known["@off"].abs().quantile(0.95, "higher")
    leap = max(_LEAP, 10 * int(usual or 0))
    judged = known.with_columns(((pl.col("@off") > leap) | (pl.col(TIME) > now + _LEAP)).alias(AHEAD)).drop("@off")
    return judged.with_columns(front().alias(PACE))


def front() -> pl.Expr:
    """The highest time that the partition has shown up to here; elements that are ahead show nothing."""
    return pl.when(~pl.col(AHEAD)).then(TIME).cum_max().forward_fill().over(PARTITION)


def clocks(rows: pl.DataFrame, sample: Sample) -> Clocks:
    """Of rows with AHEAD."""
    shown = front()
    past = rows.select(((shown - pl.col(TIME) > _LONG_GONE) & ~pl.col(AHEAD)).mean()).item() or 0.0
    if not sample.has_arrivals:
        leaps = rows.select((pl.col(TIME) - shown).filter(pl.col(AHEAD)).max()).item()
        return Clocks(float(rows[AHEAD].mean() or 0.0), int(leaps or 0), 0, float(past), ())  # type: ignore[arg-type]
    ahead = pl.col(TIME) - pl.col(ARRIVAL)
    wrong = rows.filter(ahead > _SLACK)
    usual = wrong.filter(~pl.col(AHEAD)).select(ahead.quantile(0.99, "higher")).item()
    fast = rows.filter(~pl.col(AHEAD)).group_by(PARTITION).agg(ahead.median().alias("by")).filter(pl.col("by") > _SLACK)
    return Clocks(
        wrong.height / rows.height,
        int(wrong.select(ahead.max()).item() or 0),
        int(usual or 0),
        float(past),
        tuple((name, int(by)) for name, by in fast.sort("by", descending=True).iter_rows()),
    )
