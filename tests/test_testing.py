"""What users get for their own tests: play, the stream in code, and the pytest plug-in."""

import doctest
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from strandline import testing
from strandline.errors import InvalidStory, InvalidWatermark, Unsupported
from strandline.model.aggregates import Count, Sum
from strandline.model.elements import TimeDomain, Timestamp
from strandline.model.steps import WindowedStep
from strandline.model.triggers import after_count, repeatedly
from strandline.model.watermarks import Inputs, bounded, from_source
from strandline.model.windows import tumbling
from strandline.testing import PLAYERS, USUAL_PLAYER, TestStream, play, play_file, read_stories, streams

pytest_plugins = ["pytester"]

STORY: dict[str, Any] = {
    "story": "one and two make three",
    "pipeline": {"window": {"tumbling": "1m"}, "aggregate": {"total": {"sum": "v"}}},
    "steps": [
        {"input": [{"at": "1s", "v": 1}, {"at": "2s", "v": 2}]},
        {"watermark": "1m"},
        {"expect": [{"window": ["0s", "1m"], "total": 3, "timing": "on_time"}]},
    ],
}
HOLDS = """
story: it holds
steps:
  - input: [{at: 1s, value: 1}]
  - drain:
  - expect: [{values: [1]}]
"""
FAILS = """
story: it does not hold
steps:
  - input: [{at: 1s, value: 1}]
  - drain:
  - expect: [{values: [2]}]
"""
TOTALS = WindowedStep((("n", Count()), ("total", Sum("v"))), tumbling("1m"))


def written(folder: Path, *stories: str) -> Path:
    file = folder / "mine.story.yaml"
    file.write_text("---".join(stories))
    return file


def test_a_story_may_be_a_mapping_a_path_or_a_value(tmp_path: Path) -> None:
    file = written(tmp_path, HOLDS)
    assert play(STORY).ok
    assert play(file).ok
    assert play(str(file)).ok
    assert play(read_stories(file)[0]).ok


def test_an_outcome_says_whether_where_and_what() -> None:
    wrong = {**STORY, "steps": [*STORY["steps"][:2], {"expect": [{"total": 4}]}]}
    outcome = play(wrong)
    assert not outcome.ok
    assert [failure.step for failure in outcome.failures] == [3]
    assert [pane.values["total"] for pane in outcome.outputs.panes] == [3]


def test_a_file_with_several_stories_is_played_as_a_file(tmp_path: Path) -> None:
    file = written(tmp_path, HOLDS, FAILS)
    assert [outcome.ok for outcome in play_file(file)] == [True, False]
    with pytest.raises(InvalidStory, match="2 stories in it, expected one"):
        play(file)


def test_a_player_that_is_not_there_is_named_with_those_that_are() -> None:
    with pytest.raises(Unsupported, match="there is no player 'orchestra'") as error:
        play(STORY, on="orchestra")
    assert error.value.hint == f"play on {' or '.join(PLAYERS)}"
    assert USUAL_PLAYER in PLAYERS


def test_a_stream_in_code_is_a_story() -> None:
    stream = (
        TestStream(TOTALS)
        .input([{"at": "1s", "v": 1}])
        .clock("5s")
        .restart()
        .watermark("1m")
        .expect([{"n": 1, "timing": "on_time"}])
        .expect_watermark("1m")
        .expect_output_watermark("1m")
        .expect_state(0)
        .input([{"at": Timestamp(2_000), "v": 2}, {"v": 3}])
        .expect_late([{"v": 2, "reason": "expired"}])
        .expect_dead([{"v": 3, "reason": "no_event_time"}])
        .drain()
        .expect([])
    )
    outcome = stream.play()
    assert outcome.ok, str(outcome)


def test_a_stream_is_not_changed_by_what_follows() -> None:
    start = TestStream(TOTALS).input([{"at": "1s", "v": 1}])
    assert start.watermark("1m").expect([{"total": 1}]).play().ok
    assert start.watermark("1m").expect_some([{"n": 1}]).ignore().play().ok
    assert start.play().ok


def test_a_stream_that_does_not_hold_names_its_step() -> None:
    outcome = TestStream(TOTALS, name="my totals").input([{"at": "1s", "v": 1}]).drain().expect([{"total": 2}]).play()
    assert [(failure.step, failure.place) for failure in outcome.failures] == [(3, "steps[2]")]
    assert str(outcome).startswith("my totals: fails")


def test_a_streams_watermark_may_be_found_told_or_put_together() -> None:
    found = TestStream(TOTALS, watermark=bounded("5s")).input([{"at": "70s", "v": 1}, {"at": "1s", "v": 2}])
    assert found.expect_watermark(64_999).expect([{"total": 2}]).play().ok
    told = TestStream(TOTALS, watermark=from_source(), partitions=["p0", "p1"]).watermark("9s", of="p0").idle("p1")
    assert told.expect_watermark("9s").active("p1").idle("p0").idle("p1").expect_idle().finish("p0").play().ok
    both = TestStream(TOTALS, Inputs(("a", "b"))).watermark("9s", of="a")
    assert both.expect_watermark("none").expect_idle(False).play().ok


def test_a_stream_may_fire_for_each_element() -> None:
    step = WindowedStep((("n", Count()),), tumbling("1m"), repeatedly(after_count(1)))
    stream = TestStream(step, fires_per_element=True).input([{"at": "1s"}, {"at": "2s"}])
    assert stream.expect([{"n": 1}, {"n": 1}]).play().ok


def test_in_processing_time_the_clock_is_the_watermark() -> None:
    step = WindowedStep((("n", Count()),), tumbling("1m"), time=TimeDomain.PROCESSING)
    assert TestStream(step).input([{}]).clock("1m").expect([{"n": 1}]).play().ok
    with pytest.raises(InvalidWatermark, match="the clock is the watermark"):
        TestStream(step, bounded("1s"))


def test_bad_steps_are_refused_when_the_story_is_made() -> None:
    with pytest.raises(InvalidStory, match=r"steps\[0\]\.clock: 'soon' is not a time"):
        TestStream(TOTALS).clock("soon").story()


def test_pytest_collects_stories_and_shows_their_differences(pytester: pytest.Pytester) -> None:
    written(pytester.path, HOLDS, FAILS, FAILS)
    result = pytester.runpytest("-v")
    result.assert_outcomes(passed=1, failed=2)
    result.stdout.fnmatch_lines(
        [
            "*mine.story.yaml::it holds PASSED*",
            "*mine.story.yaml::it does not hold FAILED*",
            "*mine.story.yaml::it does not hold (3) FAILED*",
            "*mine.story.yaml:*: step 3: expected 1 pane, got 1 pane",
            "*values is [[]1], expected [[]2]*",
        ]
    )
    result.stdout.no_fnmatch_line("*Traceback*")


@pytest.mark.slow
def test_pytest_tells_a_story_that_cannot_be_read_in_one_line(pytester: pytest.Pytester) -> None:
    written(pytester.path, "story: x\nsteps:\n  - inptu: []\n")
    result = pytester.runpytest()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*mine.story.yaml:3: found*inptu*expected a step*"])


def test_pytest_takes_the_player_as_an_option(pytester: pytest.Pytester) -> None:
    written(pytester.path, HOLDS)
    pytester.runpytest("--stories-on", "reference").assert_outcomes(passed=1)
    assert pytester.runpytest("--stories-on", "orchestra").ret == pytest.ExitCode.USAGE_ERROR


def test_other_yaml_is_left_alone(pytester: pytest.Pytester) -> None:
    (pytester.path / "values.yaml").write_text("a: 1")
    assert pytester.runpytest().ret == pytest.ExitCode.NO_TESTS_COLLECTED


@pytest.mark.parametrize("module", [testing, streams], ids=lambda module: module.__name__)
def test_the_examples_in_docstrings_run(module: ModuleType) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed


def test_the_testing_kit_loads_neither_spark_nor_polars() -> None:
    heavy = {"pyspark", "polars", "pyarrow", "pandas"}
    code = f"import sys, strandline.testing; print({heavy} & {{*sys.modules}})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
