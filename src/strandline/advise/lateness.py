"""Measure how late elements are, and what completeness and delay a watermark delay gives.

An element is *behind* by the difference between the highest event time of its partition so far and its own:
`bounded(delay)` uses that. It is in the on-time pane of its window if the watermark (that highest time minus the delay
and one millisecond) had not passed the window's end. So a window needs a shorter delay than its elements are behind.
"""

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from strandline.advise.clocks import AHEAD, front
from strandline.advise.sample import ARRIVAL, KEY, PARTITION, TIME

BEHIND, NEED, WINDOW = "behind", "need", "window"
SHARES: Final = (0.95, 0.99, 0.999)
_CURVE: Final = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99, 0.995, 0.998, 0.999, 0.9995, 0.9999, 1.0)


@dataclass(frozen=True, slots=True)
class Wait:
    """A watermark delay that gets a share of all elements into the on-time panes, and its cost. Milliseconds."""

    share: float
    delay: int
    """The delay for windows of the requested size."""
    behind: int
    """The delay for windows of any size: the maximum by which this share of elements is behind."""
    told_after: int
    """Time from the end of a window to its on-time pane."""
    corrected: float
    """Share of results (one per key and window) that a later element still changes."""
    sure: bool
    """Whether the sample has enough elements beyond the share to be sure."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """The lateness curve, and the disorder of the elements."""

    window: int
    waits: tuple[Wait, ...]
    curve: tuple[tuple[int, float, float], ...]
    """Delays, each with the share of elements in time for windows, and the share not further behind."""
    out_of_order: float
    """Share of elements that arrive after one with a later event time."""
    farthest: int
    """The maximum by which an element is behind."""
    longest: int
    """The delay with which no element of the sample would have been late."""
    transit: tuple[int, int, int] | None
    """Time from event to arrival, quantiles 50 %, 99 % and 99.9 %; None if arrivals are unknown."""


def measured(rows: pl.DataFrame, window: int) -> pl.DataFrame:
    """Add BEHIND, and NEED: the delay with which an element is in the on-time pane of its window."""
    shown = rows.with_columns(front().alias("@front")).with_columns(pl.col("@front").shift(1).over(PARTITION))
    end = (pl.col(TIME) // window + 1) * window
    return shown.with_columns(
        (pl.col("@front") - pl.col(TIME)).clip(0).fill_null(0).alias(BEHIND),
        (pl.col("@front") - end + 1).clip(0).fill_null(0).alias(NEED),
        end.alias(WINDOW),
    ).drop("@front")


def lateness(rows: pl.DataFrame, window: int) -> Lateness:
    """Measure rows with AHEAD; elements with event times in the future are left out."""
    known = measured(rows, window).filter(~pl.col(AHEAD))
    transit = _transit(known)
    waits = tuple(_wait(known, share, 0 if transit is None else transit[0]) for share in SHARES)
    return Lateness(
        window,
        waits,
        _curve(known),
        float((known[BEHIND] > 0).mean() or 0.0),  # type: ignore[arg-type]
        int(known[BEHIND].max() or 0),  # type: ignore[arg-type]
        int(known[NEED].max() or 0),  # type: ignore[arg-type]
        transit,
    )


def in_time(rows: pl.DataFrame, window: int, delay: int) -> float:
    """Return the share of elements that a delay gets into the on-time pane of their window; of rows with AHEAD."""
    known = measured(rows, window).filter(~pl.col(AHEAD))
    return float((known[NEED] <= delay).mean() or 0.0)  # type: ignore[arg-type]


def _wait(known: pl.DataFrame, share: float, transit: int) -> Wait:
    delay = quantile(known[NEED], share)
    answers = known.group_by(KEY, WINDOW).agg((pl.col(NEED) > delay).any().alias("late"))
    return Wait(
        share,
        delay,
        quantile(known[BEHIND], share),
        delay + max(transit, 0),
        float(answers["late"].mean() or 0.0),  # type: ignore[arg-type]
        known.height * (1 - share) >= 10,
    )


def _curve(known: pl.DataFrame) -> tuple[tuple[int, float, float], ...]:
    delays = {0} | {quantile(known[name], share) for name in (BEHIND, NEED) for share in _CURVE}
    many = known.height
    need, behind = known[NEED].sort(), known[BEHIND].sort()
    return tuple(
        (delay, int(need.search_sorted(delay, "right")) / many, int(behind.search_sorted(delay, "right")) / many)
        for delay in sorted(delays)
    )


def _transit(known: pl.DataFrame) -> tuple[int, int, int] | None:
    took = known.select(pl.col(ARRIVAL) - pl.col(TIME)).to_series().drop_nulls()
    return None if took.is_empty() else (quantile(took, 0.5), quantile(took, 0.99), quantile(took, 0.999))


def quantile(values: pl.Series, share: float) -> int:
    """Return the smallest value that at least this share does not exceed."""
    found: Any = values.quantile(share, "higher")
    return int(found)
