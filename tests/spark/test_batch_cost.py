"""What Spark is spared in a batch that moves a few rows, and that a job with many is not held to it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.spark.delivery.deliver import Delivered
from strandline.spark.launch.session import JAVA, WITHOUT_ROWS, settings


def test_a_job_with_rows_has_its_code_generated_though_the_last_one_of_its_session_had_none() -> None:
    told = settings(2)
    generated = {"spark.sql.codegen.wholeStage": "true", "spark.sql.codegen.factoryMode": "FALLBACK"}
    assert set(WITHOUT_ROWS) - {JAVA} == set(generated)
    assert {name: told[name] for name in generated} == generated


@pytest.mark.spark
def test_spark_is_told_whose_the_jobs_of_a_batch_are_and_need_not_look_for_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"n": 1}\n')
    heard: list[str | None] = []
    hear: Callable[[Delivered], None] = lambda _: heard.append(spark.sparkContext.getLocalProperty("callSite.short"))  # noqa: E731
    copied = sl.read(sl.files(tmp_path / "in", sl.json("n long"))).write(sl.discard())
    job = copied.run(spark, checkpoint=tmp_path / "job", available_now=True, listener=hear)
    assert job.await_end(120)
    assert heard
    assert set(heard) == {"a batch of Strandline"}
