"""Split values into runs of bounded total size, so that expanding their bytes to numbers takes bounded memory."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt


def parts_by_size(sizes: npt.NDArray[np.int64], most: int) -> Iterator[slice]:
    """Split values into runs of at most `most` bytes; a larger value is a run by itself."""
    ends, begin = np.cumsum(sizes), 0
    while begin < len(sizes):
        before = ends[begin] - sizes[begin]
        end = max(int(np.searchsorted(ends, before + most, "right")), begin + 1)
        yield slice(begin, end)
        begin = end
