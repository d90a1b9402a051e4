"""Sorting, partitioning and folding by integers gives the rows that Polars operations give."""

from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from strandline.kernel.blocks import sorting
from strandline.kernel.blocks.block import AT, END, START
from strandline.kernel.blocks.sorting import (
    fold_by_key,
    is_constant,
    order_of,
    partition_by_number,
    replaced_in_order,
    rows_where,
    sort_by,
)
from strandline.kernel.state.partitioning import among, ordered
from strandline.kernel.window.assign import assign
from strandline.model.elements import Duration
from strandline.model.windows import Tumbling

MANY = sorting.WORTH_IT
LEAST, MOST = -(2**63), 2**63 - 1
LONGS = st.one_of(st.integers(-3, 3), st.integers(LEAST, MOST))


def frame(key: Any, rows: int = MANY) -> pl.DataFrame:
    """Make rows with these keys; some of their columns are constant."""
    numbers = np.arange(rows)
    return pl.DataFrame({"key": key, "row": numbers, "text": [f"{each % 7}" for each in numbers]}).with_columns(
        pl.lit(7).alias("@seven"), pl.lit("on_time").alias("@timing"), pl.lit(None, pl.Int64).alias("@none"),
        pl.lit(1.5).alias("half"), (pl.col("row") % 2 == 0).alias("even"),
    )  # fmt: skip


def drawn(rows: int = MANY, below: int = 1_000) -> Any:
    return np.random.default_rng(3).integers(-below, below, rows)


@given(st.lists(LONGS))
@example([LEAST, MOST, 0])
@example([5, 5, 5])
def test_integers_are_sorted_stably(values: list[int]) -> None:
    order = order_of(np.array(values, np.int64))
    expected = sorted(range(len(values)), key=lambda place: values[place])
    assert order.places.tolist() == expected
    assert order.numbers.tolist() == [values[place] for place in expected]


NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(drawn(), id="longs"),
        pytest.param(np.arange(MANY), id="in order already"),
        pytest.param(pl.Series(drawn(below=100), dtype=pl.Int8), id="narrow"),
        pytest.param(pl.Series(np.abs(drawn()), dtype=pl.UInt32), id="above zero"),
        pytest.param([2**64 - 1, *range(MANY - 1)], id="too large to be signed"),
        pytest.param([None, *drawn(MANY - 1)], id="one missing"),
        pytest.param([f"{each}" for each in drawn()], id="texts"),
        pytest.param(drawn() / 3, id="fractions"),
        pytest.param([NOON - timedelta(seconds=int(each)) for each in drawn()], id="times"),
    ],
)
def test_rows_are_sorted_as_polars_sorts_them(key: Any) -> None:
    rows = frame(pl.Series(key, dtype=pl.UInt64) if key[0] == 2**64 - 1 else key)
    assert_frame_equal(sort_by(rows, "key"), rows.sort("key", maintain_order=True))


@pytest.mark.parametrize("many", [1, 4, 8, 9, 64])
def test_partitions_keep_the_order_of_rows(many: int) -> None:
    numbers = np.abs(drawn()) % many
    numbers[numbers == many // 2] = 0
    rows = frame(drawn())
    parts = partition_by_number(rows, numbers, many)
    assert sorted(parts) == sorted({*numbers.tolist()})
    for number, part in parts.items():
        assert_frame_equal(part, rows.filter(pl.Series(numbers == number)))


def test_rows_where_equals_a_polars_filter() -> None:
    rows = frame(drawn())
    for wanted in (rows["even"], rows["row"] < 0, rows["row"] >= 0):
        assert_frame_equal(rows_where(rows, wanted), rows.filter(wanted))
    same = rows.select("@seven", "@timing")
    assert_frame_equal(rows_where(same, rows["even"]), same.filter(rows["even"]))


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([], True), ([3, 3], True), ([3, 4, 3], False), ([None, None], True), ([None, 3], False), (["a", "a"], True),
        ([True, True], True), ([0.5, 0.5], False), ([float("nan")] * 2, False), ([[1], [1]], False),
    ],
)  # fmt: skip
def test_constant_columns_are_recognized_except_floats(values: list[Any], expected: bool) -> None:
    assert is_constant(pl.Series(values)) is expected


FOLDS = [("a", "add"), ("b", "least"), ("c", "greatest"), ("one", "add"), ("two", "least")]


@given(st.lists(st.tuples(LONGS, st.integers(-9, 9)), min_size=1))
def test_rows_of_one_key_are_folded_to_one(rows: list[tuple[int, int]]) -> None:
    keys, values = zip(*rows, strict=True)
    given_rows = pl.DataFrame({"key": keys, **dict.fromkeys("abc", values)}, schema_overrides={"key": pl.Int64})
    given_rows = given_rows.with_columns(pl.lit(1, pl.Int64).alias("one"), pl.lit(2, pl.Int64).alias("two"))
    aggregates = [
        pl.col("a").sum(), pl.col("b").min(), pl.col("c").max(), pl.col("one").sum(), pl.col("two").min(),
    ]  # fmt: skip
    found = fold_by_key(given_rows, "key", FOLDS)  # type: ignore[arg-type] # literals, not any string
    assert found is not None
    assert_frame_equal(found, given_rows.group_by("key").agg(*aggregates).sort("key"))


@pytest.mark.parametrize(
    "column",
    [pl.Series("a", [1, None]), pl.Series("a", [1.5, 2.5]), pl.Series("a", [1, 2], pl.Int32)],
    ids=["one missing", "fractions", "narrow"],
)
def test_only_64_bit_integers_without_nulls_are_folded(column: pl.Series) -> None:
    assert fold_by_key(pl.DataFrame({"key": [1, 2], "a": column}), "key", [("a", "add")]) is None
    assert fold_by_key(pl.DataFrame({"key": ["x", "y"], "a": [1, 2]}), "key", [("a", "add")]) is None


def test_folding_keeps_the_type_of_keys() -> None:
    rows = pl.DataFrame({"key": pl.Series([NOON, NOON, NOON - timedelta(1)]), "a": [1, 2, 3]})
    found = fold_by_key(rows, "key", [("a", "add")])
    assert found is not None
    assert_frame_equal(found, pl.DataFrame({"key": [NOON - timedelta(1), NOON], "a": [3, 3]}))


def test_rows_are_replaced_in_key_order() -> None:
    rows = frame(np.arange(0, 2 * MANY, 2))
    gone = rows["row"] % 5 == 0
    others = frame(pl.Series([*range(2 * MANY + 9, 1, -10), 0, -7, 3]), MANY // 5 + 4)
    found = replaced_in_order(rows, gone, others, "key")
    assert found is not None
    expected = pl.concat([rows.filter(~gone), others]).sort("key", maintain_order=True)
    assert_frame_equal(found, expected)
    assert replaced_in_order(rows.reverse(), gone, others, "key") is None
    assert replaced_in_order(rows, gone, others.with_columns(pl.lit(None, pl.Int64).alias("key")), "key") is None


@pytest.mark.parametrize("start", [0, 1])
def test_membership_is_found_in_sorted_and_unsorted_rows(start: int) -> None:
    """Sorted windows with one start are looked up by binary search, others by a join."""
    numbers = np.arange(0, 3 * MANY, 3)
    rows = pl.DataFrame({"key": numbers, START: np.where(numbers < 10 * start, 20, 0), END: [20] * MANY})
    wanted = pl.DataFrame({"key": [0, 3, 4, 9, 3 * MANY, -1, 6], START: [0, 0, 0, 20, 0, 0, 0], END: [20] * 7})
    expected = rows.with_row_index("@at").join(wanted, on=wanted.columns, how="semi")["@at"].to_list()
    assert among(rows, wanted).arg_true().to_list() == expected
    assert among(rows, wanted.select("key")).sum() == 4
    reversed_ = among(rows.reverse(), wanted).reverse()
    assert reversed_.arg_true().to_list() == expected


def test_rows_are_sorted_by_several_columns() -> None:
    rows = frame(drawn(below=5)).with_columns(pl.Series("other", drawn(below=3)[::-1]))
    assert_frame_equal(ordered(rows, ["key", "text", "other"]), rows.sort("key", "text", "other", maintain_order=True))


@pytest.mark.parametrize("size", [1, 7, 20_000])
@pytest.mark.parametrize("offset", [0, 3, -5])
@pytest.mark.parametrize("near", [0, -1, LEAST + 3, MOST - 3])
def test_many_elements_have_the_windows_that_few_would_have(size: int, offset: int, near: int) -> None:
    times = pl.Series(AT, [min(max(near + each, LEAST + 1), MOST - 1) for each in drawn().tolist()])
    elements, kind = pl.DataFrame({AT: times}), Tumbling(Duration(size), Duration(offset))
    expected = pl.concat([assign(elements.slice(begin, 1_000), kind) for begin in range(0, MANY, 1_000)])
    assert_frame_equal(assign(elements, kind), expected)
