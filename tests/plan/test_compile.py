"""From what was asked to stages, or to the reason why it cannot run."""

import pytest

import strandline as sl
from strandline.errors import InvalidStep
from strandline.plan.compile import GROUPS, to_stages
from strandline.plan.nodes import Read, Write, fingerprint
from strandline.plan.pipeline import Pipeline
from strandline.plan.stages import Deliver, KeyedStep, Prepare, Scan
from tests.plan.endpoints import PaperSink, PaperSource, scores, totals

WATERMARK = sl.bounded(seconds=10)


def pipeline(key: str = "team", at: str = "at", **aggregates: object) -> Pipeline:
    panes = scores().event_time(at, WATERMARK).key_by(key).window(sl.tumbling(minutes=1))
    return panes.aggregate(**(aggregates or {"plays": sl.count()})).write(PaperSink())  # type: ignore[arg-type]


def test_a_pipeline_becomes_four_stages_and_a_fingerprint() -> None:
    root = totals().root
    stages = to_stages(root)
    step = stages.keyed.step
    watermark = sl.bounded(seconds=10).idle_after(minutes=1)
    assert stages.scan == Scan(PaperSource(), "at")
    assert stages.prepare == Prepare(("team",), step, watermark, GROUPS)
    assert stages.keyed == KeyedStep(("team",), step, watermark, ("0", "1"))
    assert stages.deliver == Deliver(PaperSink(), sl.Delivery.EXACTLY_ONCE)
    assert stages.fingerprint == fingerprint(root)


def test_the_number_of_key_groups_is_kept_with_the_state_and_stays() -> None:
    assert GROUPS == 16


@pytest.mark.parametrize(
    ("asked", "column"),
    [
        (pipeline(key="club"), "club"),
        (pipeline(at="when"), "when"),
        (pipeline(total=sl.sum("points")), "points"),
        (pipeline(best=sl.argmax("user", by="points")), "points"),
        (pipeline(plays=sl.count("points")), "points"),
    ],
    ids=["key", "event time", "aggregate", "by", "count"],
)
def test_a_column_that_the_source_does_not_have_is_refused_with_those_it_has(asked: Pipeline, column: str) -> None:
    with pytest.raises(InvalidStep, match=f"scores has no column '{column}'") as refused:
        to_stages(asked.root)
    assert refused.value.detail == "it has team, user, score, at"
    assert refused.value.hint


def test_a_key_and_an_aggregate_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidStep, match="'team' is both a key and an aggregate") as refused:
        to_stages(pipeline(team=sl.count()).root)
    assert refused.value.hint == "give the aggregate another name"


def test_a_delivery_that_the_sink_cannot_give_is_refused_with_those_it_can() -> None:
    panes = scores().event_time("at", WATERMARK).key_by("team").aggregate(plays=sl.count())
    with pytest.raises(InvalidStep, match="paper cannot deliver at most once") as refused:
        to_stages(panes.write(PaperSink(), delivery="at_most_once").root)
    assert refused.value.detail == "it offers at_least_once, exactly_once"


def test_retractions_that_the_sink_cannot_take_are_refused() -> None:
    with pytest.raises(InvalidStep, match="paper cannot take retractions") as refused:
        to_stages(totals(sink=PaperSink(takes_retractions=False)).root)
    assert "accumulate(accumulating)" in refused.value.hint


def test_a_sink_without_retractions_takes_every_other_accumulation() -> None:
    for how in (sl.discarding, sl.accumulating):
        panes = scores().event_time("at", WATERMARK).key_by("team").accumulate(how).aggregate(plays=sl.count())
        stages = to_stages(panes.write(PaperSink(takes_retractions=False)).root)
        assert stages.keyed.step.accumulation is how


def test_a_pipeline_without_an_event_time_is_refused_with_the_shape_it_should_have() -> None:
    panes = scores().key_by("team").aggregate(plays=sl.count())
    with pytest.raises(InvalidStep, match="is not source, event time, key, aggregate, sink") as refused:
        to_stages(panes.write(PaperSink()).root)
    assert "event_time(…)" in refused.value.hint


def test_a_pipeline_without_aggregates_is_refused() -> None:
    with pytest.raises(InvalidStep, match="is not source, event time, key, aggregate, sink"):
        to_stages(Write(Read(PaperSource()), PaperSink(), sl.Delivery.EXACTLY_ONCE))
