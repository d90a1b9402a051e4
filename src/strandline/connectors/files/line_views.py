"""Bytes as lines, each a view of the bytes it stands in.

What ends a line is what ends one to Hadoop, and so to Spark: a newline, a return, or both.
"""

from typing import Final, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

LONGEST: Final = 2**31 - 1
"""So many bytes views can tell apart."""
NEWLINE: Final = 10
_RETURN: Final = 13
_WITHIN: Final = 12
"""So many bytes stand in a view itself."""


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
    return _views(block, signs, starts, stops - starts - both)


def _views(
    block: bytes, signs: npt.NDArray[np.uint8], starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]
) -> pl.Series:
    """As Arrow has them: how long each is, how it begins, and where its bytes are; a short one stands there whole."""
    views = np.zeros((len(starts), 4), np.int32)
    views[:, 0], views[:, 3] = sizes, starts
    short = np.flatnonzero(sizes <= _WITHIN)
    long = np.flatnonzero(sizes > _WITHIN)
    if len(long):
        begins = np.lib.stride_tricks.sliding_window_view(signs, 4)[starts[long]]
        views[long, 1] = np.ascontiguousarray(begins).view(np.int32).ravel()
    if len(short):
        within = np.arange(_WITHIN)
        there = signs[np.minimum(starts[short, None] + within, len(signs) - 1)] if len(signs) else within[None]
        whole = np.where(within < sizes[short, None], there, 0).astype(np.uint8)
        views[short, 1:] = np.ascontiguousarray(whole).view(np.int32)
    buffers = [None, pa.py_buffer(views), pa.py_buffer(block)]
    return cast("pl.Series", pl.from_arrow(pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)))
