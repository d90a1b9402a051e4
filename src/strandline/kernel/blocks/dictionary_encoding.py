"""Dictionary-encode columns of repeated strings: the distinct values, and the index of each row's value."""

from dataclasses import dataclass
from typing import Final

import polars as pl

SAMPLED: Final = 512
"""Number of sampled rows. Shorter columns are not encoded."""
MAX_DISTINCT: Final = 0.75
"""Largest share of distinct values in the sample at which encoding in memory pays."""
MAX_DISTINCT_STORED: Final = 0.25
"""Largest share at which storing the dictionary pays. Above it, compressed strings are hardly larger."""


@dataclass(frozen=True, slots=True)
class Coded:
    """Dictionary-encoded column: the distinct values in order of appearance, and the index of each row's value."""

    words: pl.Series
    places: pl.Series


def dictionary_encode(column: pl.Series, max_distinct: float = MAX_DISTINCT) -> Coded | None:
    """Encode a column; None if it is short, or a sample has a larger share of distinct values than `max_distinct`."""
    every = column.len() // SAMPLED
    if every < 1 or column.gather_every(every).n_unique() > max_distinct * SAMPLED:
        return None
    found = column.rechunk().to_arrow().dictionary_encode()
    return Coded(pl.Series(column.name, found.dictionary), pl.Series(column.name, found.indices))
