"""Errors that only Spark can find: the job says them in the user's words, and keeps the original."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import strandline as sl
from strandline.errors import InvalidStep, SetupError, StrandlineError
from strandline.plan.pipeline import Elements
from strandline.spark.job import Job
from strandline.spark.progress import State

pytestmark = pytest.mark.spark

COLUMNS: Final = "team string, score string, tags array<string>, at timestamp"


def lines(folder: Path, *scores: str) -> Elements:
    """Return a stream of scores from a folder with one file."""
    folder.mkdir()
    at = datetime(2024, 5, 1, 12, tzinfo=UTC).isoformat()
    rows = [json.dumps({"team": "red", "score": each, "tags": ["a"], "at": at}) for each in scores]
    (folder / "a.jsonl").write_text("".join(f"{row}\n" for row in rows))
    return sl.read(sl.files(folder, sl.json(COLUMNS)))


def to_nowhere(stream: Elements) -> sl.Pipeline:
    timed = stream.event_time("at", sl.bounded(seconds=1)).key_by("team")
    return timed.window(sl.tumbling(minutes=1)).aggregate(plays=sl.count()).write(sl.discard())


def shown(error: StrandlineError) -> str:
    text = str(error)
    assert "@" not in text, text
    return text


REFUSED: Final[dict[str, tuple[Callable[[Elements], Any], tuple[str, ...]]]] = {
    "syntax": (lambda s: s.where("score >> > 1"), ("SQL cannot be read", "score >> > 1")),
    "a function that Spark does not have": (lambda s: s.where("fou(score) > 1"), ("has no function 'fou'", "map")),
    "types that do not fit": (lambda s: s.where("score + tags > 1"), ("types in an SQL expression do not fit", "cast")),
    "a condition that is a number": (lambda s: s.where("length(score)"), ("is a int", "true or false")),
    "too many arguments": (lambda s: s.where("length(score, 1) > 2"), ("'length' takes 1 arguments, not 2",)),
    "a type that is none": (lambda s: s.with_columns(n="cast(score as strin)"), ("there is no column type", "STRIN")),
    "a condition after the event time": (
        lambda s: s.event_time("at", sl.bounded(seconds=1)).where("length(score)"),
        ("is a int",),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_sql_that_spark_cannot_analyze_is_a_plan_error(name: str, spark: SparkSession, tmp_path: Path) -> None:
    change, parts = REFUSED[name]
    stream = change(lines(tmp_path / "in", "1"))
    if name == "a condition after the event time":
        keyed = stream.key_by("team").window(sl.tumbling(minutes=1)).aggregate(plays=sl.count())
        pipeline = keyed.write(sl.discard())
    else:
        pipeline = to_nowhere(stream)
    with pytest.raises(InvalidStep) as refused:
        pipeline.run(spark, checkpoint=tmp_path / "job")
    for part in parts:
        assert part.lower() in shown(refused.value).lower()
    assert refused.value.hint


def test_the_original_error_is_the_cause(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(InvalidStep) as refused:
        to_nowhere(lines(tmp_path / "in", "1").where("fou(score) > 1")).run(spark, checkpoint=tmp_path / "job")
    assert isinstance(refused.value.__cause__, PySparkException)


def ended(job: Job, within: float = 120) -> StrandlineError:
    """Wait until a job has failed and return its error."""
    with pytest.raises(StrandlineError) as failed:
        job.await_end(within)
    assert job.status.state is State.FAILED
    assert job.status.problem == str(failed.value)
    return failed.value


FAILED: Final[dict[str, tuple[Callable[[Elements], Elements], tuple[str, ...]]]] = {
    "a cast": (lambda s: s.where("cast(score as int) > 3"), ("cannot cast the value 'bad'", "to INT", "try_cast")),
    "a division": (lambda s: s.with_columns(n="1 / (length(score) - 3)"), ("divides by zero", "try_divide")),
    "an index": (lambda s: s.with_columns(n="tags[length(score)]"), ("element 3 of an array of 1", "get(array")),
    "a sum": (
        lambda s: s.with_columns(n="9223372036854775807 + length(score)"),
        ("number in SQL of the pipeline is out of range", "try_add"),
    ),
    "a narrow cast": (
        lambda s: s.with_columns(n="cast(99999999999 + length(score) as int)"),
        ("out of range", "try_cast"),
    ),
    "a time": (
        lambda s: s.with_columns(n="to_timestamp(score, 'yyyy')"),
        ("cannot read a time", "try_to_timestamp"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAILED)
def test_sql_that_fails_on_a_row_says_so(name: str, spark: SparkSession, tmp_path: Path) -> None:
    change, parts = FAILED[name]
    job = to_nowhere(change(lines(tmp_path / "in", "bad"))).run(spark, checkpoint=tmp_path / "job")
    try:
        error = ended(job)
    finally:
        job.stop()
    for part in parts:
        assert part in shown(error)


def test_a_task_that_is_tried_again_says_its_error_before_the_batch_fails(spark: SparkSession, tmp_path: Path) -> None:
    # Each attempt takes seconds before it reaches the bad row, as over a large batch.
    slow = "java_method('java.lang.Thread', 'sleep', 100L) is not null and cast(score as int) > 3"
    stream = lines(tmp_path / "in", *["1"] * 40, "bad").where(slow)
    job = to_nowhere(stream).run(spark, checkpoint=tmp_path / "job")
    seen, until = list[str](), time.monotonic() + 120
    while time.monotonic() < until and job.status.state is not State.FAILED:
        if job.status.state is State.WAITING:
            seen.append(job.status.problem)
        time.sleep(0.05)
    failed = job.status
    job.stop()
    assert failed.state is State.FAILED
    assert "cannot cast the value 'bad'" in failed.problem
    if attempts(spark) > 1:
        assert any("cannot cast the value 'bad'" in problem and "that Spark runs again" in problem for problem in seen)


def attempts(spark: SparkSession) -> int:
    """Return how often Spark runs a task before a batch fails."""
    return int(str(spark.sparkContext.master).partition(",")[2].rstrip("]") or 1)


def test_a_folder_that_is_not_there_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    source = sl.files(tmp_path / "none", sl.json(COLUMNS))
    with pytest.raises(SetupError, match="cannot read the folder"):
        to_nowhere(sl.read(source)).run(spark, checkpoint=tmp_path / "job")


def test_a_dataframe_of_connect_and_a_batch_frame_are_refused(spark: SparkSession) -> None:
    with pytest.raises(sl.PlanError, match="not a stream"):
        sl.frame(spark.range(3))
