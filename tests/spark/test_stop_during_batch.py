"""Test that a stop during a batch is not an error of the job."""

import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from strandline.cli.demo.demo import pipeline
from strandline.connectors.scores import Scores
from strandline.spark.progress import State

pytestmark = pytest.mark.spark

PATIENCE = 120


def test_a_stop_during_a_batch_is_not_an_error_and_spark_logs_no_stack_overflow(
    spark: SparkSession, spark_log: Path, tmp_path: Path
) -> None:
    before = len(spark_log.read_text())
    source = Scores(events=200_000, rate=20_000)
    job = pipeline(source, tmp_path / "scores.db").run(spark, checkpoint=tmp_path / "checkpoint")
    until = time.monotonic() + PATIENCE
    while not spark.sparkContext.statusTracker().getActiveStageIds():
        assert time.monotonic() < until, "no batch started"
        time.sleep(0.01)
    job.stop()
    assert job.status.state is State.STOPPED
    job.await_end(PATIENCE)
    # Spark searches the text of an error with a pattern that overflows the stack if the text is long.
    assert "StackOverflowError" not in spark_log.read_text()[before:]
