"""Pipelines compile to stages, or are refused with a reason."""

import polars as pl
import pytest

import strandline as sl
from strandline.errors import InvalidStep
from strandline.model.steps import WindowedStep
from strandline.plan.compile import groups_for, to_stages
from strandline.plan.nodes import fingerprint
from strandline.plan.pipeline import Elements, Panes
from strandline.plan.stages import Deliver, Flagged, Flow, Input, InputPath, KeepFlagged, KeyedStep, Route, Scan
from strandline.plan.stateless_operations import Polars, Select, Sql, Where, is_native
from tests.plan.endpoints import PaperSink, PaperSource, scores, totals

WATERMARK = sl.bounded(seconds=10)


def timed() -> Elements:
    return scores().event_time("at", WATERMARK)


def by_team(elements: Elements) -> Panes:
    return elements.key_by("team").window(sl.tumbling(minutes=1)).aggregate(plays=sl.count())


def test_a_pipeline_becomes_a_scan_a_keyed_step_and_a_delivery() -> None:
    root = totals().root
    stages = to_stages(root, groups=6)
    (step,) = stages.steps
    watermark = sl.bounded(seconds=10).idle_after(minutes=1)
    flow = Flow("flow 0", (), "at", watermark, (Route((), step=0),))
    assert stages.scans == (Scan(0, PaperSource(), (), (flow,), dead_to=0),)
    inputs = (Input("flow 0", watermark, ("0", "1"), 0),)
    routes = (Route((), output=0),)
    paths = (InputPath("input", ("team",), "scores"),)
    assert step == KeyedStep(0, 1, ("team",), step.operator, inputs, paths, routes, late_to=0, dead_to=0, groups=6)
    assert stages.outputs == (Deliver(0, PaperSink(), sl.Delivery.EXACTLY_ONCE, ("team",)),)
    assert stages.fingerprint == fingerprint(root)


@pytest.mark.parametrize(("cores", "groups"), [(1, 4), (2, 4), (16, 32), (1_000, 256)])
def test_each_core_has_two_key_groups_within_bounds(cores: int, groups: int) -> None:
    assert groups_for(cores) == groups


def test_sql_before_the_event_time_runs_in_spark_and_polars_in_python() -> None:
    few = pl.col("points") < 9
    panes = by_team(scores().where("score > 0").with_columns(points="score * 2").event_time("at", WATERMARK).where(few))
    (scan,) = to_stages(panes.write(PaperSink()).root).scans
    assert scan.native == (Where(Sql("score > 0")), Select((("points", Sql("score * 2")),), beside=True))
    (flow,) = scan.flows
    assert flow.operations == ()
    assert flow.routes[0].operations == (Where(Polars(str(few), few)),)


def test_rows_that_sql_drops_after_the_event_time_still_advance_the_watermark() -> None:
    (scan,) = to_stages(by_team(timed().where("score > 0")).write(PaperSink()).root).scans
    assert scan.native == (Flagged("@flag0", "score > 0"),)
    assert scan.flows[0].routes[0].operations == (KeepFlagged("@flag0"),)


def test_branches_of_a_stream_are_read_once_and_split_by_flags() -> None:
    high, rest = timed().branch("score > 5")
    both = sl.together(by_team(high).write(PaperSink("high")), by_team(rest).write(PaperSink("rest")))
    stages = to_stages(both.root)
    (scan,) = stages.scans
    assert [flag.condition for flag in scan.native if isinstance(flag, Flagged)] == [
        "score > 5", "not coalesce(score > 5, false)",
    ]  # fmt: skip
    (flow,) = scan.flows
    assert [route.step for route in flow.routes] == [0, 1]
    assert [step.level for step in stages.steps] == [1, 1]


def test_a_step_over_panes_is_one_level_higher() -> None:
    panes = by_team(timed())
    again = panes.key_by("window_start").window(sl.tumbling(minutes=1)).aggregate(teams=sl.count())
    stages = to_stages(again.write(PaperSink()).root)
    first, second = stages.steps
    assert (first.level, second.level) == (1, 2)
    assert first.routes == (Route((), step=1),)
    assert second.inputs == (Input("step 0", None),)
    assert stages.levels == ((first,), (second,))
    assert stages.timed == (first,)


def test_a_step_over_retracting_panes_reads_signs() -> None:
    panes = timed().key_by("team").window(sl.tumbling(minutes=1)).accumulate(sl.retracting).aggregate(n=sl.count())
    again = panes.key_by("n").window(sl.tumbling(minutes=1)).aggregate(teams=sl.count())
    first, second = to_stages(again.write(PaperSink()).root).steps
    assert isinstance(first.operator, WindowedStep)
    assert isinstance(second.operator, WindowedStep)
    assert (first.operator.signed, second.operator.signed) == (False, True)


def test_each_stream_of_a_union_is_an_input_with_a_watermark_of_its_own() -> None:
    one, other = timed(), scores(PaperSource("more")).event_time("at", sl.monotone())
    stages = to_stages(by_team(sl.union(one, other)).write(PaperSink()).root)
    assert [scan.source.name for scan in stages.scans] == ["scores", "more"]
    (step,) = stages.steps
    assert [each.watermark for each in step.inputs] == [WATERMARK, sl.monotone()]


def test_late_elements_may_have_their_own_sink() -> None:
    panes = timed().key_by("team").window(sl.tumbling(minutes=1)).allow_lateness("1m", late=PaperSink("late"))
    stages = to_stages(panes.aggregate(plays=sl.count()).write(PaperSink()).root)
    assert [output.sink.name for output in stages.outputs] == ["paper", "late"]
    assert (stages.steps[0].late_to, stages.steps[0].dead_to) == (1, 0)


def test_elements_may_be_written_without_a_keyed_step() -> None:
    stages = to_stages(scores().where("score > 3").write(PaperSink()).root)
    assert stages.steps == ()
    assert stages.scans[0].flows[0].routes == (Route((), output=0),)
    assert stages.outputs[0].keys is None


def test_columns_are_selected_by_name_in_spark_or_in_python() -> None:
    stages = to_stages(scores().where(pl.col("score") > 3).select("team", points="score").write(PaperSink()).root)
    (scan,) = stages.scans
    assert scan.native == ()
    picked = scan.flows[0].operations[-1]
    assert isinstance(picked, Select)
    assert [name for name, _ in picked.columns] == ["team", "points"]
    assert not is_native(picked)
    before = to_stages(scores().select("team", points="score").where(pl.col("points") > 3).write(PaperSink()).root)
    assert len(before.scans[0].native) == 1


def test_sql_after_python_is_refused_with_the_step_before_it() -> None:
    mixed = timed().with_columns(points=pl.col("score") * 2).select("team", doubled="points * 2")
    with pytest.raises(InvalidStep, match="would run after the rows have crossed to Python") as refused:
        to_stages(by_team(mixed).write(PaperSink()).root)
    assert "points" in refused.value.detail
    assert "write it in Polars" in refused.value.hint


def test_sql_over_the_rows_of_a_keyed_step_is_refused_and_names_are_chosen_in_python() -> None:
    chosen = by_team(timed()).select("plays").write(PaperSink())
    (route,) = to_stages(chosen.root).steps[0].routes
    assert route.operations == (Select((("plays", Polars(str(pl.col("plays")), pl.col("plays"))),), beside=False),)
    with pytest.raises(InvalidStep, match="«where plays > 3» would run on the rows of a keyed step"):
        to_stages(by_team(timed()).where("plays > 3").write(PaperSink()).root)
