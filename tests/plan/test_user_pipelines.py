"""A story plays a user's own pipeline: inputs by source and column, expectations by output."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest

import strandline as sl
from strandline.cli.actions import init
from strandline.errors import InvalidStory
from strandline.testing import play, play_file, read_stories

SCHEMA = "team string, score long, at timestamp, day date, share decimal(8,2), tags array<string>"


def scores(place: str = "scores") -> Any:
    return sl.read(sl.files(place, sl.json(SCHEMA))).event_time("at", sl.bounded(seconds=10))


def totals(minutes: int = 1) -> Any:
    return scores().key_by("team").window(sl.tumbling(minutes=minutes)).aggregate(total=sl.sum("score"))


STEPS: list[dict[str, Any]] = [
    {"input": [{"team": "red", "score": 3, "at": "5s"}, {"team": "red", "score": 4, "at": "1970-01-01T00:00:40Z"}]},
    {"watermark": "1m"},
    {"expect": [{"team": "red", "window": ["0s", "1m"], "total": 7, "timing": "on_time"}]},
]


@pytest.mark.parametrize("player", ["kernel", "reference"])
def test_a_story_plays_a_pipeline_and_fails_when_the_pipeline_changes(player: str) -> None:
    assert play({"story": "mine", "pipeline": totals(), "steps": STEPS}, on=player).ok
    assert not play({"story": "mine", "pipeline": totals(minutes=2), "steps": STEPS}, on=player).ok


def test_a_function_may_return_the_pipeline() -> None:
    assert play({"story": "mine", "pipeline": totals, "steps": STEPS}).ok
    written = totals().write(sl.sqlite("x.db", table="totals"))
    assert play({"story": "mine", "pipeline": lambda: written, "steps": STEPS}).ok


def test_a_file_beside_the_story_is_loaded_by_its_path(tmp_path: Path) -> None:
    for name, text in init.FILES.items():
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    story = tmp_path / "totals.story.yaml"
    assert [outcome.ok for outcome in play_file(story)] == [True]
    assert [outcome.ok for outcome in play_file(story, on="reference")] == [True]
    changed = init.PIPELINE.replace("sl.retracting", "sl.discarding")
    (tmp_path / "pipeline.py").write_text(changed)
    assert [outcome.ok for outcome in play_file(story)] == [False]


def test_the_rule_of_the_pipeline_moves_its_watermark() -> None:
    rows = [{"team": "red", "score": 1, "at": "0s"}, {"team": "red", "score": 1, "at": "75s"}]
    steps: list[dict[str, Any]] = [{"input": rows}, {"expect_watermark": "64999ms"}, {"expect": [{"total": 1}]}]
    assert play({"story": "mine", "pipeline": totals(), "steps": steps}).ok


def test_inputs_are_named_by_their_source_and_outputs_by_their_sink() -> None:
    both = sl.union(scores("web"), scores("shop"))
    sums = both.key_by("team").window(sl.tumbling(minutes=1)).aggregate(total=sl.sum("score"))
    few = both.key_by("team").window(sl.tumbling(minutes=2)).aggregate(n=sl.count())
    pipeline = sl.together(sums.write(sl.sqlite("x.db", table="sums")), few.write(sl.sqlite("x.db", table="few")))
    steps: list[dict[str, Any]] = [
        {"input": {"web": [{"team": "a", "score": 1, "at": "1s"}], "shop": [{"team": "a", "score": 2, "at": "2s"}]}},
        {"watermark": {"of": "web", "to": "2m"}},
        {"expect": {"sums": []}},
        {"watermark": {"of": "shop", "to": "2m"}},
        {"expect": {"sums": [{"team": "a", "total": 3}]}},
        {"expect": {"few": [{"team": "a", "n": 2}]}},
    ]
    assert play({"story": "mine", "pipeline": pipeline, "steps": steps}).ok
    assert play({"story": "mine", "pipeline": pipeline, "steps": steps}, on="reference").ok


def test_operations_in_polars_run_and_dead_letters_are_expected() -> None:
    def halve(rows: pl.DataFrame) -> pl.DataFrame:
        if (rows["score"] < 0).any():
            raise ValueError("negative")
        return rows.select("team", "at", half=pl.col("score") / 2)

    halves = scores().map(halve, "team string, at timestamp, half double").where(pl.col("half") > 1)
    pipeline = halves.key_by("team").window(sl.tumbling(minutes=1)).aggregate(total=sl.sum("half"))
    shown = pipeline.select("total")
    rows = [{"team": "a", "score": score, "at": "1s"} for score in (1, 5, -1)]
    steps = [
        {"input": rows},
        {"expect_dead": [{"reason": "function_failed", "score": -1}]},
        {"drain": None},
        {"expect": [{"total": 2.5, "window": ["0s", "1m"]}]},
    ]
    outcome = play({"story": "mine", "pipeline": shown, "steps": steps})
    assert outcome.ok, str(outcome)
    with_oracle = play({"story": "mine", "pipeline": shown, "steps": steps}, on="reference")
    assert "the reference does not run" in str(with_oracle)


def test_sql_is_refused_where_no_spark_runs() -> None:
    pipeline = scores().where("score > 1").key_by("team").window(sl.tumbling("1m")).aggregate(n=sl.count())
    outcome = play({"story": "mine", "pipeline": pipeline, "steps": STEPS[:1]})
    assert "«where score > 1» is Spark SQL, which only Spark runs" in str(outcome)
    assert "play the story on spark" in str(outcome)


@pytest.mark.spark
def test_sql_runs_on_spark(spark: Any) -> None:
    pipeline = scores().where("score > 3").key_by("team").window(sl.tumbling("1m")).aggregate(n=sl.count())
    steps: list[dict[str, Any]] = [STEPS[0], {"drain": None}, {"expect": [{"team": "red", "n": 1}]}]
    outcome = play({"story": "mine", "pipeline": pipeline, "steps": steps}, on="spark")
    assert outcome.ok, outcome


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"tam": "red"}, "has no 'tam', expected team, score"),
        ({"score": "three"}, "found 'three', expected a whole number"),
        ({"at": "yesterday"}, "'yesterday' is not a time"),
        ({"day": "soon"}, "expected a date"),
    ],
)
def test_elements_have_the_columns_and_types_of_their_source(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidStory, match=message):
        play({"story": "mine", "pipeline": totals(), "steps": [{"input": [given]}]})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pipeline: nowhere.py:pipeline", "there is no file nowhere.py"),
        ("pipeline: no_such_module_here", "there is no module no_such_module_here"),
        ("pipeline: json:dumps_none", "json:dumps_none is not a pipeline"),
        ("pipeline: 5", "found 5, expected a pipeline"),
    ],
)
def test_a_pipeline_that_is_none_is_refused_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.story.yaml"
    file.write_text(f"story: mine\n{text}\nsteps: []\n")
    with pytest.raises(InvalidStory, match=message) as error:
        read_stories(file)
    assert ".yaml:2" in str(error.value)


def test_a_rule_that_refuses_the_pipeline_fails_the_story() -> None:
    pipeline = scores().key_by("team").aggregate(n=sl.count())
    outcome = play({"story": "mine", "pipeline": pipeline, "steps": []})
    assert "keeps a row for every key forever" in str(outcome)
