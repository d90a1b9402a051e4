"""Texts that come again and again, as a list of those there are and the place of each in it."""

from dataclasses import dataclass
from typing import Final

import polars as pl

_SAMPLED: Final = 512
_OFTEN: Final = 0.75
"""A sample with more different values than this is not worth looking at all of them."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A column of texts or bytes: the different ones in the order they come in, and the place of each row's there."""

    words: pl.Series
    places: pl.Series


def coded(column: pl.Series) -> Coded | None:
    """The column by its words; None where most values are different, or there are few."""
    every = column.len() // _SAMPLED
    if every < 1 or column.gather_every(every).n_unique() > _OFTEN * _SAMPLED:
        return None
    found = column.rechunk().to_arrow().dictionary_encode()
    return Coded(pl.Series(column.name, found.dictionary), pl.Series(column.name, found.indices))
