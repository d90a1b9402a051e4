"""Invalid watermark strategies are refused; valid ones are values."""

from collections.abc import Callable
from typing import Any

import pytest

from strandline.errors import InvalidWatermark
from strandline.model.elements import ZERO, Duration
from strandline.model.watermarks import (
    BY_HAND,
    Bounded,
    ByClock,
    FromSource,
    FutureBound,
    Inputs,
    OnReturn,
    Watermark,
    bounded,
    by_clock,
    from_source,
    monotone,
    percentile,
)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: bounded("-1s"), "a bounded watermark's delay is -1s"),
        (lambda: percentile(0), "0 is not a share of the elements"),
        (lambda: percentile(1.1), "1.1 is not a share of the elements"),
        (lambda: percentile(0.9, horizon="0s"), "a horizon of 0s holds no samples"),
        (lambda: percentile(0.9, least="-1s"), "a percentile watermark's least delay is -1s"),
        (lambda: percentile(0.9, least="5s", most="1s"), "the least delay, 5s, is above the most, 1s"),
        (lambda: percentile(0.9, enough=0), "0 samples are never enough"),
        (lambda: bounded("1s").idle_after("0s"), "a partition cannot be idle after 0s"),
        (lambda: bounded("1s").future_bound("-1s"), "a bound for the future is -1s"),
        (lambda: Inputs(()), "inputs need distinct names"),
        (lambda: Inputs(("a", "a")), "inputs need distinct names"),
    ],
)
def test_an_invalid_strategy_is_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidWatermark) as error:
        build()
    assert message in error.value.message
    assert error.value.hint


def test_a_strategy_is_a_value_that_options_replace() -> None:
    asked = bounded(seconds=10).idle_after(minutes=1).future_bound("1h", dead_letter=True).returning("catch_up")
    bound = FutureBound(Duration(3_600_000), dead_letter=True)
    assert asked == Watermark(Bounded(Duration(10_000)), Duration(60_000), bound, OnReturn.CATCH_UP)


def test_each_function_makes_its_generator() -> None:
    assert monotone().generator == Bounded(ZERO)
    assert from_source().generator == FromSource()
    assert by_clock().generator == ByClock()


def test_the_watermark_waits_for_a_returning_partition_but_not_for_an_input() -> None:
    assert bounded("1s").on_return is OnReturn.WAIT
    assert BY_HAND.on_return is OnReturn.CATCH_UP
