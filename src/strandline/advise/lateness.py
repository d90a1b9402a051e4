"""How late elements come, and what waiting for them buys and costs.

An element is behind by how much its time is below the highest that its partition had shown before it: `bounded(delay)`
goes by that. It is in the first full answer of its window if the watermark, that highest time less the delay and an
instant, had not passed the window's end; so what a window must wait for is less than what elements are behind.
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
    """A wait that makes a share of all elements part of the first full answer, and what it costs. Milliseconds."""

    share: float
    delay: int
    """For windows of the size asked for."""
    behind: int
    """For windows of any size: how far this share of elements is behind at most."""
    told_after: int
    """From the end of a window to its first full answer."""
    corrected: float
    """The share of answers, one for each key and window, that a later element still changes."""
    sure: bool
    """Whether the sample has enough elements beyond the share to say so."""


@dataclass(frozen=True, slots=True)
class Lateness:
    """The curve, and the order in which elements come."""

    window: int
    waits: tuple[Wait, ...]
    curve: tuple[tuple[int, float, float], ...]
    """Delays, each with the share of elements in time for windows, and the share that is not further behind."""
    out_of_order: float
    """The share of elements that come after one that happened later."""
    farthest: int
    """How far behind the last of all is."""
    longest: int
    """The delay with which no element of the sample would have been too late."""
    transit: tuple[int, int, int] | None
    """From the event to its arrival: half of all, 99 %, 99.9 % take no longer; None where arrivals are not known."""


def measured(rows: pl.DataFrame, window: int) -> pl.DataFrame:
    """Rows with BEHIND, and NEED: the delay with which each is in the first full answer of its window."""
    shown = rows.with_columns(front().alias("@front")).with_columns(pl.col("@front").shift(1).over(PARTITION))
    end = (pl.col(TIME) // window + 1) * window
    return shown.with_columns(
        (pl.col("@front") - pl.col(TIME)).clip(0).fill_null(0).alias(BEHIND),
        (pl.col("@front") - end + 1).clip(0).fill_null(0).alias(NEED),
        end.alias(WINDOW),
    ).drop("@front")


def lateness(rows: pl.DataFrame, window: int) -> Lateness:
    """Of rows with AHEAD; those that are ahead of time wait for nobody and are left out."""
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
    """The share of elements that a delay puts into the first full answer of their window; of rows with AHEAD."""
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
    """The smallest value that at least this share does not exceed."""
    found: Any = values.quantile(share, "higher")
    return int(found)
