"""Stories are parsed to model values, and wrong ones are refused with file, line and what was expected."""

from pathlib import Path
from typing import Any

import pytest

from strandline.errors import InvalidStory, Unsupported
from strandline.model import aggregates
from strandline.model.elements import BEGINNING, Duration, Element, TimeDomain, Timestamp
from strandline.model.evictors import KeepWithin, Moment, keep_delta
from strandline.model.panes import Accumulation, Emit, Lateness, LateRows, PaneTimestamp
from strandline.model.steps import WindowedStep
from strandline.model.triggers import (
    DEFAULT,
    AfterEventTime,
    AfterProcessingTime,
    Trigger,
    after_count,
    after_watermark,
    all_of,
    every,
    first_of,
    in_sequence,
    never,
    or_finally,
    repeatedly,
    when,
)
from strandline.model.watermarks import BY_HAND, ByClock, Inputs, OnReturn, bounded, from_source, percentile
from strandline.model.windows import EVERYTHING, Count, Custom, Global, Window, cumulating, session, sliding, tumbling
from strandline.plan.stories.story import Story, read_stories, story_over, to_story
from strandline.plan.stories.story_pipeline import StoryPipeline, one_operator
from strandline.plan.stories.story_steps import (
    Drain,
    ExpectDead,
    ExpectIdle,
    ExpectLate,
    ExpectPanes,
    ExpectState,
    ExpectWatermark,
    FallIdle,
    Feed,
    Finish,
    Ignore,
    MoveClock,
    MoveWatermark,
    Restart,
    ReturnActive,
    Row,
)

SECOND = Duration(1_000)


def pipeline(**fields: Any) -> StoryPipeline:
    return to_story({"story": "x", "pipeline": fields, "steps": []}).pipeline


def acts(*steps: dict[str, Any], **fields: Any) -> list[Any]:
    return [step.act for step in to_story({"story": "x", "pipeline": fields, "steps": [*steps]}).steps]


def test_everything_has_its_default() -> None:
    assert pipeline() == one_operator(WindowedStep(), BY_HAND)
    assert pipeline().step.window == Global()
    assert pipeline().step.trigger == DEFAULT


@pytest.mark.parametrize(
    ("written", "window"),
    [
        ("global", Global()),
        ({"tumbling": "2m", "offset": "30s"}, tumbling("2m", offset="30s")),
        ({"sliding": "10m", "every": "1m", "offset": "-1s"}, sliding("10m", every="1m", offset="-1s")),
        ({"cumulating": "1h", "step": "10m"}, cumulating("1h", step="10m")),
        ({"session": "1m"}, session("1m")),
        ({"session": {"column": "gap"}, "touching": "separate"}, session(column="gap", touching="separate")),
        ({"count": 100, "every": 10}, Count(100, 10)),
        ({"custom": {"start": "a", "end": "b"}}, Custom("a", "b")),
    ],
)
def test_every_window_has_its_words(written: Any, window: Any) -> None:
    assert pipeline(window=written).step.window == window


@pytest.mark.parametrize(
    ("written", "trigger"),
    [
        ("after_watermark", after_watermark()),
        ({"after_watermark": None}, after_watermark()),
        (
            {"after_watermark": {"early": {"every": "30s"}, "late": "never"}},
            after_watermark(early=every("30s"), late=never()),
        ),
        ({"after_count": 3}, after_count(3)),
        ({"after_processing_time": "30s"}, AfterProcessingTime(Duration(30_000))),
        (
            {"after_processing_time": {"aligned": "1s", "offset": 1}},
            AfterProcessingTime(aligned=SECOND, offset=Duration(1)),
        ),
        ({"after_processing_time": {"delay": "1s"}}, AfterProcessingTime(SECOND)),
        ({"after_event_time": "1s"}, AfterEventTime(SECOND)),
        ({"after_event_time": {"period": "1s", "offset": 1}}, AfterEventTime(SECOND, Duration(1))),
        ({"when": "n > 1"}, when("n > 1")),
        ("never", never()),
        ({"never": None}, never()),
        ({"repeatedly": "after_watermark"}, DEFAULT),
        ({"every": "1s"}, repeatedly(AfterProcessingTime(SECOND))),
        ({"first_of": [{"after_count": 1}, "never"]}, first_of(after_count(1), never())),
        ({"all_of": [{"after_count": 1}]}, all_of(after_count(1))),
        ({"in_sequence": [{"after_count": 1}]}, in_sequence(after_count(1))),
        ({"or_finally": [{"after_count": 1}, "never"]}, or_finally(after_count(1), never())),
    ],
)
def test_every_trigger_has_its_words(written: Any, trigger: Trigger) -> None:
    assert pipeline(trigger=written, aggregate={"n": {"count": None}}).step.trigger == trigger


def test_aggregates_name_a_column_or_say_more() -> None:
    step = pipeline(
        aggregate={
            "n": {"count": None},
            "some": {"count": "c"},
            "best": {"top_k": {"column": "c", "k": 2, "by": "d"}},
            "half": {"quantile": {"column": "c", "q": 0.5}},
            "where": {"argmax": {"column": "c", "by": "d"}},
            "all": {"string_agg": {"column": "c", "separator": "/"}},
        }
    ).step
    assert step.aggregates == (
        ("n", aggregates.Count()),
        ("some", aggregates.Count("c")),
        ("best", aggregates.TopK("c", 2, "d")),
        ("half", aggregates.Quantile("c", 0.5)),
        ("where", aggregates.ArgMax("c", "d")),
        ("all", aggregates.StringAgg("c", "/")),
    )


def test_the_other_fields_of_a_pipeline() -> None:
    step = pipeline(
        accumulation="retracting",
        allowed_lateness="5m",
        late="per_window",
        pane_timestamp="latest",
        on_time_pane="if_non_empty",
        final_pane="always",
        evict={"keep_within": "2s", "when": "after"},
        ttl="1h",
    ).step
    assert step == WindowedStep(
        accumulation=Accumulation.RETRACTING,
        lateness=Lateness(Duration(300_000), LateRows.PER_WINDOW),
        pane_timestamp=PaneTimestamp.LATEST,
        on_time_pane=Emit.IF_NON_EMPTY,
        final_pane=Emit.ALWAYS,
        evictor=KeepWithin(Duration(2_000), Moment.AFTER),
        ttl=Duration(3_600_000),
    )
    assert pipeline(allowed_lateness="forever").step.lateness == Lateness(None)
    assert pipeline(evict={"keep_delta": "last.v - v", "from": 2}).step.evictor == keep_delta("last.v - v", bound=2)
    assert pipeline(fires="per_element").fires_per_element


def test_every_way_a_watermark_moves() -> None:
    assert pipeline(watermark={"bounded": "10s", "idle_after": "1m"}).watermark == bounded("10s").idle_after("1m")
    future = pipeline(watermark={"bounded": "1s", "future": "5s", "future_dead_letter": True, "on_return": "catch_up"})
    assert future.watermark == bounded("1s").future_bound("5s", dead_letter=True).returning("catch_up")
    learned = pipeline(
        watermark={"percentile": 0.9, "horizon": "1m", "least": "1s", "most": "2s", "first": 3, "enough": 4}
    )
    assert learned.watermark == percentile(0.9, horizon="1m", least="1s", most="2s", first=Duration(3), enough=4)
    given = pipeline(watermark={"from_source": {"partitions": ["p0", "p1"]}})
    assert (given.watermark, given.partitions) == (from_source(), ("p0", "p1"))
    assert pipeline(watermark={"from_source": None}).partitions == ()
    assert pipeline(watermark={"bounded": "1s", "partitions": ["p0"]}).partitions == ("p0",)
    assert pipeline(watermark={"inputs": ["a", "b"]}).watermark == Inputs(("a", "b"))
    assert pipeline(watermark={"inputs": ["a"], "on_return": "wait"}).watermark == Inputs(("a",), OnReturn.WAIT)


def test_in_processing_time_the_clock_is_the_watermark() -> None:
    by_clock = pipeline(time="processing")
    assert by_clock.step.time is TimeDomain.PROCESSING
    assert not isinstance(by_clock.watermark, Inputs)
    assert by_clock.watermark.generator == ByClock()
    with pytest.raises(InvalidStory, match="the clock is the watermark"):
        pipeline(time="processing", watermark={"bounded": "1s"})


def test_elements_are_numbered_in_their_partitions() -> None:
    first, second = acts(
        {"input": [{"at": "1s", "v": 1}, {"at": 2, "key": None, "partition": "p0"}]},
        {"input": [{"v": 3}, {"at": "soon", "partition": "p0"}]},
    )
    assert first == Feed((Element(Timestamp(1_000), "k", {"v": 1}), Element(Timestamp(2), None, {}, "p0")))
    assert second == Feed((Element(BEGINNING, "k", {"v": 3}, "", 1), Element(BEGINNING, "k", {}, "p0", 1)))


def test_every_step_has_its_words() -> None:
    partitions = {"watermark": {"from_source": {"partitions": ["p0"]}}}
    assert acts(
        {"watermark": "1s"},
        {"watermark": {"of": "p0", "to": "1s"}},
        {"clock": "1s"},
        {"idle": "p0"},
        {"active": "p1"},
        {"finish": "p1"},
        {"drain": None},
        {"restart": None},
        {"ignore": None},
        {"expect_watermark": "none"},
        {"expect_output_watermark": "1s"},
        {"expect_idle": True},
        {"expect_state": "empty"},
        {"expect_state": {"rows": 2}},
        **partitions,
    ) == [
        MoveWatermark(Timestamp(1_000)),
        MoveWatermark(Timestamp(1_000), "p0"),
        MoveClock(Timestamp(1_000)),
        FallIdle("p0"),
        ReturnActive("p1"),
        Finish("p1"),
        Drain(),
        Restart(),
        Ignore(),
        ExpectWatermark(BEGINNING),
        ExpectWatermark(Timestamp(1_000), of_output=True),
        ExpectIdle(True),
        ExpectState(0),
        ExpectState(2),
    ]


def test_expected_rows_hold_values_of_the_model() -> None:
    window = Window(Timestamp(0), Timestamp(1_000))
    panes, some, late, dead = acts(
        {"expect": [{"window": [0, "1s"], "timing": "late", "index": 1, "last": True, "timestamp": 5, "values": [1]}]},
        {"expect_some": [{"window": "global", "key": None}]},
        {"expect_late": [{"at": "1s", "reason": "closed", "window": [0, "1s"], "v": 3, "partial": False}]},
        {"expect_dead": [{"at": None, "reason": "bad_gap", "v": 3}]},
    )
    fields = {"window": window, "timing": "late", "index": 1, "last": True, "timestamp": Timestamp(5), "values": [1]}
    assert panes == ExpectPanes((Row(fields, "story.steps[0].expect[0]"),))
    assert some.some
    assert some.rows[0].fields == {"window": EVERYTHING, "key": None}
    refused = {"at": Timestamp(1_000), "reason": "closed", "window": window, "v": 3, "partial": False}
    assert late == ExpectLate((Row(refused, "story.steps[2].expect_late[0]"),))
    assert dead == ExpectDead((Row({"at": None, "reason": "bad_gap", "v": 3}, "story.steps[3].expect_dead[0]"),))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", r"f.story.yaml:1: found \[\], expected a mapping with story"),
        ("pipeline: {}\nsteps: []", r":1: .*expected 'story' too"),
        ("story: x\nsteppes: []", r":2: a story has no 'steppes', expected story, rule, pipeline, fails, steps"),
        ("story: x", r":1: .*expected 'steps' too"),
        ("story: 5\nsteps: []", r":1: found 5, expected a string"),
        ("story: x\nsteps: 5", r":2: found 5, expected a list of steps"),
        ("story: x\npipeline: 5\nsteps: []", r":2: found 5, expected a pipeline"),
        ("story: x\npipeline: {tigger: never}\nsteps: []", r":2: a pipeline has no 'tigger'"),
        (
            "story: x\npipeline: {window: {tumblin: 1s}}\nsteps: []",
            r":2: found .*tumblin.*expected a window: one of tumbling",
        ),
        (
            "story: x\npipeline: {window: {tumbling: 1s, every: 2s}}\nsteps: []",
            r":2: a window 'tumbling' has no 'every'",
        ),
        ("story: x\npipeline: {window: {sliding: 1s}}\nsteps: []", r":2: .*expected 'every' too"),
        ("story: x\npipeline: {window: {tumbling: 0s}}\nsteps: []", r":2: a tumbling window's size is 0s"),
        ("story: x\npipeline: {window: 5}\nsteps: []", r":2: found 5, expected a window"),
        (
            "story: x\npipeline: {trigger: after_lunch}\nsteps: []",
            r":2: found 'after_lunch', expected after_watermark or never",
        ),
        (
            "story: x\npipeline: {trigger: {after_lunch: 1}}\nsteps: []",
            r":2: .*expected a trigger: one of after_watermark",
        ),
        ("story: x\npipeline: {trigger: {after_count: many}}\nsteps: []", r":2: found 'many', expected a whole number"),
        ("story: x\npipeline: {trigger: {or_finally: [never]}}\nsteps: []", r":2: .*expected two triggers"),
        (
            "story: x\npipeline: {trigger: {after_processing_time: {offset: 1s}}}\nsteps: []",
            r":2: .*expected 'aligned' too",
        ),
        ("story: x\npipeline: {trigger: {when: totl > 1}}\nsteps: []", r":2: the condition 'totl > 1' reads 'totl'"),
        ("story: x\npipeline: {aggregate: {n: {summ: v}}}\nsteps: []", r":2: .*summ.*expected an aggregate"),
        ("story: x\npipeline: {aggregate: {n: {top_k: v}}}\nsteps: []", r":2: found 'v', expected 'k' too"),
        (
            "story: x\npipeline: {aggregate: {n: {sum: }}}\nsteps: []",
            r":2: found nothing, expected the name of a column",
        ),
        ("story: x\npipeline: {aggregate: [n]}\nsteps: []", r":2: .*expected aggregates by name"),
        (
            "story: x\npipeline: {accumulation: forgetting}\nsteps: []",
            r":2: found 'forgetting', expected discarding or",
        ),
        (
            "story: x\npipeline: {evict: {keep_last: 2, when: later}}\nsteps: []",
            r":2: found 'later', expected before or after",
        ),
        ("story: x\npipeline: {evict: {keep_delta: v}}\nsteps: []", r":2: .*expected 'from' too"),
        ("story: x\npipeline: {watermark: {bounded: -1s}}\nsteps: []", r":2: a bounded watermark's delay is -1s"),
        ("story: x\npipeline: {watermark: {bounded: 1s, future_dead_letter: true}}\nsteps: []", r":2: .*'future' too"),
        ("story: x\npipeline: {watermark: {inputs: [a, a]}}\nsteps: []", r":2: .*expected different names"),
        ("story: x\npipeline: {allowed_lateness: soon}\nsteps: []", r":2: 'soon' is not a length of time"),
        ("story: x\nsteps:\n  - inptu: []", r":3: .*inptu.*expected a step: one of input"),
        ("story: x\nsteps:\n  - input: []\n    watermark: 1s", r":4: a step 'input' has no 'watermark'"),
        ("story: x\nsteps:\n  - input: [5]", r":3: found 5, expected an element"),
        ("story: x\nsteps:\n  - input: [{partition: 5}]", r":3: .*expected the name of a partition as a string"),
        ("story: x\nsteps:\n  - watermark: soon", r":3: 'soon' is not a time"),
        ("story: x\nsteps:\n  - watermark: {of: p0}", r":3: .*expected 'to' too"),
        ("story: x\nsteps:\n  - idle: p0", r":3: no partition or input is called 'p0'"),
        ("story: x\nsteps:\n  - drain: now", r":3: found 'now', expected nothing after 'drain'"),
        ("story: x\nsteps:\n  - expect: [{totl: 5}]", r":3: a pane has no 'totl', expected key, .*values"),
        (
            "story: x\nsteps:\n  - expect:\n      - {timing: soon}",
            r":4: found 'soon', expected early or on_time or late",
        ),
        ("story: x\nsteps:\n  - expect: [{window: [1s]}]", r":3: .*expected a window: \[start, end\], or global"),
        (
            "story: x\nsteps:\n  - expect_late: [{reason: tired}]",
            r":3: found 'tired', expected expired or closed or behind",
        ),
        ("story: x\nsteps:\n  - expect_state: full", r":3: found 'full', expected 'empty', or"),
        ("story: x\nsteps:\n  - expect_idle: maybe", r":3: found 'maybe', expected true or false"),
        (
            "story: x\npipeline: {watermark: {bounded: 1s}}\nsteps:\n  - watermark: 5s",
            r":4: a step moves the watermark, but the pipeline has a rule for it",
        ),
        (
            "story: x\npipeline: {watermark: {inputs: [a, b]}}\nsteps:\n  - input: [{at: 1s, partition: c}]",
            r":4: no partition or input is called 'c'",
        ),
        (
            "story: x\npipeline: {watermark: {from_source: {partitions: [a]}}}\nsteps:\n  - watermark: {of: b, to: 1s}",
            r":4: no partition or input is called 'b'",
        ),
    ],
)
def test_a_bad_story_is_refused_with_file_line_and_what_was_expected(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "f.story.yaml"
    file.write_text(text)
    with pytest.raises(InvalidStory, match=message) as error:
        read_stories(file)
    assert error.value.message.startswith(f"{file}:")


def test_missing_and_empty_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidStory, match="cannot be read"):
        read_stories(tmp_path / "none.story.yaml")
    (tmp_path / "empty.story.yaml").write_text("# nothing yet\n")
    with pytest.raises(InvalidStory, match="there is no story"):
        read_stories(tmp_path / "empty.story.yaml")
    (tmp_path / "bytes.story.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InvalidStory, match="cannot be read"):
        read_stories(tmp_path / "bytes.story.yaml")


def test_a_file_may_have_several_stories(tmp_path: Path) -> None:
    file = tmp_path / "two.story.yaml"
    file.write_text("story: one\nsteps: []\n---\nstory: two\nsteps: []\n")
    assert [(story.name, story.place) for story in read_stories(file)] == [("one", f"{file}:1"), ("two", f"{file}:4")]


def test_patterns_are_not_supported_yet() -> None:
    with pytest.raises(Unsupported, match="stories cannot play a pattern yet"):
        pipeline(pattern={})


def test_a_join_needs_two_inputs_by_name() -> None:
    with pytest.raises(InvalidStory, match="join needs inputs by name"):
        pipeline(join={"after": "1s"})
    with pytest.raises(InvalidStory, match="'left' too"):
        pipeline(join={"after": "1s"}, inputs={"a": None, "b": None})
    with pytest.raises(InvalidStory, match="before or after"):
        pipeline(join={"how": "left"}, inputs={"a": None, "b": None}, left="a", right="b")


def test_a_story_that_should_be_refused_keeps_the_error() -> None:
    broken = {"story": "x", "pipeline": {"window": {"tumbling": "0s"}}, "steps": []}
    story = to_story({**broken, "fails": "size is 0s"})
    assert isinstance(story.refusal, InvalidStory)
    with pytest.raises(InvalidStory):
        to_story({**broken, "fails": "expectation"})


def test_elements_make_partitions_known_before_they_fall_idle() -> None:
    step, _ = acts({"input": [{"at": "1s", "partition": "p0"}]}, {"idle": "p0"}, watermark={"bounded": "1s"})
    assert step.elements[0].partition == "p0"
    with pytest.raises(InvalidStory, match="'p0'"):
        acts({"idle": "p0"}, {"input": [{"at": "1s", "partition": "p0"}]}, watermark={"bounded": "1s"})


def test_a_story_over_a_pipeline_in_code_is_checked_too() -> None:
    story = story_over(one_operator(WindowedStep()), [{"clock": "1s"}], "mine")
    assert story == Story("mine", one_operator(WindowedStep()), story.steps, place="mine")
    with pytest.raises(InvalidStory, match=r"steps\[0\].*expected a step"):
        story_over(one_operator(WindowedStep()), [{"clok": "1s"}], "mine")
