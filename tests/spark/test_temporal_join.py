"""Temporal joins on Spark: into tables, over a restart, through a savepoint, with corrections, over a changelog."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.plan.pipeline import Elements, Pipeline
from strandline.savepoints.restore import restore
from strandline.savepoints.take import create
from strandline.spark.job import Job
from tests.spark.test_graphs import COLUMNS, read, write

pytestmark = pytest.mark.spark


def side(folder: Path) -> Elements:
    return sl.read(sl.files(folder, COLUMNS, files_per_batch=1)).event_time("at", sl.bounded(seconds=10))


def joined(folder: Path, **options: Any) -> Elements:
    return side(folder / "orders").as_of(side(folder / "rates"), how="left", **options).on("team")


def run(pipeline: Pipeline, spark: SparkSession, checkpoint: Path, *, drain: bool = False) -> Job:
    if drain:
        job: Job = pipeline.run(spark, checkpoint=checkpoint)
        job.drain()
    else:
        job = pipeline.run(spark, checkpoint=checkpoint, available_now=True)
    assert job.await_end(120)
    assert job.counts.missing == 0
    return job


def test_versions_answer_over_restarts_and_a_savepoint_and_late_rows_name_their_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    database = tmp_path / "joined.db"
    write(tmp_path / "rates", "1", ("red", 110, 10), ("red", 112, 40))
    write(tmp_path / "orders", "1", ("red", 1, 20), ("blue", 2, 21), ("red", 3, 45))
    pipeline = joined(tmp_path).write(sl.sqlite(database, table="joined"))
    run(pipeline, spark, tmp_path / "job")
    assert read(database, "SELECT team, score, score_right FROM joined ORDER BY score") == [
        ("red", 1, 110), ("blue", 2, None),
    ]  # fmt: skip
    write(tmp_path / "orders", "2", ("red", 4, 20), ("blue", 5, 60), ("red", 6, 90))
    write(tmp_path / "rates", "2", ("blue", 90, 22), ("red", 113, 90))
    job = run(pipeline, spark, tmp_path / "job")
    assert read(database, "SELECT team, score, score_right FROM joined WHERE score > 2 ORDER BY score") == [
        ("red", 3, 112), ("blue", 5, 90),
    ]  # fmt: skip
    ((team, score, source, reason),) = read(database, "SELECT team, score, source, reason FROM joined_late")
    assert (team, score, reason) == ("red", 4, "behind")
    assert "orders" in source
    assert job.counts.late == 1
    create(spark, tmp_path / "job", tmp_path / "saved")
    restore(pipeline.root, spark, tmp_path / "saved", tmp_path / "again", key_groups=3)
    write(tmp_path / "orders", "3", ("blue", 7, 100))
    write(tmp_path / "rates", "3", ("red", 111, 85))
    run(pipeline, spark, tmp_path / "again", drain=True)
    assert read(database, "SELECT team, score, score_right FROM joined WHERE score > 5 ORDER BY score") == [
        ("red", 6, 113), ("blue", 7, 90),
    ]  # fmt: skip


def test_a_late_version_corrects_rows_and_windows_over_them(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "corrected.db"
    write(tmp_path / "rates", "1", ("red", 110, 10), ("red", 120, 100))
    write(tmp_path / "orders", "1", ("red", 1, 20), ("red", 2, 30), ("red", 3, 100))
    priced = joined(tmp_path, corrections="5m")
    totals = (
        priced.key_by("team")
        .window(sl.tumbling(seconds=60))
        .trigger(sl.after_watermark(late=sl.after_count(1)))
        .accumulate(sl.retracting)
        .allow_lateness(minutes=5)
        .aggregate(total=sl.sum("score_right"))
    )
    pipeline = sl.together(
        priced.write(sl.sqlite(database, table="priced")), totals.write(sl.sqlite(database, table="totals"))
    )
    run(pipeline, spark, tmp_path / "job")
    write(tmp_path / "rates", "2", ("red", 115, 25))
    write(tmp_path / "orders", "2", ("red", 4, 101))
    run(pipeline, spark, tmp_path / "job")
    rows = read(database, "SELECT score, score_right, retraction FROM priced ORDER BY score, retraction, score_right")
    assert rows == [(1, 110, 0), (2, 110, 0), (2, 115, 0), (2, 110, 1)]
    assert read(database, "SELECT total FROM totals_now ORDER BY window_start LIMIT 1") == [(225,)]


def test_deletions_and_the_last_element_of_each_key_are_versions(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "changelog.db"
    write(tmp_path / "rates", "1", ("red", 110, 10), ("red", -1, 20), ("blue", 90, 11), ("red", 112, 40))
    write(tmp_path / "orders", "1", ("red", 1, 15), ("red", 2, 25), ("red", 3, 45), ("blue", 4, 45))
    current = side(tmp_path / "rates").deduplicate(by="team", keep="last", forever=True)
    pipeline = sl.together(
        joined(tmp_path, deleted="score < 0").write(sl.sqlite(database, table="deleting")),
        side(tmp_path / "orders").as_of(current).on("team").write(sl.sqlite(database, table="last")),
    )
    run(pipeline, spark, tmp_path / "job", drain=True)
    assert read(database, "SELECT score, score_right FROM deleting ORDER BY score") == [
        (1, 110), (2, None), (3, 112), (4, 90),
    ]  # fmt: skip
    # Of the elements of one batch only the last of each key is a version.
    assert read(database, "SELECT score, score_right FROM last ORDER BY score") == [(3, 112), (4, 90)]
