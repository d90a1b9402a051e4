"""How unevenly keys are spread, over the key groups as they really are, and whether that matters."""

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
    """How many there are, the heaviest, and how much the fullest key group gets, in times of the mean."""

    many: int
    top: tuple[tuple[str, float], ...]
    skew: float
    groups: int
    per_window: float
    """How many elements a key has in a window, in the middle of all that have one."""
    bursts: int | None
    """The silence that ends a burst, in milliseconds, if keys come in bursts."""

    @property
    def is_hot(self) -> bool:
        """Whether work that is done element by element would wait for one key."""
        return bool(self.top) and self.top[0][1] > _HOT


def keys(rows: pl.DataFrame, window: int, groups: int) -> Keys | None:
    """Of rows with AHEAD; None where they have no key."""
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
    """Where most silences of a key are short and a few are far longer, the short ones are inside of bursts."""
    gaps = sane.sort(KEY, TIME).select(pl.col(TIME).diff().over(KEY)).to_series().drop_nulls()
    if len(gaps) < 100:
        return None
    short, long_ = quantile(gaps, 0.75), quantile(gaps, 0.99)
    return 5 * short if short > 0 and long_ > 50 * short else None
