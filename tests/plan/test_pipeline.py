"""The fluent interface: every method returns a new value and does not change the old one."""

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

import strandline as sl
from strandline.errors import InvalidAggregate, InvalidArgument, InvalidStep, InvalidTime
from strandline.model.elements import Duration
from strandline.model.panes import Lateness, LateRows
from strandline.model.triggers import DEFAULT
from strandline.model.windows import Global
from strandline.plan.nodes import EventTime, KeyedNode, Read, Write
from strandline.plan.pipeline import Keyed, read
from tests.plan.endpoints import NoRunner, PaperSink, PaperSource, scores, totals

WATERMARK = sl.bounded(seconds=10)


def keyed() -> Keyed:
    return scores().event_time("at", WATERMARK).key_by("team")


def write_of(pipeline: sl.Pipeline) -> Write:
    assert isinstance(pipeline.root, Write)
    return pipeline.root


def step_of(panes: Any) -> Any:
    assert isinstance(panes.root, KeyedNode)
    return panes.root.operator


@pytest.mark.parametrize(
    "call",
    [
        lambda pipeline: pipeline.window(sl.tumbling(minutes=1)),
        lambda pipeline: pipeline.trigger(sl.after_count(1)),
        lambda pipeline: pipeline.accumulate(sl.retracting),
        lambda pipeline: pipeline.allow_lateness(minutes=1),
    ],
    ids=["window", "trigger", "accumulate", "allow_lateness"],
)
def test_each_method_returns_a_new_value_and_changes_nothing(call: Any) -> None:
    before, same = keyed(), keyed()
    after = call(before)
    assert after is not before
    assert after != before
    assert before == same


def test_pipelines_can_share_their_first_steps() -> None:
    base = keyed().window(sl.tumbling(minutes=1))
    early = base.trigger(sl.after_count(1)).aggregate(total=sl.sum("score"))
    plain = base.aggregate(total=sl.sum("score"))
    assert step_of(early).trigger == sl.after_count(1)
    assert step_of(plain).trigger == DEFAULT


def test_a_value_cannot_be_changed_in_place() -> None:
    for pipeline in (scores(), keyed(), totals()):
        with pytest.raises(FrozenInstanceError):
            pipeline.runner = None  # type: ignore[misc, assignment]


def test_every_setting_is_in_the_value() -> None:
    step = step_of(
        keyed()
        .window(sl.tumbling(minutes=2))
        .trigger(sl.after_watermark(late=sl.after_count(1)))
        .accumulate(sl.accumulating)
        .allow_lateness("90s", rows=LateRows.PER_WINDOW)
        .aggregate(total=sl.sum("score"), plays=sl.count())
    )
    assert step.window == sl.tumbling("2m")
    assert step.trigger == sl.after_watermark(late=sl.after_count(1))
    assert step.accumulation is sl.accumulating
    assert step.lateness == Lateness(Duration(90_000), LateRows.PER_WINDOW)
    assert step.aggregates == (("total", sl.sum("score")), ("plays", sl.count()))


def test_settings_have_the_defaults_of_the_model() -> None:
    step = step_of(keyed().aggregate(plays=sl.count()))
    assert step.window == Global()
    assert step.trigger == DEFAULT
    assert step.accumulation is sl.discarding
    assert step.lateness == Lateness()


def test_the_last_call_of_a_method_counts() -> None:
    pipeline = keyed().window(sl.tumbling(minutes=1)).window(sl.tumbling(minutes=2))
    assert step_of(pipeline.aggregate(plays=sl.count())).window == sl.tumbling(minutes=2)


def test_a_pipeline_holds_its_steps_from_source_to_sink() -> None:
    root = totals().root
    assert isinstance(root, Write)
    assert isinstance(root.of, KeyedNode)
    assert isinstance(root.of.inputs[0], EventTime)
    assert root.of.inputs[0].of == Read(PaperSource())
    assert root.sink == PaperSink()


def test_delivery_is_exactly_once_by_default() -> None:
    panes = keyed().aggregate(plays=sl.count())
    assert write_of(panes.write(PaperSink())).delivery is sl.Delivery.EXACTLY_ONCE
    assert write_of(panes.write(PaperSink(), delivery="at_least_once")).delivery is sl.Delivery.AT_LEAST_ONCE


def test_an_unknown_delivery_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InvalidArgument, match="cannot take 'perhaps' as delivery") as refused:
        keyed().aggregate(plays=sl.count()).write(PaperSink(), delivery="perhaps")
    assert refused.value.hint == "choose one of at_most_once, at_least_once, exactly_once"


def test_key_by_needs_a_column() -> None:
    with pytest.raises(InvalidStep, match="key_by names no column"):
        scores().key_by()


def test_aggregate_needs_an_aggregate() -> None:
    with pytest.raises(InvalidAggregate, match="nothing is computed"):
        keyed().aggregate()


def test_lateness_needs_a_length() -> None:
    with pytest.raises(InvalidTime, match="a length of time is missing"):
        keyed().allow_lateness()


def test_equal_pipelines_are_equal_with_any_runner() -> None:
    assert totals() == totals()
    assert read(PaperSource(), NoRunner()) == read(PaperSource(), NoRunner())


def test_running_hands_the_plan_to_the_runner_with_its_options() -> None:
    got: list[Any] = []

    class Runner(NoRunner):
        def run(self, *arguments: Any, **options: Any) -> str:  # type: ignore[override]
            got.append((arguments, options))
            return "a job"

    panes = read(PaperSource(), Runner()).event_time("at", WATERMARK).key_by("team").aggregate(plays=sl.count())
    pipeline = panes.write(PaperSink())
    assert pipeline.run(checkpoint="here") == "a job"
    assert pipeline.run("a session", checkpoint="there") == "a job"
    assert got == [
        ((pipeline.root, None), {"checkpoint": "here"}),
        ((pipeline.root, "a session"), {"checkpoint": "there"}),
    ]


def test_explaining_runs_nothing() -> None:
    assert "deliver   to paper, exactly once" in totals().explain()
