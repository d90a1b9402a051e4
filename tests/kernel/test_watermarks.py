"""Watermarks in band: a pure fold over what the tasks saw, the same in every key group and on every replay."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.kernel.watermarks import (
    FOREVER,
    NEVER,
    Control,
    Progress,
    Seen,
    advance,
    control_from_facts,
    control_to_facts,
    progress_from_facts,
    progress_to_facts,
)
from strandline.model.watermarks import Watermark

BOUNDED = sl.bounded(seconds=3)
IDLING = sl.bounded(seconds=3).idle_after(seconds=10)


def heard(clock: int, **highest: int) -> Control:
    """A batch in which each of these partitions had one row, with this highest time."""
    return Control(clock, tuple(Seen(name, 1, time) for name, time in highest.items()))


def play(ask: Watermark, *controls: Control, partitions: Sequence[str] = ()) -> Progress:
    """The progress after batches of one control each."""
    progress = Progress()
    for control in controls:
        progress = advance(progress, [control], partitions, ask)
    return progress


def test_nothing_is_known_before_anything_is_heard() -> None:
    assert play(BOUNDED, Control(5)).watermark == NEVER


def test_a_bounded_watermark_is_the_highest_time_less_the_delay_less_one_instant() -> None:
    assert play(BOUNDED, heard(0, a=10_000)).watermark == 6_999


def test_the_slowest_partition_sets_the_watermark() -> None:
    assert play(BOUNDED, heard(0, a=10_000, b=5_000)).watermark == 1_999


def test_what_several_tasks_saw_of_one_partition_is_put_together() -> None:
    progress = advance(Progress(), [heard(0, a=9_000), heard(0, a=5_000), heard(0, a=7_000)], [], BOUNDED)
    assert progress.watermark == 5_999


def test_a_partition_never_heard_holds_everything_back() -> None:
    progress = play(BOUNDED, heard(0, a=10_000), heard(10**9, a=10**9), partitions=["a", "b"])
    assert progress.watermark == NEVER


def test_a_new_partition_holds_the_watermark_but_does_not_pull_it_back() -> None:
    before = play(BOUNDED, heard(0, a=10_000))
    after = advance(before, [heard(1, a=50_000), Control(1, (Seen("b"),))], [], BOUNDED)
    assert after.watermark == before.watermark == 6_999
    assert advance(after, [heard(2, b=60_000)], [], BOUNDED).watermark == 46_999


def test_the_watermark_never_falls() -> None:
    assert play(BOUNDED, heard(0, a=10_000), heard(1, a=4_000)).watermark == 6_999


def test_without_idleness_a_silent_partition_holds_for_ever() -> None:
    assert play(BOUNDED, heard(0, a=10_000, b=10_000), heard(10**9, a=10**9)).watermark == 6_999


def test_a_partition_is_idle_only_when_silent_for_longer_than_the_limit() -> None:
    start = heard(1_000, a=10_000, b=10_000)
    assert play(IDLING, start, heard(11_000, a=20_000)).idle == ()
    longer = play(IDLING, start, heard(11_001, a=20_000))
    assert longer.idle == ("b",)
    assert longer.watermark == 16_999


def test_a_partition_never_heard_falls_idle_too() -> None:
    progress = play(IDLING, heard(0, a=10_000), heard(10_001, a=20_000), partitions=["a", "b"])
    assert progress.idle == ("b",)
    assert progress.watermark == 16_999


def test_a_row_without_a_time_still_counts_as_heard() -> None:
    start = heard(0, a=10_000, b=10_000)
    broken = Control(8_000, (Seen("a", 1, 20_000), Seen("b", 1, None)))
    assert play(IDLING, start, broken, heard(12_000, a=30_000)).idle == ()


def test_a_mark_without_rows_does_not_count_as_heard() -> None:
    start = heard(0, a=10_000, b=10_000)
    announced = Control(8_000, (Seen("a", 1, 20_000), Seen("b")))
    assert play(IDLING, start, announced, heard(12_000, a=30_000)).idle == ("b",)


def test_a_partition_that_returns_is_waited_for_but_does_not_pull_the_watermark_back() -> None:
    gone = [heard(0, a=10_000, b=10_000), heard(20_000, a=30_000)]
    assert play(IDLING, *gone).watermark == 26_999
    back = [*gone, heard(21_000, a=60_000, b=12_000)]
    assert play(IDLING, *back).watermark == 26_999
    assert play(IDLING, *back).idle == ()
    assert play(IDLING, *back, heard(22_000, b=45_000)).watermark == 41_999


def test_when_all_are_idle_everything_seen_is_complete() -> None:
    progress = play(IDLING, heard(0, a=10_000, b=50_000), Control(10_001))
    assert progress.idle == ("a", "b")
    assert progress.watermark == 46_999


def test_a_finished_partition_leaves_the_minimum() -> None:
    ended = Control(1, (Seen("a", 1, 10_000, finished=True), Seen("b", 1, 50_000)))
    assert play(BOUNDED, ended).watermark == 46_999


def test_a_finished_partition_is_not_idle() -> None:
    ended = Control(0, (Seen("a", 1, 10_000, finished=True), Seen("b", 1, 50_000)))
    assert play(IDLING, ended, heard(20_000, b=60_000)).idle == ()


def test_when_all_have_finished_time_has() -> None:
    first = Control(0, (Seen("a", 1, 10_000, finished=True), Seen("b", 1, 50_000)))
    last = Control(1, (Seen("b", 0, None, finished=True),))
    assert play(BOUNDED, first).watermark == 46_999
    assert play(BOUNDED, first, last).watermark == FOREVER


def test_partitions_that_are_still_expected_keep_time_from_ending() -> None:
    ended = Control(0, (Seen("a", 1, 10_000, finished=True),))
    assert play(BOUNDED, ended, partitions=["a", "b"]).watermark == NEVER


def test_drain_ends_time_at_once() -> None:
    assert play(BOUNDED, heard(0, a=10_000), Control(1, drain=True)).watermark == FOREVER


def test_a_time_from_the_future_counts_up_to_its_bound_only() -> None:
    ask = sl.bounded(seconds=3).future_bound(seconds=60)
    assert play(ask, heard(100_000, a=10**12)).watermark == 100_000 + 60_000 - 3_000 - 1
    assert play(sl.bounded(seconds=3), heard(100_000, a=10**12)).watermark == 10**12 - 3_001


def test_the_clock_never_goes_back() -> None:
    assert play(BOUNDED, heard(5_000, a=1), heard(3_000, a=2)).clock == 5_000


def test_a_heartbeat_without_rows_moves_the_clock_only() -> None:
    before = play(BOUNDED, heard(0, a=10_000))
    after = advance(before, [Control(9_000)], [], BOUNDED)
    assert (after.watermark, after.clock) == (before.watermark, 9_000)


seen = st.builds(
    Seen,
    st.sampled_from("abc"),
    st.integers(0, 3),
    st.none() | st.integers(-50_000, 50_000),
    st.booleans() | st.just(value=False),
)
controls = st.builds(
    Control, st.integers(0, 40_000), st.lists(seen, max_size=3).map(tuple), st.sampled_from([False] * 9 + [True])
)
asks = st.sampled_from([BOUNDED, IDLING, sl.bounded(seconds=0).idle_after(seconds=1).future_bound(seconds=2)])


@given(st.lists(st.lists(controls, min_size=1, max_size=4), max_size=5), asks, st.data())
def test_the_order_of_control_rows_does_not_matter(batches: list[list[Control]], ask: Watermark, data: Any) -> None:
    one = other = Progress()
    for batch in batches:
        one = advance(one, batch, ["a", "b"], ask)
        other = advance(other, data.draw(st.permutations(batch)), ["b", "a"], ask)
        assert one == other


@given(st.lists(st.lists(controls, max_size=4), max_size=6), asks)
def test_neither_the_watermark_nor_the_clock_ever_falls(batches: list[list[Control]], ask: Watermark) -> None:
    progress = Progress()
    for batch in batches:
        after = advance(progress, batch, ["a"], ask)
        assert after.watermark >= progress.watermark
        assert after.clock >= progress.clock
        for name, partition in progress.partitions.items():
            assert after.partitions[name].watermark >= partition.watermark
        progress = after


@given(st.lists(controls, max_size=4), asks)
def test_controls_and_progress_survive_as_plain_values(batch: list[Control], ask: Watermark) -> None:
    progress = advance(Progress(), batch, ["a"], ask)
    assert progress_from_facts(json.loads(json.dumps(progress_to_facts(progress)))) == progress
    for control in batch:
        assert control_from_facts(json.loads(json.dumps(control_to_facts(control)))) == control
