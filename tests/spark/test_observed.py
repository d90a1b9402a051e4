"""Numbers of real jobs: everyone is counted, what Spark says is there too, and a job is reached through its folder."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.cli.demo.demo import pipeline
from strandline.connectors.scores import Scores
from strandline.kernel.output import COUNTED
from strandline.model.counts import Counts
from strandline.observe.job_requests import STOP, ask, is_asked
from strandline.observe.metrics.history import History, JobState
from strandline.observe.metrics.metrics import fold
from strandline.spark.job import Job

pytestmark = pytest.mark.spark

PATIENCE = 240


def test_a_job_keeps_the_numbers_of_every_batch(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint, lines = tmp_path / "job", tmp_path / "lines.jsonl"
    asked = pipeline(Scores(events=400, rate=400), tmp_path / "scores.db")
    job: Job = asked.run(spark, checkpoint=checkpoint, name="scores", metrics_log=lines)
    assert job.await_end(PATIENCE)
    with History(checkpoint) as history:
        told, points = history.batches(), history.points()
        assert history.job().state is JobState.COMPLETE
        assert [event.kind for event in history.events()][-1] == "complete"
        panes = history.panes()
    whole = told[0]
    for each in told[1:]:
        whole = fold(whole, each)
    assert job.last is not None
    assert (whole.batch, whole.batches) == (job.last.batch, job.last.batch + 1)
    assert whole.counts == job.counts
    outcomes = [name for name in COUNTED if name not in ("overflow", "unmatched")]  # which points do not have
    assert [sum(getattr(point, name) for point in points) for name in outcomes] == [
        getattr(job.counts, name) for name in outcomes
    ]
    assert sum(line["counts"]["read"] for line in map(json.loads, lines.read_text().splitlines())) == job.counts.read
    # What went out, and how old it was then.
    assert whole.out["on_time"] > 0
    assert {timing: each.total for timing, each in whole.latency.items()} == whole.out
    assert len(panes) == whole.emitted
    assert {json.loads(pane.key)["team"] for pane in panes} == {"amber", "blue", "coral", "jade", "red"}
    # What tasks saw.
    assert sum(whole.steps[0].groups) == job.counts.contributed
    assert whole.lateness.total > 0
    assert {json.loads(key.key)["team"] for key in whole.hot} <= {"amber", "blue", "coral", "jade", "red"}
    assert whole.hot
    assert {"source", "plan", "prepare", "step", "state", "shuffle", "deliver", "commit"} <= whole.stages.keys()
    assert {each.name for each in whole.partitions} == {"0", "1", "2", "3"}
    assert whole.ended


def test_a_job_is_stopped_through_its_folder_and_goes_on_as_another_run(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = tmp_path / "job"
    asked = pipeline(Scores(events=100_000, rate=200), tmp_path / "scores.db")
    for run in (1, 2):
        job: Job = asked.run(spark, checkpoint=checkpoint, pane_log=0)
        with History(checkpoint) as history:
            assert history.job().state.is_alive
            ask(checkpoint, STOP)
            assert not job.await_end(PATIENCE)
            job.stop()
            told = history.job()
            assert (told.state, told.run, told.restarts) == (JobState.STOPPED, run, run - 1)
            assert history.panes() == []
        assert not is_asked(checkpoint, STOP)


def test_a_job_can_do_without(spark: SparkSession, tmp_path: Path) -> None:
    asked = pipeline(Scores(events=40, rate=4_000), tmp_path / "scores.db")
    with asked.run(spark, checkpoint=tmp_path / "job", metrics=False) as job:
        assert job.await_end(PATIENCE)
        assert job.counts != Counts()
        assert job.last is not None
        assert job.last.measured.seconds == {}
    assert not [*(tmp_path / "job").glob("metrics.db*")]
