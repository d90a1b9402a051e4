"""A batch that a stop interrupts ends without noise: Spark knows that it was the stop."""

import time
import traceback
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from strandline.cli.demo.demo import pipeline
from strandline.connectors.scores import Scores
from strandline.spark.patches.interrupted_batch import Interrupted

pytestmark = pytest.mark.spark

PATIENCE = 120


def said(problem: Exception) -> str:
    """What Python sends to the JVM of an error."""
    try:
        raise problem from None
    except Exception:  # noqa: BLE001 - whatever it is
        return traceback.format_exc()


@pytest.mark.parametrize(("problem", "stopped"), [(Interrupted(), True), (RuntimeError("broken"), False)])
def test_spark_tells_a_stop_from_a_failure(spark: SparkSession, problem: Exception, stopped: bool) -> None:
    jvm: Any = spark.sparkContext._jvm
    streams = getattr(getattr(jvm.org.apache.spark.sql.execution.streaming.runtime, "StreamExecution$"), "MODULE$")
    told = jvm.py4j.Py4JException(f"An exception was raised by the Python Proxy. Return Message: {said(problem)}")
    assert streams.isInterruptionException(told, spark.sparkContext._jsc.sc()) is stopped


def test_a_job_that_is_stopped_in_a_batch_leaves_no_error_behind(
    spark: SparkSession, spark_log: Path, tmp_path: Path
) -> None:
    before = len(spark_log.read_text())
    source = Scores(events=200_000, rate=20_000)
    job = pipeline(source, tmp_path / "scores.db").run(spark, checkpoint=tmp_path / "checkpoint")
    until = time.monotonic() + PATIENCE
    while not spark.sparkContext.statusTracker().getActiveStageIds():
        assert time.monotonic() < until, "no batch began"
        time.sleep(0.01)
    job.stop()
    assert "StackOverflowError" not in spark_log.read_text()[before:]
