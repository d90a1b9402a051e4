"""Hot keys spread before the shuffle, and gathered behind it: elements as they came, held in many places, then in one.

A key is hot in a task if it has more of its rows than one place should get. Which place an element goes to depends on
its position alone, and what is computed in the end does not depend on the place.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from strandline.kernel.blocks.block import AT, OFFSET, PARTITION
from strandline.kernel.state.partitioning import key_groups

SALT: Final = "@salt"
"""The place of an element among those that its key is spread over; 0 for keys that are not hot."""
HELD: Final = "@held"
"""An element as it came: its time, its position, and the columns that are read of it."""


def spread(rows: pl.DataFrame, keys: Sequence[str], salts: int, least: int, columns: Sequence[str]) -> pl.DataFrame:
    """Rows with their place and with what must be known of them later."""
    many = pl.len().over(keys)
    hot = (many >= least) & (many * salts > rows.height)
    place = key_groups(rows.select(PARTITION, OFFSET), salts).alias(SALT)
    held = pl.struct(AT, PARTITION, OFFSET, *columns).alias(HELD)
    return rows.with_columns(place, held).with_columns(pl.when(hot).then(SALT).otherwise(0).alias(SALT))


def gather(panes: pl.DataFrame) -> pl.DataFrame:
    """The elements that panes hold, each as it came, beside the bounds of its window."""
    found = panes.filter(pl.col(HELD).list.len() > 0).drop(SALT, PARTITION, OFFSET)
    return found.explode(HELD).unnest(HELD)
