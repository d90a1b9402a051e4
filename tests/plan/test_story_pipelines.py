"""Stories with several inputs and operators: how they are spelled, and what is refused."""

from typing import Any

import pytest

from strandline.errors import InvalidStory, PlanError
from strandline.execution.story_player import KernelPlayer
from strandline.model.triggers import AfterCount, AfterWatermark
from strandline.plan.stories.play import perform
from strandline.plan.stories.story import to_story
from strandline.plan.stories.story_pipeline import StoryPipeline, short_name
from strandline.testing import play

TOTAL = {"window": {"tumbling": "1m"}, "aggregate": {"total": {"sum": "v"}}}


def pipeline(**fields: Any) -> StoryPipeline:
    return to_story({"story": "mine", "pipeline": fields, "steps": []}).pipeline


def test_operators_read_the_one_before_and_the_first_reads_all_inputs() -> None:
    found = pipeline(inputs={"a": None, "b": None}, operators={"one": TOTAL, "two": TOTAL})
    one, two = found.stages.steps
    assert [path.origin for path in one.paths] == ["a", "b"]
    assert [path.origin for path in two.paths] == ["step 0"]
    assert (one.level, two.level) == (1, 2)


def test_a_window_over_panes_fires_when_the_first_does() -> None:
    early = {**TOTAL, "trigger": {"after_watermark": {"early": {"after_count": 3}}}}
    found = pipeline(operators={"one": early, "two": TOTAL})
    assert found.stages.steps[1].operator.trigger == AfterWatermark(early=AfterCount(1))  # type: ignore[union-attr]


def test_a_story_plays_the_stages_of_a_job() -> None:
    found = pipeline(inputs={"a": {"watermark": {"bounded": "5s"}}}, **TOTAL)
    (scan,) = found.stages.scans
    (step,) = found.stages.steps
    assert (scan.source.name, scan.flows[0].event_time, step.keys) == ("a", "at", ("key",))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"operators": {}}, "one operator or more"),
        ({"inputs": {}, **TOTAL}, "one input or more"),
        ({"operators": {"one": {"of": "elsewhere"}}}, "no input or earlier operator is called 'elsewhere'"),
        ({"inputs": {"one": None}, "operators": {"one": TOTAL}}, "two inputs or operators are called 'one'"),
        ({"operators": {"one": {**TOTAL, "time": "processing"}}}, "the time beside the watermark of an input"),
        ({"operators": {"one": {**TOTAL, "key": []}}}, "one column or more"),
        ({"inputs": {"a": {"every": "5s"}}, **TOTAL}, "the input 'a' has no 'every'"),
        ({"inputs": {"a": {"time": "processing", "watermark": {"bounded": "1s"}}}, **TOTAL}, "expected none"),
    ],
)
def test_a_pipeline_that_cannot_be_read_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidStory, match=message):
        pipeline(**fields)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"input": [{"at": "1s"}]}, "a list of elements for each input: a, b"),
        ({"input": {"c": []}}, "the elements of each input has no 'c'"),
        ({"idle": "c"}, "no input is called 'c'"),
        ({"watermark": {"of": "a", "partition": "p9", "to": "1s"}}, "no partition or input is called 'p9'"),
        ({"watermark": {"of": "b", "to": "1s"}}, "a step moves the watermark, but the pipeline has a rule for it"),
        ({"expect_state": {"of": "three", "rows": 1}}, "found 'three', expected one or two"),
        ({"expect": []}, "the rows of one output by its name: one, two"),
        ({"expect": {"one": [], "two": []}}, "write one step for each"),
    ],
)
def test_a_step_that_names_nothing_known_is_refused(step: dict[str, Any], message: str) -> None:
    inputs = {"a": None, "b": {"watermark": {"bounded": "1s"}}}
    fields = {"inputs": inputs, "operators": {"one": {**TOTAL, "of": "a"}, "two": {**TOTAL, "of": "b"}}}
    with pytest.raises(InvalidStory, match=message):
        to_story({"story": "mine", "pipeline": fields, "steps": [step]})


def test_rules_refuse_what_a_job_would_refuse() -> None:
    panes = {**TOTAL, "accumulation": "retracting"}
    fields = {"operators": {"one": panes, "two": {"window": {"count": 2}, "aggregate": {"n": {"count": None}}}}}
    for player in ("kernel", "reference"):
        outcome = play({"story": "mine", "pipeline": fields, "steps": []}, on=player)
        assert "cannot process retractions" in str(outcome)


def test_an_element_that_disappears_fails_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    def losing(self: KernelPlayer, scan: Any, rows: Any) -> Any:
        return rows[1:]

    monkeypatch.setattr(KernelPlayer, "_narrowed", losing)
    story = to_story({"story": "mine", "pipeline": TOTAL, "steps": [{"input": [{"at": "1s"}, {"at": "2s"}]}]})
    assert "1 elements are counted, expected 2" in str(perform(story, KernelPlayer))


def test_sources_are_named_as_in_the_users_code() -> None:
    assert [short_name(name) for name in ("files('events')", "kafka(plays)", "generator(seed=1)", "discard()")] == [
        "events", "plays", "generator(seed=1)", "discard()",
    ]  # fmt: skip


def test_the_error_of_a_rule_is_a_plan_error() -> None:
    panes = {**TOTAL, "accumulation": "retracting"}
    with pytest.raises(PlanError, match="cannot process retractions"):
        _ = pipeline(operators={"one": panes, "two": {"window": {"count": 2}}}).stages
