"""Measure key skew over the real key groups, and whether it matters."""

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from strandline.advise.clocks import AHEAD
from strandline.advise.lateness import quantile
from strandline.advise.sample import KEY, TIME
from strandline.kernel.state.partitioning import key_groups

_TOP: Final = 5
_HOT: Final = 0.1


@dataclass(frozen=True, slots=True)
class Keys:
    """Number of keys, the most frequent ones, and the load of the fullest key group relative to the mean."""

    many: int
    top: tuple[tuple[str, float], ...]
    skew: float
    groups: int
    per_window: float
    """Median number of elements per key and window, over the windows that have any."""
    bursts: int | None
    """Gap that ends a burst, in milliseconds, if keys arrive in bursts."""

    @property
    def is_hot(self) -> bool:
        """Return whether per-element work would be limited by one key."""
        return bool(self.top) and self.top[0][1] > _HOT


def keys(rows: pl.DataFrame, window: int, groups: int) -> Keys | None:
    """Measure rows with AHEAD; None if they have no key."""
    sane = rows.filter(~pl.col(AHEAD))
    if sane[KEY].null_count() == sane.height:
        return None
    counted = sane.group_by(KEY).len().sort(["len", KEY], descending=[True, False])
    by_group = (
        counted.with_columns(key_groups(counted.select(KEY), groups).alias("group"))
        .group_by("group")
        .agg(pl.col("len").sum())
    )
    fullest: Any = by_group["len"].max()
    per: Any = sane.group_by(KEY, pl.col(TIME) // window).len()["len"].median()
    top = tuple((str(key), many / sane.height) for key, many in counted.head(_TOP).iter_rows())
    return Keys(counted.height, top, int(fullest) * groups / sane.height, groups, float(per), _bursts(sane))


def _bursts(sane: pl.DataFrame) -> int | None:
    """Return the gap that separates bursts, if most gaps of a key are short and a few are far longer."""
    gaps = sane.sort(KEY, TIME).select(pl.col(TIME).diff().over(KEY)).to_series().drop_nulls()
    if len(gaps) < 100:
        return None
    short, long_ = quantile(gaps, 0.75), quantile(gaps, 0.99)
    return 5 * short if short > 0 and long_ > 50 * short else None
