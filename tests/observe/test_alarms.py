"""Alarms: each rule finds its own condition only, and oscillating numbers fire once."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest

from strandline.errors import PlanError
from strandline.model.elements import Duration
from strandline.model.histograms import of_times
from strandline.observe.alarms.alarm_file import alarms_from
from strandline.observe.alarms.notify import Command, Topic, Webhook
from strandline.observe.alarms.rules import (
    DEFAULTS,
    RESOLVED_AFTER,
    Alarm,
    AlarmState,
    DeadLetterRate,
    HighLatency,
    LagGrowing,
    LateRate,
    RestartLoop,
    Rule,
    RuleInput,
    StateGrowing,
    WatermarkStuck,
    evaluate,
)
from strandline.observe.metrics.store import point_of
from strandline.observe.metrics.tables import Point
from tests.observe.made import START, batch, partition

SECOND = 1_000


def seen(many: int, every: int = SECOND, latest: dict[str, Any] | None = None, **columns: Any) -> RuleInput:
    """A number of points; a column may be a function of a point's number."""
    points = []
    for number in range(many):
        at = START + number * every
        point = point_of(batch(number, at), at, 1)
        fields = {name: each(number) if callable(each) else each for name, each in columns.items()}
        points.append(replace(point, **fields))
    now = START + many * every
    return RuleInput(now, points, batch(many, now, **(latest or {})), starts=[START])


@pytest.mark.slow
@pytest.mark.parametrize("rule", DEFAULTS, ids=lambda rule: rule.name)
def test_a_healthy_job_fires_no_alarm(rule: Rule) -> None:
    assert rule.find(seen(2_400)) is None
    assert rule.find(RuleInput(START)) is None


def test_growing_lag_fires() -> None:
    found = LagGrowing(batches=10).find(seen(30, lag_records=lambda number: 1_000 * number))
    assert found is not None
    assert "from 19.0 k to 29.0 k records over 10 batches" in found.text
    assert LagGrowing(batches=10).find(seen(30, lag_records=lambda number: 100_000 - 1_000 * number)) is None
    assert LagGrowing(batches=10).find(seen(5, lag_records=lambda number: 1_000 * number)) is None


def test_a_stuck_watermark_names_the_idle_partition_and_the_option_that_would_fix_it() -> None:
    stuck = seen(200, watermark=START - 9_000)
    silent = partition("scores-3", stuck.now, heard=stuck.now - 190_000)
    latest = batch(200, stuck.now, clock=stuck.now, held_by="scores-3", partitions=(silent,))
    found = WatermarkStuck().find(replace(stuck, latest=latest))
    assert found is not None
    assert found.text.endswith("partition scores-3 has been silent for 3.2 min")
    assert "scores-3" in found.hint
    assert "idle_after" in found.hint


def test_a_missing_watermark_names_the_partition_without_records() -> None:
    stuck = seen(200, watermark=None)
    silent = partition("scores-3", stuck.now, heard=None, event_time=None)
    latest = batch(200, stuck.now, watermark=None, held_by="scores-3", partitions=(silent,))
    found = WatermarkStuck().find(replace(stuck, latest=latest))
    assert found is not None
    assert "scores-3 has never sent a record" in found.text


def test_a_watermark_that_stands_still_without_input_or_after_the_end_is_fine() -> None:
    assert WatermarkStuck().find(seen(200, watermark=START, read=0)) is None
    assert WatermarkStuck().find(seen(200, latest={"ended": True}, watermark=START)) is None


def test_too_many_late_elements_fire() -> None:
    found = LateRate().find(seen(100, contributed=965, late=30))
    assert found is not None
    assert found.text.startswith("3.0% of")
    assert LateRate().find(seen(100, late=30, read=0)) is None


def test_dead_letters_fire_by_their_share_or_by_the_budget() -> None:
    assert DeadLetterRate().find(seen(100, dead=30)) is not None
    found = DeadLetterRate().find(seen(100, latest={"budget": 0.85}))
    assert found is not None
    assert "85% of the failure budget" in found.text


def test_high_latency_fires() -> None:
    slow = {"latency": {"on_time": of_times([5_000.0] * 50 + [900_000.0] * 50)}}
    found = HighLatency().find(seen(3, latest=slow))
    assert found is not None
    assert found.text.startswith("p99 from event time to the sink is")


def test_state_fires_when_it_only_grows() -> None:
    rule = StateGrowing(over=Duration(600_000))
    assert rule.find(seen(700, state_rows=lambda number: 20_000 + 100 * number)) is not None
    assert rule.find(seen(700, state_rows=lambda number: 20_000 + 100 * (number % 60))) is None
    assert rule.find(seen(100, state_rows=lambda number: 20_000 + 1_000 * number)) is None, "too short a time"


def test_a_restart_loop_fires() -> None:
    starts = [START + each * 60_000 for each in range(5)]
    assert RestartLoop().find(RuleInput(START + 300_000, starts=starts)) is not None
    assert RestartLoop().find(RuleInput(START + 3_600_000, starts=starts)) is None


def states(found: Iterable[bool], every: int, wait: int) -> list[str]:
    """The states of an alarm after each evaluation, without repetitions."""
    rule = LateRate(share=0.01, wait=Duration(wait), at_least=1)
    alarm, result = Alarm(rule), []
    for number, wrong in enumerate(found):
        now = START + number * every
        point: Point = replace(point_of(batch(0, now), now, 1), read=100, late=50 if wrong else 0)
        alarm = evaluate(alarm, RuleInput(now, [point]))
        result.append(alarm.state.value)
    return [state for state, _ in groupby(result)]


def test_a_condition_must_last_before_the_alarm_fires() -> None:
    assert states([True] * 2 + [False] * 3, 10_000, 60_000) == ["pending", "ok"]
    assert states([True] * 10, 10_000, 60_000) == ["pending", "firing"]
    assert states([True], 10_000, 0) == ["firing"]


def test_a_number_that_oscillates_around_its_limit_fires_once() -> None:
    assert states([True, False] * 40, 10_000, 0) == ["firing"]


def test_an_alarm_is_resolved_once_the_condition_is_gone_for_long_enough() -> None:
    silent = RESOLVED_AFTER.ms // 10_000
    assert states([True] + [False] * silent, 10_000, 0) == ["firing"]
    assert states([True] + [False] * (silent + 2), 10_000, 0) == ["firing", "ok"]


def test_an_alarm_counts_how_often_it_fired() -> None:
    alarm = Alarm(RestartLoop())
    bad = RuleInput(START + 300_000, starts=[START + each for each in range(9)])
    alarm = evaluate(evaluate(alarm, bad), bad)
    assert (alarm.state, alarm.count) == (AlarmState.FIRING, 1)


def test_a_file_names_limits_and_leaves_rules_out() -> None:
    alarms = alarms_from(
        {"lag_growing": {"batches": 30}, "watermark_stuck": {"after": "5m"}, "state_growing": {"off": True}}
    )
    found = {rule.name: rule for rule in alarms.rules}
    assert found["lag_growing"] == LagGrowing(batches=30)
    assert found["watermark_stuck"] == WatermarkStuck(after=Duration(300_000))
    assert "state_growing" not in found
    assert found["late_rate"] == LateRate()
    assert [rule.name for rule in alarms_from({"rules": "named", "latency": {}}).rules] == ["latency"]


def test_a_file_lists_the_notifiers() -> None:
    alarms = alarms_from(
        {
            "tell": [
                {"webhook": "https://example.org/hook", "headers": {"Authorization": "env:TOKEN"}},
                {"command": ["notify-send", "strandline"]},
                {"kafka": "alarms", "servers": "localhost:9092"},
            ]
        }
    ).notifiers
    assert [type(each) for each in alarms] == [Webhook, Command, Topic]
    assert "TOKEN" in repr(alarms[0])


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"lag": {}}, "there is no rule 'lag'"),
        ({"lag_growing": {"batch": 3}}, "lag_growing has no field 'batch'"),
        ({"lag_growing": {"batches": "many"}}, "lag_growing.batches is 'many'"),
        ({"watermark_stuck": {"after": "soon"}}, "not a length of time"),
        ({"lag_growing": 3}, "lag_growing must be a table"),
        ({"tell": [{"pigeon": "grey"}]}, "unknown notifier: pigeon"),
        ({"tell": {"webhook": "x"}}, "tell must be a list"),
        ({"tell": [{"webhook": "file:///etc/passwd"}]}, "unknown notifier"),
    ],
)
def test_an_invalid_file_is_refused_with_the_reason(table: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError) as refused:
        alarms_from(table)
    assert message in str(refused.value)
