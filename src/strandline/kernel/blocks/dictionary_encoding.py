"""Texts that come again and again, as a list of those there are and the place of each in it."""

from dataclasses import dataclass
from typing import Final

import polars as pl

SAMPLED: Final = 512
"""So many rows are looked at first; there must be as many."""
OFTEN: Final = 0.75
"""A sample with more different values than this is not worth looking at all of them."""
VERY_OFTEN: Final = 0.25
"""With fewer than this, a list of them is worth keeping; of others it is not much less than they are, compressed."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of texts or bytes: the different ones in the order they come in, and the place of each row's there."""

    words: pl.Series
    places: pl.Series


def coded(column: pl.Series, often: float = OFTEN) -> Coded | None:
    """The column by its words; None where more of a sample than this are different, or there are few."""
    every = column.len() // SAMPLED
    if every < 1 or column.gather_every(every).n_unique() > often * SAMPLED:
        return None
    found = column.rechunk().to_arrow().dictionary_encode()
    return Coded(pl.Series(column.name, found.dictionary), pl.Series(column.name, found.indices))
