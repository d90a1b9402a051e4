"""Partitions and inputs, step by step: internal state and corner cases that stories do not show."""

from strandline.model.elements import BEGINNING, END, EPOCH, Duration, Element, Timestamp
from strandline.model.watermarks import Inputs, OnReturn, Watermark, bounded, by_clock, from_source, percentile
from strandline.reference.watermarks import (
    Progress,
    begin,
    counted_time,
    on_active,
    on_clock,
    on_drain,
    on_finish,
    on_idle,
    on_rows,
    on_watermark,
)


def seconds(number: float) -> Timestamp:
    return Timestamp(round(number * 1000))


def rows(*times: float, partition: str = "p0") -> list[Element]:
    return [Element(seconds(time), "k", {}, partition, place) for place, time in enumerate(times)]


def output(rule: Watermark | Inputs, *names: str, **watermarks: float) -> Progress:
    progress = begin(names)
    for name, second in watermarks.items():
        progress = on_watermark(rule, progress, name, seconds(second), EPOCH)
    return progress


def test_a_source_without_partitions_has_no_watermark_and_is_not_idle() -> None:
    assert begin(()).watermark == BEGINNING
    assert not begin(()).is_idle


def test_a_smaller_watermark_is_ignored() -> None:
    progress = output(from_source(), "p0", p0=10)
    assert on_watermark(from_source(), progress, "p0", seconds(5), EPOCH).watermark == seconds(10)


def test_each_partition_has_its_own_highest_time() -> None:
    rule = bounded("2s")
    progress = on_rows(rule, begin(()), rows(10) + rows(20, partition="p1"), EPOCH)
    assert {name: each.watermark for name, each in progress.partitions.items()} == {
        "p0": Timestamp(7_999),
        "p1": Timestamp(17_999),
    }
    assert progress.watermark == Timestamp(7_999)


def test_elements_without_a_time_do_not_move_the_watermark() -> None:
    progress = on_rows(bounded("2s"), begin(()), [Element(BEGINNING, "k"), Element(END, "k")], EPOCH)
    assert progress.watermark == BEGINNING


def test_the_last_active_partition_that_ends_leaves_it_to_the_idle_ones() -> None:
    rule = from_source()
    progress = on_idle(rule, output(rule, "p0", "p1", p0=10, p1=30), "p1", EPOCH)
    progress = on_finish(rule, progress, "p0", EPOCH)
    assert progress.watermark == seconds(30)
    assert progress.is_idle
    assert on_finish(rule, progress, "p1", EPOCH).watermark == END


def test_an_ended_partition_stays_ended() -> None:
    rule = from_source()
    progress = on_finish(rule, output(rule, "p0", "p1", p0=10, p1=30), "p0", EPOCH)
    progress = on_watermark(rule, progress, "p0", seconds(12), EPOCH)
    assert progress.watermark == seconds(30)


def test_with_catch_up_all_returning_partitions_may_be_excluded_at_once() -> None:
    rule = from_source().returning("catch_up")
    progress = output(rule, "p0", "p1", p0=10, p1=30)
    progress = on_idle(rule, on_idle(rule, progress, "p0", EPOCH), "p1", EPOCH)
    assert progress.watermark == seconds(30)
    progress = on_active(rule, progress, "p0", EPOCH)
    assert progress.watermark == seconds(30)
    assert progress.partitions["p0"].returning
    progress = on_watermark(rule, progress, "p0", seconds(40), EPOCH)
    assert not progress.partitions["p0"].returning
    assert progress.watermark == seconds(40)


def test_an_input_that_falls_idle_while_it_catches_up_moves_nothing() -> None:
    rule = Inputs(("a", "b"))
    progress = output(rule, "a", "b", a=10, b=50)
    for change, name in ((on_idle, "a"), (on_active, "a"), (on_idle, "b"), (on_idle, "a")):
        progress = change(rule, progress, name, EPOCH)
    assert progress.watermark == seconds(50)
    assert progress.is_idle


def test_rows_activate_an_idle_input_and_unknown_names_are_ignored() -> None:
    rule = Inputs(("a",))
    progress = on_idle(rule, begin(("a",)), "a", EPOCH)
    assert on_rows(rule, progress, rows(1, partition="zzz"), EPOCH) == progress
    assert not on_rows(rule, progress, rows(1, partition="a"), EPOCH).is_idle


def test_rows_without_a_partition_add_none_to_a_source_that_reports_watermarks() -> None:
    progress = on_rows(from_source(), output(from_source(), "p0", p0=10), rows(1, partition=""), EPOCH)
    assert [*progress.partitions] == ["p0"]


def test_a_watermark_counts_as_activity() -> None:
    rule = from_source().idle_after("10s")
    progress = on_watermark(rule, begin(("p0",)), "p0", seconds(1), seconds(5))
    assert not on_clock(rule, progress, seconds(15)).is_idle
    assert on_clock(rule, progress, seconds(15.001)).is_idle


def test_waiting_inputs_hold_the_watermark_like_partitions() -> None:
    rule = Inputs(("a", "b"), OnReturn.WAIT)
    progress = on_active(rule, on_idle(rule, output(rule, "a", "b", a=10, b=50), "a", EPOCH), "a", EPOCH)
    assert on_watermark(rule, progress, "b", seconds(90), EPOCH).watermark == seconds(50)


def test_processing_time_is_one_instant_behind_the_clock() -> None:
    assert on_clock(by_clock(), begin(()), seconds(5)).watermark == Timestamp(4_999)


def test_the_future_counts_only_up_to_its_bound() -> None:
    bound = bounded("0s").future_bound("5s").future
    assert counted_time(bound, seconds(100), seconds(10)) == seconds(15)
    assert counted_time(bound, seconds(12), seconds(10)) == seconds(12)
    assert counted_time(None, seconds(100), seconds(10)) == seconds(100)


def test_an_event_dead_lettered_as_future_does_not_move_the_watermark_but_counts_as_activity() -> None:
    rule = bounded("0s").future_bound("5s", dead_letter=True)
    first = on_rows(rule, begin(()), [Element(seconds(1), "k")], EPOCH)
    second = on_rows(rule, first, [Element(seconds(100), "k")], seconds(3))
    assert (second.watermark, second.partitions[""].heard) == (Timestamp(999), seconds(3))


def test_drained_is_the_end_of_time() -> None:
    assert on_drain(begin(("p0",))).watermark == END


def test_lags_are_rounded_up_to_five_binary_digits() -> None:
    rule = percentile(1.0, first="0s", enough=1)
    progress = on_rows(rule, begin(()), [Element(Timestamp(10_000), "k"), Element(Timestamp(10_000 - 33), "k")], EPOCH)
    assert [lag for _, lag in progress.partitions[""].lags] == [Duration(0), Duration(34)]
    assert progress.watermark == Timestamp(10_000 - 34 - 1)


def test_a_percentile_forgets_what_is_older_than_its_horizon() -> None:
    rule = percentile(1.0, first="0s", enough=1, horizon="10s")
    progress = on_rows(rule, begin(()), rows(10, 9, partition=""), EPOCH)
    assert on_rows(rule, progress, rows(10, partition=""), seconds(10)).watermark == Timestamp(8_999 - 24)
    assert on_rows(rule, progress, rows(10, partition=""), seconds(10.001)).watermark == Timestamp(9_999)


def test_below_enough_samples_the_first_delay_is_used_and_beyond_it_least_and_most_bound_what_is_learned() -> None:
    rule = percentile(0.5, first="7s", enough=3, least="2s", most="3s")
    progress = on_rows(rule, begin(()), rows(20, 20, partition=""), EPOCH)
    assert progress.watermark == Timestamp(12_999)
    assert on_rows(rule, progress, rows(20, partition=""), EPOCH).watermark == Timestamp(17_999)
    assert on_rows(rule, progress, rows(1, 1, 1, 1, 21, partition=""), EPOCH).watermark == Timestamp(17_999)
