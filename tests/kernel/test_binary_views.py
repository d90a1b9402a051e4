"""A binary-view column has the values of the underlying bytes."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from strandline.kernel.blocks.binary_views import views


@given(st.lists(st.none() | st.binary(max_size=40)), st.integers(0, 3))
def test_views_equal_the_underlying_bytes(values: list[bytes | None], before: int) -> None:
    block = b"." * before + b"".join(each or b"" for each in values)
    sizes = np.array([-1 if each is None else len(each) for each in values], np.int64)
    ends = before + np.cumsum(np.maximum(sizes, 0))
    found = views(pa.py_buffer(block), ends - np.maximum(sizes, 0), sizes)
    assert found.to_list() == values
    assert found.rechunk().to_arrow().to_pylist() == values
