"""Build a binary-view column over existing bytes, without copying them."""

from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

LONGEST: Final = 2**31 - 1
"""Largest buffer that views can address, in bytes."""
_INLINE: Final = 12
"""Values up to this many bytes are stored in the view itself."""


def views(block: Any, starts: npt.NDArray[np.int64], sizes: npt.NDArray[np.int64]) -> pl.Series:
    """Build an Arrow binary-view column from starts and sizes in `block`. A negative size is a null.

    A view has four 32-bit words: length, first four bytes, buffer number, offset. A short value is stored inline.
    """
    content = np.frombuffer(block, np.uint8)
    valid = sizes >= 0
    words = np.zeros((len(starts), 4), np.int32)
    words[:, 0], words[:, 3] = np.where(valid, sizes, 0), starts
    short = np.flatnonzero(sizes <= _INLINE)
    long = np.flatnonzero(sizes > _INLINE)
    if len(long):
        prefixes = np.lib.stride_tricks.sliding_window_view(content, 4)[starts[long]]
        words[long, 1] = np.ascontiguousarray(prefixes).view(np.int32).ravel()
    if len(short):
        index = np.arange(_INLINE)
        bytes_ = content[np.minimum(starts[short, None] + index, len(content) - 1)] if len(content) else index[None]
        inline = np.where(index < sizes[short, None], bytes_, 0).astype(np.uint8)
        words[short, 1:] = np.ascontiguousarray(inline).view(np.int32)
    validity = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(words), pa.py_buffer(block)]
    return cast("pl.Series", pl.from_arrow(pa.Array.from_buffers(pa.binary_view(), len(starts), buffers)))
