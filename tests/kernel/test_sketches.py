"""Registers and buckets equal those of the reference. Checkpoints contain them, so their values are pinned."""

import math
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.kernel.aggregation import sketches
from strandline.reference import sketches as oracle

NAN = float("nan")


def buckets(values: list[Any], kind: Any = pl.Float64) -> list[float | None]:
    return pl.DataFrame({"x": pl.Series(values, dtype=kind)}).select(sketches.bucket(pl.col("x")))["x"].to_list()


def registers(values: list[Any], precision: int, kind: Any = None) -> list[tuple[int | None, int | None]]:
    frame = pl.DataFrame({"x": pl.Series(values, dtype=kind)})
    return frame.select(sketches.register(pl.col("x"), precision)).unnest("x").rows()


@pytest.mark.parametrize(
    ("value", "middle"),
    [
        (1.0, 1.0078125),
        (1.015624, 1.0078125),
        (1.015625, 1.0234375),
        (-1.0, -1.0078125),
        (100.0, 100.5),
        (1e-300, 9.974254922753152e-301),
        (123456.789, 123392.0),
        (5e-324, 1.73833895195875e-310),
        (0.0, 0.0),
        (math.inf, math.inf),
        (-math.inf, -math.inf),
        (NAN, None),
        (None, None),
    ],
)
def test_the_bucket_of_a_number_never_changes(value: float | None, middle: float | None) -> None:
    assert buckets([value]) == [middle]


@pytest.mark.parametrize(
    ("kind", "value", "found"),
    [
        (pl.Int64, 0, (2114, 1)),
        (pl.Int64, 1, (3951, 1)),
        (pl.Int64, -1, (501, 2)),
        (pl.Int64, 2**63 - 1, (3117, 1)),
        (pl.String, "", (4028, 1)),
        (pl.String, "amber", (4049, 1)),
        (pl.String, "ü", (3679, 2)),
        (pl.String, "1", (468, 1)),
        (pl.Boolean, True, (3926, 1)),
        (pl.Float64, 1.0, (3052, 1)),
        (pl.Float64, 0.0, (3871, 6)),
        (pl.Float64, -0.0, (3871, 6)),
        (pl.Float64, NAN, (3076, 3)),
        (pl.List(pl.Int64), [1, 2], (3156, 2)),
        (pl.Struct({"b": pl.Int64, "a": pl.String}), {"b": 1, "a": "x"}, (2233, 2)),
    ],
)
def test_the_register_of_a_value_never_changes(kind: Any, value: Any, found: tuple[int, int]) -> None:
    assert registers([value], 12, kind) == [found]


def test_null_selects_no_register() -> None:
    assert registers([None, 1, None], 6, pl.Int64) == [(None, None), oracle.register(1, 6), (None, None)]
    assert registers([None], 6, pl.String) == [(None, None)]
    assert registers([], 6, pl.Int64) == []


@given(st.lists(st.none() | st.integers(-(2**63), 2**63 - 1), min_size=1), st.integers(4, 16))
def test_integers_select_the_registers_of_the_reference(values: list[int | None], precision: int) -> None:
    expected = [(None, None) if value is None else oracle.register(value, precision) for value in values]
    assert registers(values, precision, pl.Int64) == expected


@given(st.lists(st.floats(width=64) | st.text(max_size=5), min_size=1))
def test_floats_and_strings_select_the_registers_of_the_reference(values: list[float | str]) -> None:
    for kind, python_type in ((pl.Float64, float), (pl.String, str)):
        chosen = [value for value in values if isinstance(value, python_type)]
        assert registers(chosen, 8, kind) == [oracle.register(value, 8) for value in chosen]


@given(st.lists(st.none() | st.floats(width=64), min_size=1))
def test_floats_fall_into_the_buckets_of_the_reference(values: list[float | None]) -> None:
    assert buckets(values) == [None if value is None else oracle.bucket(value) for value in values]


def test_integers_fall_into_buckets() -> None:
    assert buckets([1, None, -3], pl.Int32) == [oracle.bucket(1), None, oracle.bucket(-3)]


@given(st.dictionaries(st.integers(0, 15), st.integers(1, 60)))
def test_an_estimate_equals_the_reference(kept: dict[int, int]) -> None:
    positions = pl.DataFrame({"x": pl.Series(kept.values(), dtype=pl.Int64)})
    assert positions.select(sketches.estimate(pl.col("x"), 4)).item() == oracle.estimate(kept, 4)


@pytest.mark.parametrize("precision", [4, 5, 6, 10, 16])
def test_full_registers_do_not_use_linear_counting(precision: int) -> None:
    full = dict.fromkeys(range(2**precision), 3)
    positions = pl.DataFrame({"x": list(full.values())})
    estimated = positions.select(sketches.estimate(pl.col("x"), precision)).item()
    assert estimated == oracle.estimate(full, precision)


def test_many_values_are_estimated_within_five_percent() -> None:
    frame = pl.DataFrame({"x": [f"user {number % 20_000}" for number in range(40_000)]})
    found = frame.select(sketches.register(pl.col("x"), 12)).unnest("x")
    kept = found.group_by("register").agg(pl.col("position").max())
    estimated = kept.select(sketches.estimate(pl.col("position"), 12)).item()
    assert abs(estimated - 20_000) < 0.05 * 20_000
