"""Compare the measured delays with the reference: with a given delay it refuses exactly the same elements."""

import polars as pl
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.advise.clocks import AHEAD
from strandline.advise.lateness import BEHIND, NEED, lateness, measured
from strandline.advise.sample import ARRIVAL, KEY, PARTITION, TIME
from strandline.model.aggregates import Count
from strandline.model.elements import Duration, Element, Timestamp
from strandline.model.steps import WindowedStep
from strandline.model.watermarks import bounded
from strandline.model.windows import Tumbling
from strandline.reference.player import ReferencePlayer


def rows(times: list[int], arrivals: list[int | None] | None = None) -> pl.DataFrame:
    came = pl.Series(ARRIVAL, arrivals or [None] * len(times), pl.Int64)
    return pl.DataFrame({TIME: times, ARRIVAL: came}).with_columns(
        pl.lit("p").alias(PARTITION), pl.lit("k").alias(KEY), pl.lit(False).alias(AHEAD)
    )


def refused(times: list[int], window: int, delay: int) -> int:
    """Return how many elements the reference refuses as late if each is a batch of its own."""
    step = WindowedStep(aggregates=(("n", Count()),), window=Tumbling(Duration(window)))
    player = ReferencePlayer(step, bounded(Duration(delay)), fires_per_element=True)
    elements = [Element(Timestamp(at), "k", {}, "p", number) for number, at in enumerate(times)]
    return len(player.feed(elements).late)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=25), st.integers(1, 15), st.integers(0, 30))
def test_a_delay_accepts_the_same_elements_as_the_reference(times: list[int], window: int, delay: int) -> None:
    late = measured(rows(times), window).filter(pl.col(NEED) > delay).height
    assert late == refused(times, window, delay)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=25))
def test_windows_of_one_millisecond_need_the_full_difference_that_elements_are_behind(times: list[int]) -> None:
    known = measured(rows(times), 1)
    assert known[NEED].to_list() == known[BEHIND].to_list()


def test_the_delay_for_a_share_is_the_smallest_that_is_enough() -> None:
    times = [10_000 * number for number in range(100)]
    times[50] = times[49] - 3_000  # one of a hundred arrives three seconds late
    found = lateness(rows(times), 1)
    assert [wait.delay for wait in found.waits] == [0, 3_000, 3_000]
    assert found.out_of_order == 0.01
    assert found.longest == found.farthest == 3_000


def test_a_result_is_complete_after_the_transit_time_and_the_delay() -> None:
    times = [1_000 * number for number in range(1_000)]
    found = lateness(rows(times, [at + 250 for at in times]), 60_000)
    assert found.transit == (250, 250, 250)
    assert {wait.told_after for wait in found.waits} == {250}


def test_a_small_sample_is_not_sure_of_the_highest_share() -> None:
    found = lateness(rows([1_000 * number for number in range(1_500)]), 60_000)
    assert [wait.sure for wait in found.waits] == [True, True, False]


def test_a_result_changed_by_several_late_elements_counts_once() -> None:
    times = [1_000, 2_000, 30_000, 3_000, 3_500, 31_000]  # two are late, both for the first of two windows
    found = lateness(rows(times), 10_000)
    assert found.waits[0].corrected == 0.0  # with the delay for 95 % of six elements, none is late
    assert measured(rows(times), 10_000).filter(pl.col(NEED) > 0)[TIME].to_list() == [3_000, 3_500]


def test_the_curve_rises_with_the_delay_up_to_all_elements() -> None:
    found = lateness(rows([(number * 7919) % 5_000 + number for number in range(2_000)]), 1_000)
    shares = [share for _, share, _ in found.curve]
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert all(need >= behind for _, need, behind in found.curve)
