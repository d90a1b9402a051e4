"""Number the slices of a table by ranges of key hashes, so that a slice with many rows is split in two.

A slice is a node of a binary tree over the bits of the hash: node 1 covers all hashes, nodes 2 and 3 its halves, and so
on. A small table has one slice. No slice lies inside another one.
"""

from collections.abc import Collection, Iterator
from typing import Final

import numpy as np
import polars as pl

from strandline.kernel.join.pairs import Longs

ROOT: Final = 1
BITS: Final = 32
"""Bits of a hash."""
MOST_ROWS: Final = 1 << 16
"""A slice with more rows is split when it is written whole."""
_DEEPEST: Final = 16
"""Depth at which a slice is no longer split: its rows have few keys."""


def slices_of(hashes: Longs, slices: Collection[int]) -> Longs:
    """Return the slice of each hash: one that exists, or the largest that would lie beside those."""
    nodes = np.array([*_leaves({*slices})])
    low = np.array([_lowest(int(node)) for node in nodes])
    found: Longs = nodes[np.searchsorted(low, hashes, "right") - 1]
    return found


def can_split(number: int, rows: int) -> bool:
    """Tell whether a slice with this many rows should be split."""
    return rows > MOST_ROWS and _depth(number) < _DEEPEST


def split(number: int, rows: pl.DataFrame, name: str) -> Iterator[tuple[int, pl.DataFrame]]:
    """Yield the rows of a slice by the slices that they are split into; they are sorted by the hash column `name`."""
    if not can_split(number, rows.height):
        yield number, rows
        return
    left, right = 2 * number, 2 * number + 1
    middle = int(np.searchsorted(rows[name].to_numpy(), _lowest(right)))
    for child, part in ((left, rows[:middle]), (right, rows[middle:])):
        if part.height:
            yield from split(child, part, name)


def _leaves(slices: set[int]) -> Iterator[int]:
    """Yield the slices, and the largest nodes between them, in order of their hashes."""
    inner = {node >> up for node in slices for up in range(1, _depth(node) + 1)}

    def below(node: int) -> Iterator[int]:
        if node in inner:
            yield from below(2 * node)
            yield from below(2 * node + 1)
        else:
            yield node

    return below(ROOT)


def _depth(number: int) -> int:
    return number.bit_length() - 1


def _lowest(number: int) -> int:
    """Return the least hash of a slice."""
    return (number - (1 << _depth(number))) << (BITS - _depth(number))
