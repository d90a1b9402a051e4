"""A failing story reports the step, the expected and the actual rows; a story with `fails` passes if it fails so."""

from typing import Any

import pytest

from strandline.errors import SetupError
from strandline.plan.stories.play import Outcome, perform
from strandline.plan.stories.player_protocol import Player
from strandline.plan.stories.story import to_story
from strandline.plan.stories.story_pipeline import StoryPipeline
from strandline.reference.player import ReferencePlayer

SUMS = {"window": {"tumbling": "10s"}, "aggregate": {"total": {"sum": "v"}}}


def played(*steps: dict[str, Any], fails: str | None = None, **fields: Any) -> Outcome:
    expected_failure = {} if fails is None else {"fails": fails}
    story = to_story({"story": "mine", "pipeline": {**SUMS, **fields}, "steps": [*steps], **expected_failure})
    return perform(
        story, lambda pipeline: ReferencePlayer(pipeline.step, pipeline.watermark, partitions=pipeline.partitions)
    )


ONE = {"input": [{"at": "1s", "v": 1}]}


def test_a_story_that_passes_has_no_failures_and_all_its_output() -> None:
    outcome = played(ONE, {"watermark": "10s"}, {"expect": [{"total": 1}]}, {"drain": None})
    assert outcome.ok
    assert [pane.values for pane in outcome.outputs.panes] == [{"total": 1}]
    assert str(outcome) == "mine: passes"


def test_a_wrong_expectation_is_reported_with_its_step_and_position() -> None:
    outcome = played(ONE, {"watermark": "10s"}, {"expect": [{"total": 2}]})
    assert str(outcome).splitlines() == [
        "mine: fails",
        "story.steps[2]: step 3: expected 1 pane, got 1 pane",
        "  expected",
        "    - {total: 2}",
        "  got",
        "    + {key: k, window: [0s, 10s], total: 1, timing: on_time, index: 0, last: true}",
        "  {total: 2}: total is 1, expected 2",
    ]


def test_every_wrong_expectation_is_reported() -> None:
    outcome = played(
        {"expect_watermark": "5s"},
        {"expect_idle": True},
        {"expect_state": {"rows": 2}},
        {"expect_output_watermark": "1s"},
        {"watermark": "20s"},
        {"input": [{"at": "1s"}, {"at": None}]},
        {"expect_late": []},
        {"expect_dead": [{"reason": "future"}]},
    )
    summaries = [failure.difference.summary for failure in outcome.failures]
    assert summaries == [
        "the watermark is none, expected 5s",
        "idleness is false, expected true",
        "the number of windows held is 0, expected 2",
        "the output watermark is none, expected 1s",
        "expected no late rows, got 1 late row",
        "expected 1 dead letter, got 1 dead letter",
    ]
    assert [failure.step for failure in outcome.failures] == [1, 2, 3, 4, 7, 8]


def test_output_that_no_step_expects_is_reported() -> None:
    outcome = played(ONE, {"watermark": "10s"}, {"input": [{"at": "2s"}, {"at": None}]})
    assert [failure.difference.summary for failure in outcome.failures] == [
        "at the end of the story expected no panes, got 1 pane",
        "at the end of the story expected no late rows, got 1 late row",
        "at the end of the story expected no dead letters, got 1 dead letter",
    ]


def test_an_error_of_the_player_ends_the_story() -> None:
    outcome = played({"input": [{"at": "1s", "v": "x"}]}, {"drain": None}, {"expect": []})
    (failure,) = outcome.failures
    assert failure.is_error
    assert failure.step == 2
    assert "Sum(column='v') cannot be computed" in str(failure)


def test_an_error_from_making_the_player_is_reported() -> None:
    def none(_: StoryPipeline) -> Player:
        raise SetupError("there is no Java", hint="install it")

    outcome = perform(to_story({"story": "mine", "steps": []}), none)
    assert str(outcome).splitlines()[1] == "story: there is no Java Hint: install it"


@pytest.mark.parametrize("fails", ["total is 1, expected 2", "expectation"])
def test_a_story_that_should_fail_passes_when_it_does(fails: str) -> None:
    assert played(ONE, {"watermark": "10s"}, {"expect": [{"total": 2}]}, fails=fails).ok


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        ("expectation", "it should fail with an expectation, and passes"),
        ("a size of 0s", "it should fail with the text 'a size of 0s', and passes"),
    ],
)
def test_a_story_that_should_fail_and_does_not_is_reported(fails: str, message: str) -> None:
    outcome = played(fails=fails)
    assert not outcome.ok
    assert outcome.failures[0].difference.summary == message


def test_a_story_that_fails_otherwise_is_reported_with_its_failures() -> None:
    outcome = played(ONE, {"drain": None}, fails="something else")
    assert len(outcome.failures) == 2
    assert outcome.failures[0].difference.summary.endswith("and fails otherwise")


def test_an_error_is_not_a_failed_expectation() -> None:
    outcome = played({"input": [{"at": "1s", "v": "x"}]}, {"drain": None}, fails="expectation")
    assert not outcome.ok


def test_a_refusal_passes_if_it_is_expected() -> None:
    assert played(window={"tumbling": "0s"}, fails="size is 0s").ok
    assert not played(window={"tumbling": "0s"}, fails="another text").ok


def test_ignoring_and_restarting_leave_no_trace() -> None:
    outcome = played(ONE, {"restart": None}, {"drain": None}, {"ignore": None}, {"expect": []})
    assert outcome.ok
    assert len(outcome.outputs.panes) == 1


def test_every_move_reaches_the_player() -> None:
    outcome = played(
        {"watermark": {"of": "p0", "to": "5s"}},
        {"idle": "p1"},
        {"expect_watermark": "5s"},
        {"active": "p1"},
        {"idle": "p1"},
        {"idle": "p0"},
        {"expect_idle": True},
        {"finish": "p0"},
        {"finish": "p1"},
        {"expect_watermark": "+inf"},
        {"clock": "1s"},
        watermark={"from_source": {"partitions": ["p0", "p1"]}},
    )
    assert outcome.ok, str(outcome)
