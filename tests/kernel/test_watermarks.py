"""Watermarks in band: a pure fold over control rows, equal in every key group and on every replay."""

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from hypothesis import given
from hypothesis import strategies as st

import strandline as sl
from strandline.kernel.watermarks import (
    FOREVER,
    NEVER,
    Control,
    PartitionProgress,
    Progress,
    Rule,
    Seen,
    advance,
    control_from_facts,
    control_to_facts,
    counted_times,
    progress_from_facts,
    progress_to_facts,
)
from strandline.model.watermarks import Inputs, Watermark

BOUNDED = sl.bounded(seconds=3)
IDLING = sl.bounded(seconds=3).idle_after(seconds=10)


def heard(clock: int, **highest: int) -> Control:
    """Make a batch in which each partition had one row, with this highest event time."""
    return Control(clock, tuple(Seen(name, 1, time) for name, time in highest.items()))


def play(rule: Watermark, *controls: Control, partitions: Sequence[str] = ()) -> Progress:
    """Compute the progress after batches of one control row each."""
    progress = Progress()
    for control in controls:
        progress = advance(progress, [control], partitions, rule)
    return progress


def test_the_watermark_starts_at_the_beginning_of_time() -> None:
    assert play(BOUNDED, Control(5)).watermark == NEVER


def test_a_bounded_watermark_is_the_highest_time_minus_delay_minus_one_instant() -> None:
    assert play(BOUNDED, heard(0, a=10_000)).watermark == 6_999


def test_the_slowest_partition_sets_the_watermark() -> None:
    assert play(BOUNDED, heard(0, a=10_000, b=5_000)).watermark == 1_999


def test_observations_of_several_tasks_are_merged_by_partition() -> None:
    progress = advance(Progress(), [heard(0, a=9_000), heard(0, a=5_000), heard(0, a=7_000)], [], BOUNDED)
    assert progress.watermark == 5_999


def test_a_partition_without_rows_holds_the_watermark_back() -> None:
    progress = play(BOUNDED, heard(0, a=10_000), heard(10**9, a=10**9), partitions=["a", "b"])
    assert progress.watermark == NEVER


def test_a_new_partition_holds_the_watermark_but_does_not_move_it_back() -> None:
    before = play(BOUNDED, heard(0, a=10_000))
    after = advance(before, [heard(1, a=50_000), Control(1, (Seen("b"),))], [], BOUNDED)
    assert after.watermark == before.watermark == 6_999
    assert advance(after, [heard(2, b=60_000)], [], BOUNDED).watermark == 46_999


def test_the_watermark_never_decreases() -> None:
    assert play(BOUNDED, heard(0, a=10_000), heard(1, a=4_000)).watermark == 6_999


def test_without_idle_timeout_a_silent_partition_holds_the_watermark_forever() -> None:
    assert play(BOUNDED, heard(0, a=10_000, b=10_000), heard(10**9, a=10**9)).watermark == 6_999


def test_a_partition_is_idle_only_when_silent_for_longer_than_the_limit() -> None:
    start = heard(1_000, a=10_000, b=10_000)
    assert play(IDLING, start, heard(11_000, a=20_000)).idle == ()
    longer = play(IDLING, start, heard(11_001, a=20_000))
    assert longer.idle == ("b",)
    assert longer.watermark == 16_999


def test_a_partition_without_rows_becomes_idle() -> None:
    progress = play(IDLING, heard(0, a=10_000), heard(10_001, a=20_000), partitions=["a", "b"])
    assert progress.idle == ("b",)
    assert progress.watermark == 16_999


def test_a_row_without_an_event_time_counts_as_activity() -> None:
    start = heard(0, a=10_000, b=10_000)
    broken = Control(8_000, (Seen("a", 1, 20_000), Seen("b", 1, None)))
    assert play(IDLING, start, broken, heard(12_000, a=30_000)).idle == ()


def test_an_observation_without_rows_is_no_activity() -> None:
    start = heard(0, a=10_000, b=10_000)
    announced = Control(8_000, (Seen("a", 1, 20_000), Seen("b")))
    assert play(IDLING, start, announced, heard(12_000, a=30_000)).idle == ("b",)


def test_a_returning_partition_holds_the_watermark_but_does_not_move_it_back() -> None:
    gone = [heard(0, a=10_000, b=10_000), heard(20_000, a=30_000)]
    assert play(IDLING, *gone).watermark == 26_999
    back = [*gone, heard(21_000, a=60_000, b=12_000)]
    assert play(IDLING, *back).watermark == 26_999
    assert play(IDLING, *back).idle == ()
    assert play(IDLING, *back, heard(22_000, b=45_000)).watermark == 41_999


def test_when_all_partitions_are_idle_the_watermark_is_their_maximum() -> None:
    progress = play(IDLING, heard(0, a=10_000, b=50_000), Control(10_001))
    assert progress.idle == ("a", "b")
    assert progress.watermark == 46_999


def test_a_finished_partition_leaves_the_minimum() -> None:
    ended = Control(1, (Seen("a", 1, 10_000, finished=True), Seen("b", 1, 50_000)))
    assert play(BOUNDED, ended).watermark == 46_999


def test_a_finished_partition_is_not_idle() -> None:
    ended = Control(0, (Seen("a", 1, 10_000, finished=True), Seen("b", 1, 50_000)))
    assert play(IDLING, ended, heard(20_000, b=60_000)).idle == ()


def test_when_all_partitions_have_finished_the_watermark_is_the_end_of_time() -> None:
    first = Control(0, (Seen("a", 1, 10_000, finished=True), Seen("b", 1, 50_000)))
    last = Control(1, (Seen("b", 0, None, finished=True),))
    assert play(BOUNDED, first).watermark == 46_999
    assert play(BOUNDED, first, last).watermark == FOREVER


def test_expected_partitions_keep_the_watermark_from_the_end_of_time() -> None:
    ended = Control(0, (Seen("a", 1, 10_000, finished=True),))
    assert play(BOUNDED, ended, partitions=["a", "b"]).watermark == NEVER


def test_drain_moves_the_watermark_to_the_end_of_time() -> None:
    assert play(BOUNDED, heard(0, a=10_000), Control(1, drain=True)).watermark == FOREVER


def test_a_future_event_time_is_capped_at_its_bound() -> None:
    rule = sl.bounded(seconds=3).future_bound(seconds=60)
    assert play(rule, heard(100_000, a=10**12)).watermark == 100_000 + 60_000 - 3_000 - 1
    assert play(sl.bounded(seconds=3), heard(100_000, a=10**12)).watermark == 10**12 - 3_001


def test_the_clock_never_decreases() -> None:
    assert play(BOUNDED, heard(5_000, a=1), heard(3_000, a=2)).clock == 5_000


def test_a_heartbeat_without_rows_moves_the_clock_only() -> None:
    before = play(BOUNDED, heard(0, a=10_000))
    after = advance(before, [Control(9_000)], [], BOUNDED)
    assert (after.watermark, after.clock) == (before.watermark, 9_000)


def lagging(*times: int, partition: str = "a", first: int = 0) -> Seen:
    """Make an observation of rows with these times, in this order."""
    return Seen(partition, len(times), max(times), times=counted_times(pl.Series(times)), first=first)


def test_a_percentile_watermark_waits_for_observed_lags() -> None:
    rule = sl.percentile(0.5, first="7s", enough=3, least="2s", most="3s")
    few = Control(0, (lagging(20_000, 20_000),))
    assert play(rule, few).watermark == 12_999
    assert play(rule, few, Control(0, (lagging(20_000),))).watermark == 17_999


def test_lags_are_rounded_up_to_five_significant_bits_and_counted() -> None:
    rule = sl.percentile(1.0, first="0s", enough=1)
    progress = play(rule, Control(5, (lagging(10_000, 10_000 - 33, 10_000),)))
    assert progress.partitions["a"].lags == ((5, ((0, 2), (34, 1))),)
    assert progress.watermark == 10_000 - 34 - 1


@given(
    before=st.integers(-60, 60), batch=st.lists(st.integers(-50, 50), min_size=1), ahead=st.none() | st.integers(0, 20)
)
def test_counted_times_give_the_same_lags_as_individual_times(before: int, batch: list[int], ahead: int | None) -> None:
    """This holds for any earlier maximum and any bound on future times."""
    rule = sl.percentile(1.0, first="0s", enough=1)
    rule = rule if ahead is None else rule.future_bound(sl.Duration(ahead))
    start = play(rule, Control(0, (lagging(before),)))
    apart = tuple((at, 1) for at in batch)
    seen_both_ways = [
        Seen("a", len(batch), max(batch), times=times) for times in (apart, counted_times(pl.Series(batch)))
    ]
    one, other = (advance(start, [Control(1, (seen,))], [], rule) for seen in seen_both_ways)
    assert one == other
    assert sum(many for _, many in seen_both_ways[1].times) == len(batch)
    assert len(seen_both_ways[1].times) <= len(batch)


def test_a_percentile_drops_lags_beyond_its_horizon() -> None:
    rule = sl.percentile(1.0, first="0s", enough=1, horizon="10s")
    start = Control(0, (lagging(10_000, 9_000),))
    assert play(rule, start, Control(10_000, (lagging(10_000),))).watermark == 8_999 - 24
    assert play(rule, start, Control(10_001, (lagging(10_000),))).watermark == 9_999


def test_a_percentile_drops_old_lags_in_batches_without_usable_event_times() -> None:
    rule = sl.percentile(1.0, first="0s", enough=1, horizon="10s")
    start = Control(0, (lagging(10_000, 9_000),))
    assert play(rule, start, Control(10_001, (Seen("a", 1),))).watermark == 9_999
    assert play(rule, start, Control(10_001, (Seen("a"),))).watermark == 8_999 - 24


def test_a_percentile_merges_observations_of_a_partition_before_advancing() -> None:
    """Otherwise a task without late rows would advance the watermark before the lags of the next task are known."""
    rule = sl.percentile(1.0, first="0s", enough=1)
    tasks = [Control(0, (lagging(9_000, 10_000),)), Control(0, (lagging(4_000, first=2),))]
    whole = advance(Progress(), [Control(0, (lagging(9_000, 10_000, 4_000),))], [], rule)
    assert advance(Progress(), tasks, [], rule) == advance(Progress(), tasks[::-1], [], rule) == whole
    assert whole.watermark < 4_000


def test_with_source_watermarks_rows_do_not_advance_the_watermark() -> None:
    reported = Control(0, (Seen("a", watermark=9_000), Seen("b", watermark=7_000)))
    assert play(sl.from_source(), reported, heard(1, a=10**6)).watermark == 7_000
    assert play(sl.from_source(), reported, Control(1, (Seen("b", watermark=5_000),))).watermark == 7_000


def test_rows_without_partition_add_none_to_a_source_with_its_own_watermarks() -> None:
    progress = play(sl.from_source(), Control(0, (Seen("a", watermark=9_000), Seen("", 1, 5))))
    assert [*progress.partitions] == ["a"]


def test_in_processing_time_the_watermark_is_one_instant_behind_the_clock() -> None:
    assert play(sl.by_clock(), heard(5_000, a=10**9)).watermark == 4_999


def test_with_catch_up_a_returning_partition_is_ignored_until_it_has_caught_up() -> None:
    rule = sl.from_source().returning("catch_up")
    gone = [Control(0, (Seen("a", watermark=10_000), Seen("b", watermark=30_000))), Control(0, (Seen("a", idle=True),))]
    back = play(rule, *gone, Control(0, (Seen("a", idle=False),)))
    assert back.partitions["a"].returning
    assert back.watermark == 30_000
    on = advance(back, [Control(0, (Seen("b", watermark=50_000),))], [], rule)
    assert on.watermark == 50_000
    caught_up = advance(on, [Control(0, (Seen("a", watermark=50_000),))], [], rule)
    assert not caught_up.partitions["a"].returning


def test_a_partition_reported_idle_does_not_hold_the_watermark() -> None:
    start = Control(0, (Seen("a", watermark=10_000), Seen("b", watermark=30_000)))
    idle = play(sl.from_source(), start, Control(0, (Seen("a", idle=True),)))
    assert (idle.watermark, idle.idle, idle.is_idle) == (30_000, ("a",), False)
    assert play(sl.from_source(), start, Control(0, (Seen("a", idle=True), Seen("b", idle=True)))).is_idle


def test_inputs_are_fixed_and_watermarks_of_an_idle_input_are_ignored() -> None:
    rule = Inputs(("a", "b"))
    start = advance(
        Progress(), [Control(0, (Seen("a", watermark=1_000), Seen("b", watermark=5_000)))], rule.names, rule
    )
    assert start.watermark == 1_000
    assert [*advance(start, [heard(0, c=9)], rule.names, rule).partitions] == ["a", "b"]
    idle = advance(start, [Control(0, (Seen("a", idle=True),))], rule.names, rule)
    assert idle.watermark == 5_000
    ignored = advance(idle, [Control(0, (Seen("a", watermark=9_000),))], rule.names, rule)
    assert ignored.partitions["a"].watermark == 1_000


def test_an_input_that_becomes_idle_during_catch_up_does_not_advance_the_watermark() -> None:
    rule = Inputs(("a", "b"))
    progress = advance(
        Progress(), [Control(0, (Seen("a", watermark=10_000), Seen("b", watermark=50_000)))], rule.names, rule
    )
    for seen in (Seen("a", idle=True), Seen("a", idle=False), Seen("b", idle=True), Seen("a", idle=True)):
        progress = advance(progress, [Control(0, (seen,))], rule.names, rule)
    assert progress.watermark == 50_000
    assert progress.is_idle


times = st.lists(st.integers(-50_000, 50_000), max_size=3).map(tuple)
seen = st.builds(
    lambda partition, finished, watermark, times: Seen(
        partition,
        len(times),
        max(times, default=None),
        finished,
        watermark,
        times=counted_times(pl.Series(times, dtype=pl.Int64)),
    ),
    st.sampled_from("abc"),
    st.booleans() | st.just(value=False),
    st.none() | st.integers(-50_000, 50_000),
    times,
)
controls = st.builds(
    Control, st.integers(0, 40_000), st.lists(seen, max_size=3).map(tuple), st.sampled_from([False] * 9 + [True])
)
asks = st.sampled_from(
    [
        BOUNDED,
        IDLING,
        sl.bounded(seconds=0).idle_after(seconds=1).future_bound(seconds=2),
        sl.percentile(0.5, first="1s", enough=2).idle_after(seconds=3).returning("catch_up"),
        sl.from_source(),
        sl.by_clock(),
        Inputs(("a", "b")),
    ]
)


def numbered(batch: list[Control]) -> list[Control]:
    """Give observations distinct offsets, since no two tasks see the same rows."""
    offsets = iter(range(99))
    return [
        replace(control, seen=tuple(replace(each, first=next(offsets)) for each in control.seen)) for control in batch
    ]


@given(st.lists(st.lists(controls, min_size=1, max_size=4), max_size=5), asks, st.data())
def test_the_order_of_control_rows_does_not_matter(batches: list[list[Control]], rule: Rule, data: Any) -> None:
    one = other = Progress()
    for batch in map(numbered, batches):
        one = advance(one, batch, ["a", "b"], rule)
        other = advance(other, data.draw(st.permutations(batch)), ["b", "a"], rule)
        assert one == other


@given(st.lists(st.lists(controls, max_size=4), max_size=6), asks)
def test_neither_the_watermark_nor_the_clock_ever_decreases(batches: list[list[Control]], rule: Rule) -> None:
    progress = Progress()
    for batch in batches:
        after = advance(progress, batch, ["a"], rule)
        assert after.watermark >= progress.watermark
        assert after.clock >= progress.clock
        for name, partition in progress.partitions.items():
            assert after.partitions[name].watermark >= partition.watermark
        progress = after


@given(st.lists(controls, max_size=4), asks)
def test_controls_and_progress_round_trip_as_plain_values(batch: list[Control], rule: Rule) -> None:
    progress = advance(Progress(), batch, ["a"], rule)
    assert progress_from_facts(json.loads(json.dumps(progress_to_facts(progress)))) == progress
    for control in batch:
        assert control_from_facts(json.loads(json.dumps(control_to_facts(control)))) == control


def test_progress_that_an_earlier_release_stored_by_partition_is_read() -> None:
    """Before form 5 each partition was stored with the names of its fields."""
    stored = {
        "watermark": 5, "clock": 9, "inputs": {},
        "partitions": {
            "a-0": {"watermark": 5, "heard": 8, "idle": False, "finished": False, "returning": False, "highest": 6,
                    "lags": [[8, [[0, 2], [3, 1]]]]},
            "a-1": {"watermark": NEVER, "heard": 0, "idle": True, "finished": False, "returning": False,
                    "highest": NEVER, "lags": []},
        },
    }  # fmt: skip
    progress = progress_from_facts(json.loads(json.dumps(stored)))
    assert progress.partitions == {
        "a-0": PartitionProgress(5, 8, highest=6, lags=((8, ((0, 2), (3, 1))),)),
        "a-1": PartitionProgress(idle=True),
    }
    assert progress_from_facts(json.loads(json.dumps(progress_to_facts(progress)))) == progress


def test_partitions_that_nobody_heard_of_are_stored_too() -> None:
    progress = Progress(partitions={"": PartitionProgress(), "a": PartitionProgress()})
    assert progress_from_facts(json.loads(json.dumps(progress_to_facts(progress)))) == progress
    control = Control(1, (Seen(""), Seen("a")))
    assert control_from_facts(json.loads(json.dumps(control_to_facts(control)))) == control
