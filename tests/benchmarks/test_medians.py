"""Medians and spreads."""

import pytest

from benchmarks.medians import percentile, ratios, spread


def test_the_spread_of_some_values() -> None:
    found = spread([4.0, 1.0, 3.0, 2.0, 100.0])
    assert (found.median, found.low, found.high, found.iqr, found.rounds) == (3.0, 1.0, 100.0, 2.0, 5)


def test_one_value_has_no_spread() -> None:
    found = spread([7.0])
    assert (found.median, found.low, found.high, found.iqr) == (7.0, 7.0, 7.0, 0.0)


def test_nothing_has_no_middle() -> None:
    with pytest.raises(ValueError, match="nothing"):
        spread([])


def test_only_rounds_that_both_have_are_compared() -> None:
    assert ratios({0: 6.0, 1: 9.0, 2: 5.0}, {1: 3.0, 0: 2.0}) == [3.0, 3.0]


def test_a_percentile_is_one_of_the_values() -> None:
    values = [float(number) for number in range(100)]
    assert (percentile(values, 0.5), percentile(values, 0.99), percentile([5.0], 0.99)) == (50.0, 99.0, 5.0)
