"""Bytes as lines, each a view of the bytes it stands in.

What ends a line is what ends one to Hadoop, and so to Spark: a newline, a return, or both.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.blocks.binary_views import views

NEWLINE: Final = 10
_RETURN: Final = 13


def ends_of(signs: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """Where each line ends: the last of the signs that end it."""
    newlines = np.flatnonzero(signs == NEWLINE)
    returns = np.flatnonzero(signs == _RETURN)
    if not len(returns):
        return newlines
    after = signs[np.minimum(returns + 1, len(signs) - 1)]
    alone = returns[after != NEWLINE]
    return np.sort(np.concatenate([newlines, alone])) if len(alone) else newlines


def as_lines(block: bytes) -> pl.Series:
    """The lines of a block, without what ends them; they share its bytes."""
    signs = np.frombuffer(block, np.uint8)
    stops = ends_of(signs)
    if len(signs) and (not len(stops) or stops[-1] != len(signs) - 1):
        stops = np.append(stops, len(signs))
    starts = np.concatenate([[0], stops[:-1] + 1])[: len(stops)]
    # Of a return and a newline, the return is no part of the line either.
    both = (stops > starts) & (signs[np.maximum(stops - 1, 0)] == _RETURN)
    both &= signs[np.minimum(stops, len(signs) - 1)] == NEWLINE
    return views(block, starts, stops - starts - both)
