"""Salt hot keys before the shuffle, and gather their elements behind it.

A key is hot in a task if it has more rows there than one salt value should get. The salt of an element depends on its
position only, and the final result does not depend on the salt.
"""

from collections.abc import Sequence
from typing import Final

import polars as pl

from strandline.kernel.blocks.block import AT, OFFSET, PARTITION
from strandline.kernel.state.partitioning import key_groups

SALT: Final = "@salt"
"""Salt of an element; 0 for keys that are not hot."""
HELD: Final = "@held"
"""The original element as a struct: event time, position, and the columns that the step reads."""


def spread(rows: pl.DataFrame, keys: Sequence[str], salts: int, least: int, columns: Sequence[str]) -> pl.DataFrame:
    """Add SALT and HELD to rows. `least` is the minimum number of rows of a hot key."""
    many = pl.len().over(keys)
    hot = (many >= least) & (many * salts > rows.height)
    salt = key_groups(rows.select(PARTITION, OFFSET), salts).alias(SALT)
    held = pl.struct(AT, PARTITION, OFFSET, *columns).alias(HELD)
    return rows.with_columns(salt, held).with_columns(pl.when(hot).then(SALT).otherwise(0).alias(SALT))


def gather(panes: pl.DataFrame) -> pl.DataFrame:
    """Restore the original elements from panes of salted keys, with the bounds of their windows."""
    filled = panes.filter(pl.col(HELD).list.len() > 0).drop(SALT, PARTITION, OFFSET)
    return filled.explode(HELD).unnest(HELD)
