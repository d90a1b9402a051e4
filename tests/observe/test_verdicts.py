"""Verdicts: each golden number is judged, with a reason."""

from typing import Any

import pytest

from strandline.model.counts import Counts
from strandline.model.histograms import of_times
from strandline.observe.metrics.metrics import BatchMetrics, HotKey, StepMetrics
from strandline.observe.verdicts import Level, Verdict, verdicts, worst
from tests.observe.made import START, batch, partition

MANY = 40


def story(**fields: Any) -> list[BatchMetrics]:
    """Batches a second apart; a field may be a function of a batch's number and time."""
    return [
        batch(number, at, **{name: each(number, at) if callable(each) else each for name, each in fields.items()})
        for number, at in ((number, START + number * 1_000) for number in range(MANY))
    ]


def verdict(number: str, history: list[BatchMetrics]) -> Verdict:
    return next(each for each in verdicts(history) if each.number == number)


def test_a_healthy_job_is_ok() -> None:
    found = verdicts(story())
    assert worst(found) is Level.OK, found
    assert len(found) == 11


def test_overflowed_sums_are_a_warning_with_their_number() -> None:
    found = verdict("overflow", story(counts=Counts(10, 10, overflow=2)))
    assert (found.level, found.value) == (Level.WARN, f"{2 * MANY}")
    assert "null" in found.why


def test_a_job_without_a_batch_has_no_verdict() -> None:
    assert verdicts([]) == []
    assert worst([]) is Level.OK


def test_lag_that_grows_is_bad() -> None:
    found = verdict("lag", story(lag_records=lambda number, _: 5_000 * (number + 1)))
    assert found.level is Level.BAD
    assert "grown" in found.why


def test_shrinking_lag_is_only_a_warning() -> None:
    found = verdict("lag", story(lag_records=lambda number, _: 500_000 - 5_000 * number))
    assert found.level is Level.WARN


def test_all_input_is_read_only_if_the_lag_is_zero() -> None:
    assert verdict("lag", story(lag_records=0)).why == "all input is read"
    assert verdict("lag", story(lag_records=5)).why == "it does not grow"


def test_a_job_that_was_drained_with_a_rest_says_so() -> None:
    last = story(lag_records=40_016, ended=True, watermark=None)
    assert (verdict("lag", last).level, verdict("lag", last).why) == (
        Level.WARN,
        "the job was drained and left them unread",
    )
    assert verdict("watermark", last).why == "the job was drained, every window is closed"


def test_a_source_without_lag_information_has_no_lag() -> None:
    assert verdict("lag", story(lag_records=None)).value == "–"


def test_a_missing_element_is_bad() -> None:
    found = verdict("throughput", story(counts=Counts(read=10, contributed=9)))
    assert found.level is Level.BAD
    assert found.why == f"{MANY} elements are unaccounted for"


def test_a_stuck_watermark_names_the_partition_and_the_length_of_its_silence() -> None:
    silent = partition("scores-3", START, heard=START - 60_000)
    found = verdict(
        "watermark", story(watermark=START - 9_000, held_by="scores-3", partitions=(silent,), clock=lambda _, at: at)
    )
    assert found.level is Level.BAD
    assert "scores-3 holds it back, silent for 99.0 s" in found.why


def test_a_missing_watermark_names_the_silent_partition() -> None:
    found = verdict("watermark", story(watermark=None, held_by="scores-2"))
    assert (found.level, found.value) == (Level.WARN, "none yet")
    assert "scores-2" in found.why


def test_a_stream_that_has_ended_is_ok() -> None:
    assert verdict("watermark", story(watermark=None, ended=True)).level is Level.OK


@pytest.mark.parametrize(("late", "level"), [(5, Level.OK), (50, Level.WARN)])
def test_too_many_late_elements_are_a_warning(late: int, level: Level) -> None:
    assert verdict("lateness", story(counts=Counts(1_000, 1_000 - late, late))).level is level


@pytest.mark.parametrize(("spent", "level"), [(0.1, Level.OK), (0.6, Level.WARN), (0.95, Level.BAD)])
def test_a_spent_failure_budget_is_judged_by_its_share(spent: float, level: Level) -> None:
    assert verdict("dead letters", story(budget=spent)).level is level


def test_many_dead_letters_are_a_warning_with_their_reason() -> None:
    found = verdict("dead letters", story(counts=Counts(100, 50, dead=50), reasons={"not_json": 50}))
    assert found.level is Level.WARN
    assert "not_json" in found.why


def test_a_skewed_key_group_is_a_warning_with_the_hottest_key() -> None:
    step = StepMetrics("step 1", counts=Counts(read=10_000), groups=(9_000, 300, 300, 400))
    found = verdict("skew", story(steps=(step,), hot=(HotKey("step 1", '{"team":"red"}', 9_000, 0.9),)))
    assert found.level is Level.WARN
    assert '{"team":"red"} with 90%' in found.why


def test_state_that_only_grows_is_a_warning() -> None:
    growing = story(steps=lambda number, _: (StepMetrics("step 1", rows=100 * (number + 1)),))
    assert verdict("state", growing).level is Level.WARN
    falling = story(steps=lambda number, _: (StepMetrics("step 1", rows=100 * (number % 5 + 1)),))
    assert verdict("state", falling).level is Level.OK


def test_backpressure_names_the_stage_that_limits_and_what_would_help() -> None:
    busy = story(stages={"prepare": 0.2, "deliver": 0.8}, lag_records=lambda number, _: 5_000 * (number + 1))
    found = verdict("backpressure", busy)
    assert found.level is Level.BAD
    assert "deliver takes 80% of it: a faster sink" in found.why


def test_a_sink_that_takes_half_of_the_time_is_a_warning() -> None:
    assert verdict("commit", story(stages={"step": 0.5, "deliver": 3.0})).level is Level.WARN


def test_high_latency_is_a_warning() -> None:
    slow = {"on_time": of_times([900_000.0] * 10)}
    assert verdict("latency", story(latency=slow)).level is Level.WARN
