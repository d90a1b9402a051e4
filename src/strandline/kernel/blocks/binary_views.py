"""Values as views of the bytes that they stand in: a column of them, and no byte is copied."""

from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

LONGEST: Final = 2**31 - 1
"""So many bytes views can tell apart."""
_WITHIN: Final = 12
"""So many bytes stand in a view itself."""


def views(block: Any, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> pl.Series:
    """As Arrow has them: how long each is, how it begins, and where its bytes are; a short one stands there whole.

    A size below zero is that of a null.
    """
    signs = np.frombuffer(block, np.uint8)
    there = sizes >= 0
    found = np.zeros((len(starts), 4), np.int32)
    found[:, 0], found[:, 3] = np.where(there, sizes, 0), starts
    short = np.flatnonzero(sizes <= _WITHIN)
    long = np.flatnonzero(sizes > _WITHIN)
    if len(long):
        begins = np.lib.stride_tricks.sliding_window_view(signs, 4)[starts[long]]
        found[long, 1] = np.ascontiguousarray(begins).view(np.int32).ravel()
    if len(short):
        within = np.arange(_WITHIN)
        bytes_ = signs[np.minimum(starts[short, None] + within, len(signs) - 1)] if len(signs) else within[None]
        whole = np.where(within < sizes[short, None], bytes_, 0).astype(np.uint8)
        found[short, 1:] = np.ascontiguousarray(whole).view(np.int32)
    nulls = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    buffers = [nulls, pa.py_buffer(found), pa.py_buffer(block)]
    return cast("pl.Series", pl.from_arrow(pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)))
