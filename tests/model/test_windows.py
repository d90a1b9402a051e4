"""Invalid windows are refused with a message and a hint."""

from collections.abc import Callable
from typing import Any

import pytest

from strandline.errors import InvalidWindow
from strandline.model.elements import Duration, Timestamp
from strandline.model.windows import (
    EVERYTHING,
    Count,
    Cumulating,
    Custom,
    GapColumn,
    Global,
    Session,
    Sliding,
    Touching,
    Tumbling,
    Window,
    count_window,
    cumulating,
    custom,
    everything,
    session,
    sliding,
    tumbling,
)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: tumbling("0s"), "a tumbling window's size is 0s"),
        (lambda: sliding("0s", every="1s"), "a sliding window's size is 0s"),
        (lambda: sliding("1m", every="-1s"), "a sliding window's slide is -1s"),
        (lambda: cumulating("0s", step="1s"), "a cumulating window's size is 0s"),
        (lambda: cumulating("1m", step="0s"), "a cumulating window's step is 0s"),
        (lambda: cumulating("1m", step="7s"), "a cumulating window of 1m is not a whole number of steps of 7s"),
        (lambda: session("0s"), "a session's gap is 0s"),
        (lambda: session("1m", column="gap"), "given twice"),
        (lambda: count_window(0), "a count window's size is 0"),
        (lambda: count_window(3, every=0), "a count window's slide is 0"),
    ],
)
def test_an_invalid_window_is_refused(build: Callable[[], Any], message: str) -> None:
    with pytest.raises(InvalidWindow) as error:
        build()
    assert message in error.value.message
    assert error.value.hint


def test_each_function_makes_its_window() -> None:
    second = Duration(1_000)
    assert tumbling(seconds=1, offset="1s") == Tumbling(second, second)
    assert sliding(seconds=1, every="1s") == Sliding(second, second)
    assert cumulating(seconds=1, step="1s") == Cumulating(second, second)
    assert session(seconds=1, touching="separate") == Session(second, Touching.SEPARATE)
    assert session(column="gap") == Session(GapColumn("gap"))
    assert (everything(), count_window(3, every=2)) == (Global(), Count(3, 2))
    assert custom(start="a", end="b") == Custom("a", "b")


def test_only_a_slide_above_the_size_leaves_gaps() -> None:
    assert sliding("5s", every="10s").leaves_gaps
    assert not sliding("10s", every="10s").leaves_gaps


def test_a_window_ends_one_instant_before_its_end() -> None:
    assert Window(Timestamp(0), Timestamp(10)).max_timestamp == Timestamp(9)
    assert EVERYTHING.max_timestamp == EVERYTHING.end


def test_a_window_is_printed_half_open() -> None:
    assert str(Window(Timestamp(0), Timestamp(120_000))) == "[0s, 2m)"
    assert str(EVERYTHING) == "global"
