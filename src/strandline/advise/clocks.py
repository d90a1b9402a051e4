"""Find wrong clocks: event times in the future, event times long past, partitions whose clock is ahead."""

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from strandline.advise.sample import ARRIVAL, PARTITION, TIME, Sample

AHEAD, PACE = "ahead", "pace"
"""AHEAD: the event time is in the future. PACE: the arrival time, or the highest event time before the element."""
_SLACK_MS: Final = 1_000
"""Clocks of two machines may differ by this much without being wrong."""
_LEAP_MS: Final = 600_000
_NEIGHBOURS: Final = 101
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Clocks:
    """Clock errors, in shares of the sample and milliseconds."""

    future: float
    """Share of elements with an event time after their arrival; judged by their neighbours if arrivals are unknown."""
    farthest_future: int
    usual_future: int
    """The 99 % quantile of future offsets below the leap limit: what a `future_bound` must let through."""
    past: float
    """Share of elements more than a day behind."""
    fast: tuple[tuple[str, int], ...]
    """Partitions most of whose event times are after arrival, with the median difference."""


def with_ahead(sample: Sample, now: int) -> pl.DataFrame:
    """Add PACE, and AHEAD for event times so far in the future that they would carry the watermark away."""
    if sample.has_arrivals:
        late = (pl.col(TIME) > pl.col(ARRIVAL) + _LEAP_MS).alias(AHEAD)
        return sample.rows.with_columns(late, pl.col(ARRIVAL).alias(PACE))
    around = pl.col(TIME).rolling_median(_NEIGHBOURS, center=True, min_samples=1).over(PARTITION)
    known = sample.rows.with_columns((pl.col(TIME) - around).alias("@off"))
    usual: Any = known["@off"].abs().quantile(0.95, "higher")
    leap = max(_LEAP_MS, 10 * int(usual or 0))
    judged = known.with_columns(((pl.col("@off") > leap) | (pl.col(TIME) > now + _LEAP_MS)).alias(AHEAD)).drop("@off")
    return judged.with_columns(front().alias(PACE))


def front() -> pl.Expr:
    """Return the highest event time of the partition so far, ignoring elements with AHEAD."""
    return pl.when(~pl.col(AHEAD)).then(TIME).cum_max().forward_fill().over(PARTITION)


def clocks(rows: pl.DataFrame, sample: Sample) -> Clocks:
    """Find clock errors in rows with AHEAD."""
    shown = front()
    past = rows.select(((shown - pl.col(TIME) > _DAY_MS) & ~pl.col(AHEAD)).mean()).item() or 0.0
    if not sample.has_arrivals:
        leaps = rows.select((pl.col(TIME) - shown).filter(pl.col(AHEAD)).max()).item()
        return Clocks(float(rows[AHEAD].mean() or 0.0), int(leaps or 0), 0, float(past), ())  # type: ignore[arg-type]
    ahead = pl.col(TIME) - pl.col(ARRIVAL)
    wrong = rows.filter(ahead > _SLACK_MS)
    usual = wrong.filter(~pl.col(AHEAD)).select(ahead.quantile(0.99, "higher")).item()
    fast = (
        rows.filter(~pl.col(AHEAD)).group_by(PARTITION).agg(ahead.median().alias("by")).filter(pl.col("by") > _SLACK_MS)
    )
    return Clocks(
        wrong.height / rows.height,
        int(wrong.select(ahead.max()).item() or 0),
        int(usual or 0),
        float(past),
        tuple((name, int(by)) for name, by in fast.sort("by", descending=True).iter_rows()),
    )
