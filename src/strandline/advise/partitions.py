"""Which partitions fall silent, and how long a silence must be before it is no longer waited for."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from strandline.advise.clocks import AHEAD, PACE
from strandline.advise.round_durations import round_up
from strandline.advise.sample import PARTITION

_LEAST: Final = 5_000
_ENOUGH: Final = 20


@dataclass(frozen=True, slots=True)
class Silence:
    """A partition: its share of the elements, its longest silence, how long it had been silent at the end."""

    name: str
    share: float
    longest: int
    at_end: int


@dataclass(frozen=True, slots=True)
class Partitions:
    """Those of the sample, the most silent first."""

    silences: tuple[Silence, ...]
    idle_after: int | None
    """Three times what the slowest of them is usually silent for; None if there is but one, or too little to say."""
    idle: tuple[str, ...]
    """Those that would have been idle at some time, and held the watermark back without `idle_after`."""


def partitions(rows: pl.DataFrame, known: tuple[str, ...] = ()) -> Partitions:
    """Of rows with AHEAD and PACE; `known` are the partitions that exist, even if nothing came from them."""
    sane = rows.filter(~pl.col(AHEAD))
    first, last = sane[PACE].min(), sane[PACE].max()
    span = int(last) - int(first)  # type: ignore[arg-type]
    gaps = sane.with_columns(pl.col(PACE).diff().over(PARTITION).alias("gap"))
    told = gaps.group_by(PARTITION).agg(
        pl.len().alias("many"), pl.col("gap").max().fill_null(0), (pl.lit(last) - pl.col(PACE).max()).alias("end")
    )
    found = [Silence(name, many / sane.height, max(gap, end), end) for name, many, gap, end in told.iter_rows()] + [
        Silence(name, 0.0, span, span) for name in known if name not in set(told[PARTITION])
    ]
    ranked = tuple(sorted(found, key=lambda each: (-each.longest, each.name)))
    if len(ranked) < 2:
        return Partitions(ranked, None, ())
    by = gaps.drop_nulls("gap").group_by(PARTITION).agg(pl.len().alias("many"), pl.col("gap").quantile(0.95, "higher"))
    usual = by.filter(pl.col("many") >= _ENOUGH)["gap"].max()
    if usual is None:
        return Partitions(ranked, None, ())
    after = round_up(max(3 * int(usual), _LEAST))  # type: ignore[arg-type]
    return Partitions(ranked, after, tuple(each.name for each in ranked if each.longest > after))
