"""Find partitions that fall idle, and recommend `idle_after`."""

from dataclasses import dataclass
from typing import Final

import polars as pl

from strandline.advise.clocks import AHEAD, PACE
from strandline.advise.round_durations import round_up
from strandline.advise.sample import PARTITION

_SHORTEST_IDLE_MS: Final = 5_000
_MIN_GAPS: Final = 20


@dataclass(frozen=True, slots=True)
class Silence:
    """A partition: its share of the elements, its longest gap, and its gap at the end of the sample."""

    name: str
    share: float
    longest: int
    at_end: int


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of the sample, longest gap first."""

    silences: tuple[Silence, ...]
    idle_after: int | None
    """Three times the usual gap of the slowest partition; None if there is only one, or too few elements."""
    idle: tuple[str, ...]
    """Partitions that would have become idle, and held the watermark back without `idle_after`."""


def partitions(rows: pl.DataFrame, known: tuple[str, ...] = ()) -> Partitions:
    """Measure rows with AHEAD and PACE; `known` names all partitions, including those without elements."""
    sane = rows.filter(~pl.col(AHEAD))
    first, last = sane[PACE].min(), sane[PACE].max()
    span = int(last) - int(first)  # type: ignore[arg-type]
    gaps = sane.with_columns(pl.col(PACE).diff().over(PARTITION).alias("gap"))
    by_partition = gaps.group_by(PARTITION).agg(
        pl.len().alias("many"), pl.col("gap").max().fill_null(0), (pl.lit(last) - pl.col(PACE).max()).alias("end")
    )
    names = set(by_partition[PARTITION])
    found = [
        Silence(name, many / sane.height, max(gap, end), end) for name, many, gap, end in by_partition.iter_rows()
    ] + [Silence(name, 0.0, span, span) for name in known if name not in names]
    ranked = tuple(sorted(found, key=lambda each: (-each.longest, each.name)))
    if len(ranked) < 2:
        return Partitions(ranked, None, ())
    by = gaps.drop_nulls("gap").group_by(PARTITION).agg(pl.len().alias("many"), pl.col("gap").quantile(0.95, "higher"))
    usual = by.filter(pl.col("many") >= _MIN_GAPS)["gap"].max()
    if usual is None:
        return Partitions(ranked, None, ())
    after = round_up(max(3 * int(usual), _SHORTEST_IDLE_MS))  # type: ignore[arg-type]
    return Partitions(ranked, after, tuple(each.name for each in ranked if each.longest > after))
