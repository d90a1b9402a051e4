"""Aggregates over columns: partial results merge in any order to the value of the reference implementation."""

import math
from collections.abc import Sequence
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.kernel.aggregation.accumulators import Combined, combine, items_of, merge_rows, together, with_values
from strandline.kernel.aggregation.aggregates import InItems, InRow, Items, Part, columns_of
from strandline.kernel.blocks.block import AT, END, OFFSET, PARTITION, START
from strandline.model.aggregates import Aggregate
from strandline.model.elements import EPOCH, Element
from strandline.model.steps import WindowedStep
from strandline.reference.aggregates import value_of
from tests.contracts.test_aggregates import ALL, ELEMENTS, EMPTY, same

NAN = float("nan")
KINDS = {"v": pl.Int64, "w": pl.String, "b": pl.Boolean}


def asking(*aggregates: Aggregate) -> WindowedStep:
    return WindowedStep(tuple((f"v{place}", each) for place, each in enumerate(aggregates)), sl.everything())


EVERY = asking(*ALL)


def elements(rows: Sequence[Element]) -> pl.DataFrame:
    """Make elements that all belong to one window."""
    return pl.DataFrame(
        {
            "key": pl.Series([0] * len(rows), dtype=pl.Int64),
            START: pl.Series([0] * len(rows), dtype=pl.Int64),
            END: pl.Series([10] * len(rows), dtype=pl.Int64),
            AT: pl.Series([row.at.ms for row in rows], dtype=pl.Int64),
            PARTITION: pl.Series([row.partition for row in rows], dtype=pl.String),
            OFFSET: pl.Series([row.offset for row in rows], dtype=pl.Int64),
            **{name: pl.Series([row.columns[name] for row in rows], dtype=kind) for name, kind in KINDS.items()},
        }
    )


def merged(parts: Sequence[Combined], step: WindowedStep) -> Combined:
    items = {
        name: together([part.items[name] for part in parts], ["key"], kind) for name, kind in items_of(step).items()
    }
    return Combined(merge_rows([part.rows for part in parts], ["key"], step), items)


def values_of(part: Combined, step: WindowedStep) -> list[Any]:
    """Return the values of the window, in the order of aggregates."""
    values = with_values(part.rows, part.items, ["key"], step, "@now.")
    return [values[f"@now.{name}"].to_list()[0] for name, _ in step.aggregates]


def whole(aggregate: Aggregate, values: list[Any], kind: Any = pl.Int64) -> Any:
    """Compute an aggregate over elements with the single column x."""
    many = len(values)
    frame = pl.DataFrame({"x": pl.Series(values, dtype=kind), "key": [0] * many, START: [0] * many, END: [10] * many})
    placed = frame.with_columns(pl.lit(0).alias(AT), pl.lit("").alias(PARTITION), pl.int_range(many).alias(OFFSET))
    (value,) = values_of(combine(placed, ["key"], asking(aggregate)), asking(aggregate))
    return value


@given(rows=ELEMENTS.filter(bool), cuts=st.sets(st.integers(1, 7)), order=st.randoms(use_true_random=False))
def test_parts_merge_in_any_order_and_pairing_to_the_reference_value(
    rows: list[Element], cuts: set[int], order: Any
) -> None:
    shuffled = list(rows)
    order.shuffle(shuffled)
    ends = [*sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    parts = [
        combine(elements(shuffled[start:end]), ["key"], EVERY) for start, end in zip([0, *ends], ends, strict=False)
    ]
    while len(parts) > 1:
        first, second, *rest = parts
        parts = [*rest, merged([first, second], EVERY)]
    for aggregate, value in zip(ALL, values_of(parts[0], EVERY), strict=True):
        assert same(value, value_of(aggregate, rows)), aggregate


def test_parts_without_values_do_not_change_a_variance() -> None:
    step = asking(sl.variance("x"), sl.stddev("x", population=True))
    frame = pl.DataFrame({"x": [None, None, 3, 5], "key": [0] * 4, START: [0] * 4, END: [10] * 4}).with_columns(
        pl.lit(0).alias(AT), pl.lit("").alias(PARTITION), pl.int_range(4).alias(OFFSET)
    )
    first, second, third, fourth = (combine(frame[place : place + 1], ["key"], step) for place in range(4))
    assert values_of(merged([merged([merged([first, second], step), third], step), fourth], step), step) == [2.0, 1.0]


@pytest.mark.parametrize(
    ("aggregate", "value"),
    [(sl.count(), 4), (sl.count("x"), 3), (sl.sum("x"), 6), (sl.min("x"), -2), (sl.max("x"), 5), (sl.mean("x"), 2.0)],
)
def test_aggregates_skip_nulls_and_count_includes_them(aggregate: Aggregate, value: float) -> None:
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
def test_over_nulls_only_counts_and_sums_are_zero_and_others_null(aggregate: Aggregate, value: Any) -> None:
    assert whole(aggregate, [None, None]) == value


def test_empty_parts_have_the_value_of_no_elements() -> None:
    layouts = [columns_of(name, aggregate) for name, aggregate in EVERY.aggregates]
    parts = [part for layout in layouts if isinstance(layout, InRow) for part in layout.parts]
    nothing = pl.DataFrame({"key": [0], START: [0], END: [10], **{part.name: [part.empty] for part in parts}})
    for aggregate, value in zip(ALL, values_of(Combined(nothing, {}), EVERY), strict=True):
        expected = next((empty for empty, kinds in EMPTY.items() if isinstance(aggregate, kinds)), None)
        assert (tuple(value) if isinstance(value, list) else value) == expected, aggregate


def test_a_sum_of_narrow_integers_does_not_wrap() -> None:
    assert whole(sl.sum("x"), [2**31 - 1] * 3, pl.Int32) == 3 * (2**31 - 1)


def test_a_mean_of_narrow_integers_does_not_wrap() -> None:
    assert whole(sl.mean("x"), [2**31 - 1] * 3, pl.Int32) == 2**31 - 1


def test_sums_keep_the_kind_of_their_numbers() -> None:
    assert isinstance(whole(sl.sum("x"), [1, 2]), int)
    assert isinstance(whole(sl.sum("x"), [1.0, 2.0], pl.Float64), float)


def test_nan_is_the_greatest_number() -> None:
    assert math.isnan(whole(sl.max("x"), [1.0, NAN, None, math.inf], pl.Float64))
    assert whole(sl.min("x"), [1.0, NAN, None, math.inf], pl.Float64) == 1.0
    assert math.isnan(whole(sl.min("x"), [NAN, None], pl.Float64))
    (part,) = parts_of(sl.max("x"))
    greatest = pl.DataFrame({part.name: [NAN, 1.0]}).select(part.merge.alias("v")).item()
    assert math.isnan(greatest)


def test_strings_and_booleans_have_a_minimum_and_a_maximum() -> None:
    assert whole(sl.min("x"), ["b", None, "a"], pl.String) == "a"
    assert whole(sl.max("x"), ["b", None, "a"], pl.String) == "b"
    assert whole(sl.max("x"), [False, None, True], pl.Boolean) is True


def test_a_variance_of_large_values_keeps_its_precision() -> None:
    assert whole(sl.variance("x"), [10**12 + 1, 10**12 + 2, 10**12 + 3]) == 1.0


@pytest.mark.parametrize(
    ("aggregate", "value"),
    [
        (sl.first("x"), 3),
        (sl.last("x"), 5),
        (sl.top_k("x", 2), [5, 3]),
        (sl.collect("x"), [3, None, -2, 5]),
        (sl.string_agg("x", separator="-"), "3--2-5"),
        (sl.count_distinct("x"), 3),
    ],
)
def test_ties_are_broken_by_position(aggregate: Aggregate, value: Any) -> None:
    assert whole(aggregate, [3, None, -2, 5]) == value


def parts_of(aggregate: Aggregate) -> tuple[Part, ...]:
    columns = columns_of("average", aggregate)
    assert isinstance(columns, InRow)
    return columns.parts


def kept_items(aggregate: Aggregate) -> Items:
    columns = columns_of("average", aggregate)
    assert isinstance(columns, InItems)
    return columns.items


def test_accumulator_columns_start_with_at_and_have_the_name_of_the_value() -> None:
    """Checkpoints contain these names, so they must not change."""
    assert [part.name for part in parts_of(sl.mean("x"))] == ["@average.sum", "@average.many"]
    assert [part.name for part in parts_of(sl.count())] == ["@average"]
    assert [part.name for part in parts_of(sl.stddev("x"))] == ["@average.many", "@average.mean", "@average.squares"]


def test_items_have_the_name_of_the_value_and_columns_that_start_with_at() -> None:
    for aggregate in (sl.collect("x"), sl.top_k("x", 3, by="y"), sl.quantile("x", 0.5), sl.approx_count_distinct("x")):
        items = kept_items(aggregate)
        assert items.name == "average"
        assert all(name.startswith("@") for name in items.made)


def test_first_last_and_top_k_keep_only_the_values_they_emit() -> None:
    position = ["@average.at", "@average.partition", "@average.offset"]
    assert [part.name for part in parts_of(sl.last("x"))] == ["@average", *position]
    assert [part.name for part in parts_of(sl.argmax("x", by="y"))] == ["@average", "@average.by", *position]
    assert kept_items(sl.top_k("x", 3)).most == 3
    assert kept_items(sl.collect("x")).most is None


@pytest.mark.parametrize("many", [3, 49, 98, 103, 107])
def test_a_quantile_of_one_is_the_maximum_for_any_number_of_values(many: int) -> None:
    """49 times a rounded 1 / 49 would be less than one."""
    highest = whole(sl.quantile("x", 1.0), list(range(1, many + 1)))
    assert highest == value_of(sl.quantile("x", 1.0), [Element(EPOCH, 0, {"x": many})])


@pytest.mark.parametrize("aggregate", [sl.mean("x"), sl.variance("x", population=True)])
def test_a_quotient_does_not_depend_on_other_windows(aggregate: Aggregate) -> None:
    """Polars divides by a scalar column in another way than by a column of several values."""
    way = columns_of("v", aggregate)
    assert isinstance(way, InRow)
    kept = {part.name: 3 if part.name.endswith("many") else 5.0 for part in way.parts}
    alone = pl.DataFrame({name: [value] for name, value in kept.items()})
    same_in_all = pl.DataFrame({"row": [0, 1]}).with_columns(
        pl.lit(value).alias(name) if name.endswith("many") else pl.Series(name, [value, 7.0])
        for name, value in kept.items()
    )
    assert alone.select(way.value.alias("v"))["v"].to_list() == [5.0 / 3]
    assert same_in_all.select(way.value.alias("v"))["v"].to_list() == [5.0 / 3, 7.0 / 3]


def test_distinct_values_are_a_list_in_the_window_row() -> None:
    way = columns_of("kinds", sl.count_distinct("x"))
    assert isinstance(way, InRow)
    (part,) = way.parts
    made = pl.DataFrame({"k": [1, 1, 1, 2], "x": [7, 3, 7, None]}).group_by("k").agg(part.partial.alias(part.name))
    assert sorted(made.rows()) == [(1, [7, 3]), (2, [])]
    again = pl.concat([made, pl.DataFrame({"k": [1, 2], part.name: [[9, 3], [4]]})])
    met = again.group_by("k").agg(part.merge.alias(part.name)).sort("k")
    assert met.rows() == [(1, [7, 3, 9]), (2, [4])]
    assert met.select(way.value).to_series().to_list() == [3, 1]
    assert pl.DataFrame({"k": [1]}).select(part.nothing.alias(part.name)).select(way.value).item() == 0
