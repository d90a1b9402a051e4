"""Aggregates as columns: parts that merge in any order to what the whole would give."""

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.errors import Unsupported
from strandline.kernel.aggregates import Columns, columns_of
from strandline.model.aggregates import Aggregate

NAN = float("nan")


def whole(aggregate: Aggregate, values: list[Any], kind: Any = pl.Int64) -> Any:
    """The value over all elements at once."""
    return told(columns_of("v", aggregate), kept(columns_of("v", aggregate), values, kind))


def kept(columns: Columns, values: list[Any], kind: Any) -> pl.DataFrame:
    frame = pl.DataFrame({"x": pl.Series(values, dtype=kind), "window": [0] * len(values)})
    return frame.group_by("window").agg(part.partial.alias(part.name) for part in columns.parts)


def told(columns: Columns, parts: pl.DataFrame) -> Any:
    merged = parts.group_by("window").agg(part.merge.alias(part.name) for part in columns.parts)
    return merged.select(columns.value.alias("v")).item()


@pytest.mark.parametrize(
    ("aggregate", "value"),
    [(sl.count(), 4), (sl.count("x"), 3), (sl.sum("x"), 6), (sl.min("x"), -2), (sl.max("x"), 5), (sl.mean("x"), 2.0)],
)
def test_nulls_are_left_out_but_counted_as_elements(aggregate: Aggregate, value: float) -> None:
    assert whole(aggregate, [3, None, -2, 5]) == value


@pytest.mark.parametrize(
    ("aggregate", "value"),
    [
        (sl.count(), 2),
        (sl.count("x"), 0),
        (sl.sum("x"), 0),
        (sl.min("x"), None),
        (sl.max("x"), None),
        (sl.mean("x"), None),
    ],
)
def test_over_nulls_alone_counts_and_sums_are_zero_and_the_rest_is_null(aggregate: Aggregate, value: Any) -> None:
    assert whole(aggregate, [None, None]) == value


@pytest.mark.parametrize(
    ("aggregate", "empty"),
    [(sl.count(), 0), (sl.sum("x"), 0), (sl.min("x"), None), (sl.max("x"), None), (sl.mean("x"), None)],
)
def test_the_empty_parts_tell_the_value_of_no_elements(aggregate: Aggregate, empty: Any) -> None:
    columns = columns_of("v", aggregate)
    nothing = pl.DataFrame({part.name: [part.empty] for part in columns.parts})
    assert nothing.select(columns.value.alias("v")).item() == empty


@pytest.mark.parametrize("aggregate", [sl.count("x"), sl.sum("x"), sl.min("x"), sl.max("x"), sl.mean("x")])
@given(chunks=st.lists(st.lists(st.integers(-(10**9), 10**9) | st.none(), min_size=1), min_size=1), data=st.data())
def test_parts_merge_in_any_order_and_any_pairs(aggregate: Aggregate, chunks: list[list[Any]], data: Any) -> None:
    columns = columns_of("v", aggregate)
    parts = [kept(columns, chunk, pl.Int64) for chunk in data.draw(st.permutations(chunks))]
    while len(parts) > 1:
        first, second, *rest = parts
        together = pl.concat([first, second]).group_by("window")
        parts = [together.agg(part.merge.alias(part.name) for part in columns.parts), *rest]
    assert told(columns, parts[0]) == whole(aggregate, [value for chunk in chunks for value in chunk])


def test_a_sum_of_narrow_integers_does_not_wrap() -> None:
    assert whole(sl.sum("x"), [2**31 - 1] * 3, pl.Int32) == 3 * (2**31 - 1)


def test_a_mean_of_narrow_integers_does_not_wrap() -> None:
    assert whole(sl.mean("x"), [2**31 - 1] * 3, pl.Int32) == 2**31 - 1


def test_sums_keep_the_kind_of_their_numbers() -> None:
    assert isinstance(whole(sl.sum("x"), [1, 2]), int)
    assert isinstance(whole(sl.sum("x"), [1.0, 2.0], pl.Float64), float)


def test_not_a_number_is_the_greatest_number() -> None:
    assert math.isnan(whole(sl.max("x"), [1.0, NAN, None, math.inf], pl.Float64))
    assert whole(sl.min("x"), [1.0, NAN, None, math.inf], pl.Float64) == 1.0
    assert math.isnan(whole(sl.min("x"), [NAN, None], pl.Float64))
    parts = pl.concat([kept(columns_of("v", sl.max("x")), [value], pl.Float64) for value in (NAN, 1.0)])
    assert math.isnan(told(columns_of("v", sl.max("x")), parts))


def test_texts_and_truths_have_a_least_and_a_greatest() -> None:
    assert whole(sl.min("x"), ["b", None, "a"], pl.String) == "a"
    assert whole(sl.max("x"), ["b", None, "a"], pl.String) == "b"
    assert whole(sl.max("x"), [False, None, True], pl.Boolean) is True


def test_kept_columns_are_the_kernels_own_and_named_after_the_value() -> None:
    names = [part.name for part in columns_of("average", sl.mean("x")).parts]
    assert names == ["@average.sum", "@average.count"]


def test_an_aggregate_that_the_kernel_does_not_compute_is_refused_by_name() -> None:
    with pytest.raises(Unsupported, match="does not compute CountDistinct yet"):
        columns_of("users", sl.count_distinct("user"))
