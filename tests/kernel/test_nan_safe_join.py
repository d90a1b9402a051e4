"""Joins match null with null and NaN with NaN."""

import math
from typing import Any

import polars as pl
import pytest

from strandline.kernel.blocks.nan_safe_join import join_nan_safe

NAN = float("nan")


@pytest.mark.parametrize("keys", [[NAN], [None], [-0.0], [1.0, NAN], [NAN, None, 1.0]])
def test_every_value_matches_itself(keys: list[Any]) -> None:
    """Polars alone does not match a NaN in a single join column."""
    known = pl.DataFrame({"key": pl.Series(keys, dtype=pl.Float64), "place": range(len(keys))})
    rows = pl.DataFrame({"key": pl.Series(keys[::-1], dtype=pl.Float64)})
    assert join_nan_safe(rows, known, ["key"])["place"].to_list() == [*range(len(keys))][::-1]


def test_a_join_keeps_order_and_columns_and_fills_unmatched_rows_with_null() -> None:
    rows = pl.DataFrame({"key": ["b", "x", "a", "b"], "n": [1, 2, 3, 4]})
    known = pl.DataFrame({"key": ["a", "b"], "name": ["A", "B"]})
    found = join_nan_safe(rows, known, ["key"])
    assert found.columns == ["key", "n", "name"]
    assert found.rows() == [("b", 1, "B"), ("x", 2, None), ("a", 3, "A"), ("b", 4, "B")]


def test_zero_matches_minus_zero() -> None:
    known = pl.DataFrame({"key": [0.0], "place": [7]})
    found = join_nan_safe(pl.DataFrame({"key": [-0.0]}), known, ["key"])
    assert found["place"].to_list() == [7]
    assert math.copysign(1, found["key"][0]) == -1
