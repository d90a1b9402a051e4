"""Joins: nulls and NaNs are values like any other."""

import math
from typing import Any

import polars as pl
import pytest

from strandline.kernel.blocks.nan_safe_join import beside

NAN = float("nan")


@pytest.mark.parametrize("keys", [[NAN], [None], [-0.0], [1.0, NAN], [NAN, None, 1.0]])
def test_every_value_finds_itself(keys: list[Any]) -> None:
    """A NaN that stands alone is what Polars does not find in a single column."""
    known = pl.DataFrame({"key": pl.Series(keys, dtype=pl.Float64), "place": range(len(keys))})
    rows = pl.DataFrame({"key": pl.Series(keys[::-1], dtype=pl.Float64)})
    assert beside(rows, known, ["key"])["place"].to_list() == [*range(len(keys))][::-1]


def test_rows_keep_their_order_and_their_columns_and_what_is_unknown_is_null() -> None:
    rows = pl.DataFrame({"key": ["b", "x", "a", "b"], "n": [1, 2, 3, 4]})
    known = pl.DataFrame({"key": ["a", "b"], "name": ["A", "B"]})
    found = beside(rows, known, ["key"])
    assert found.columns == ["key", "n", "name"]
    assert found.rows() == [("b", 1, "B"), ("x", 2, None), ("a", 3, "A"), ("b", 4, "B")]


def test_zero_finds_minus_zero() -> None:
    known = pl.DataFrame({"key": [0.0], "place": [7]})
    found = beside(pl.DataFrame({"key": [-0.0]}), known, ["key"])
    assert found["place"].to_list() == [7]
    assert math.copysign(1, found["key"][0]) == -1
