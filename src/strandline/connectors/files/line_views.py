"""Split bytes into lines, as views that share the block's memory.

A line ends where Hadoop, and so Spark, ends it: at a newline, a carriage return, or both.
"""

from typing import Final

import numpy as np
import numpy.typing as npt
import polars as pl

from strandline.kernel.blocks.binary_views import views

NEWLINE: Final = 10
_RETURN: Final = 13


def ends_of(chars: npt.NDArray[np.uint8]) -> npt.NDArray[np.int64]:
    """The position of the last character of each line end."""
    newlines = np.flatnonzero(chars == NEWLINE)
    returns = np.flatnonzero(chars == _RETURN)
    if not len(returns):
        return newlines
    after = chars[np.minimum(returns + 1, len(chars) - 1)]
    lone_returns = returns[after != NEWLINE]
    return np.sort(np.concatenate([newlines, lone_returns])) if len(lone_returns) else newlines


def as_lines(block: bytes) -> pl.Series:
    """The lines of a block without their line ends; they share its bytes."""
    chars = np.frombuffer(block, np.uint8)
    stops = ends_of(chars)
    if len(chars) and (not len(stops) or stops[-1] != len(chars) - 1):
        stops = np.append(stops, len(chars))
    starts = np.concatenate([[0], stops[:-1] + 1])[: len(stops)]
    # Of a carriage return and a newline, neither is part of the line.
    both = (stops > starts) & (chars[np.maximum(stops - 1, 0)] == _RETURN)
    both &= chars[np.minimum(stops, len(chars) - 1)] == NEWLINE
    return views(block, starts, stops - starts - both)
