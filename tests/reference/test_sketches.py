"""Sketches are within their error bounds, and match their docstrings."""

import math
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.model.aggregates import ApproxCountDistinct, Quantile
from strandline.model.elements import Element, Timestamp
from strandline.reference.aggregates import value_of
from strandline.reference.sketches import bucket, estimate, quantile, register


def rows(values: list[object]) -> list[Element]:
    return [Element(Timestamp(0), "k", {"v": value}, offset=place) for place, value in enumerate(values)]


@pytest.mark.parametrize("many", [1, 50, 3_000])
def test_an_estimate_of_distinct_values_is_close(many: int) -> None:
    output = value_of(ApproxCountDistinct("v", 10), rows([*range(many)] * 2))
    assert abs(output - many) <= 0.1 * many


def test_a_register_is_chosen_by_the_first_bits_and_holds_the_first_one_bit_of_the_rest() -> None:
    bits = format(int.from_bytes(blake2b(b"1", digest_size=8).digest(), "big"), "064b")
    assert register(1, 6) == (int(bits[:6], 2), bits[6:].index("1") + 1)


def test_values_are_hashed_as_compact_json_in_utf_8() -> None:
    assert register({"b": 1, "a": "ü"}, 4) == register({"a": "ü", "b": 1}, 4)
    assert register("1", 14) != register(1, 14)


def test_minus_zero_is_zero() -> None:
    assert register(-0.0, 14) == register(0.0, 14)


def test_no_registers_mean_no_values() -> None:
    assert estimate({}, 10) == 0


def test_many_values_are_estimated_without_linear_counting() -> None:
    full = dict.fromkeys(range(16), 3)
    assert estimate(full, 4) == math.floor(0.673 * 16 * 16 / (16 * 2**-3) + 0.5)


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=1e-300, max_value=1e300))
def test_a_bucket_is_within_eight_in_a_thousand(value: float) -> None:
    for signed in (value, -value):
        output = bucket(signed)
        assert output is not None
        assert abs(output - signed) <= 0.008 * abs(signed)


def test_zero_and_the_infinities_are_their_own_buckets_and_nan_has_none() -> None:
    assert (bucket(0), bucket(-0.0), bucket(math.inf), bucket(-math.inf)) == (0, 0, math.inf, -math.inf)
    assert bucket(math.nan) is None
    assert value_of(Quantile("v", 0.5), rows([math.nan, 5])) == bucket(5)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=30), st.sampled_from([0, 0.07, 0.25, 0.5, 0.9, 1]))
def test_a_quantile_is_the_bucket_of_the_value_of_nearest_rank(values: list[int], q: float) -> None:
    ranked = sorted(values)
    place = next(place for place in range(1, len(ranked) + 1) if place / len(ranked) >= q)
    assert value_of(Quantile("v", q), rows([*values])) == bucket(ranked[place - 1])


def test_a_quantile_of_nothing_is_null() -> None:
    assert quantile({}, 0.5) is None
