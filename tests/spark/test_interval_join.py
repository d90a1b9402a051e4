"""Interval joins on Spark: into tables, over a restart, through a savepoint, before a windowed step."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.checkpoint.job_folder import Checkpoint
from strandline.plan.pipeline import Elements, Pipeline
from strandline.savepoints.restore import restore
from strandline.savepoints.state_reader import read_state
from strandline.savepoints.state_tables import tables_of
from strandline.savepoints.take import create
from strandline.spark.job import Job
from tests.spark.test_graphs import COLUMNS, read, write

pytestmark = pytest.mark.spark


def side(folder: Path) -> Elements:
    return sl.read(sl.files(folder, COLUMNS, files_per_batch=1)).event_time("at", sl.bounded(seconds=10))


def joined(folder: Path, **options: Any) -> Elements:
    return (
        side(folder / "orders").join(side(folder / "payments")).on("team").within(before="5s", after="30s", **options)
    )


def run(pipeline: Pipeline, spark: SparkSession, checkpoint: Path) -> Job:
    job: Job = pipeline.run(spark, checkpoint=checkpoint, available_now=True)
    assert job.await_end(120)
    assert job.counts.missing == 0
    return job


def test_pairs_and_unmatched_rows_arrive_over_restarts_and_late_rows_name_their_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    database = tmp_path / "joined.db"
    write(tmp_path / "orders", "1", ("red", 1, 20), ("blue", 2, 21))
    write(tmp_path / "payments", "1", ("red", 10, 25), ("red", 11, 60))
    write(tmp_path / "orders", "2", ("red", 3, 58), ("green", 4, 62))
    write(tmp_path / "payments", "2", ("blue", 12, 50))
    pipeline = joined(tmp_path, how="left").write(sl.sqlite(database, table="joined"))
    run(pipeline, spark, tmp_path / "job")
    assert sorted(read(database, "SELECT team, score, score_right FROM joined WHERE score_right IS NOT NULL")) == [
        ("blue", 2, 12), ("red", 1, 10), ("red", 3, 11),
    ]  # fmt: skip
    write(tmp_path / "orders", "3", ("red", 5, 200), ("red", 6, 30))
    write(tmp_path / "payments", "3", ("green", 13, 92), ("red", 14, 201))
    write(tmp_path / "orders", "4", ("red", 7, 300))
    write(tmp_path / "payments", "4", ("red", 15, 300))
    job = run(pipeline, spark, tmp_path / "job")
    assert sorted(read(database, "SELECT team, score, score_right FROM joined WHERE score > 3")) == [
        ("green", 4, 13), ("red", 5, 14), ("red", 7, 15),
    ]  # fmt: skip
    late = read(database, "SELECT team, score, source, reason FROM joined_late")
    assert [each[:2] for each in late] == [("red", 6)]
    assert late[0][3] == "behind"
    assert "orders" in late[0][2]
    assert job.counts.late == 1
    state = read_state(spark, Checkpoint(tmp_path / "job"))
    assert any("team" in table.columns for table in tables_of(state).values())


def test_a_savepoint_keeps_rows_that_wait_for_a_partner(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "kept.db"
    write(tmp_path / "orders", "1", ("red", 1, 20), ("blue", 2, 21))
    write(tmp_path / "payments", "1", ("green", 10, 22))
    pipeline = joined(tmp_path, how="full").write(sl.sqlite(database, table="joined"))
    run(pipeline, spark, tmp_path / "job")
    create(spark, tmp_path / "job", tmp_path / "saved")
    restore(pipeline.root, spark, tmp_path / "saved", tmp_path / "again", key_groups=3)
    write(tmp_path / "orders", "2", ("green", 3, 23))
    write(tmp_path / "payments", "2", ("red", 11, 40))
    run(pipeline, spark, tmp_path / "again")
    assert sorted(read(database, "SELECT team, score, score_right FROM joined")) == [("green", 3, 10), ("red", 1, 11)]


def test_windows_over_pairs_count_them(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "windows.db"
    write(tmp_path / "orders", "1", ("red", 1, 20), ("red", 2, 21), ("blue", 3, 90))
    write(tmp_path / "payments", "1", ("red", 10, 25), ("blue", 20, 95))
    pipeline = (
        joined(tmp_path)
        .key_by("team")
        .window(sl.tumbling(seconds=60))
        .aggregate(pairs=sl.count(), paid=sl.sum("score_right"))
        .write(sl.sqlite(database, table="paid"))
    )
    job: Job = pipeline.run(spark, checkpoint=tmp_path / "job", available_now=True)
    assert job.await_end(120)
    job = pipeline.run(spark, checkpoint=tmp_path / "job")
    job.drain()
    assert job.await_end(120)
    assert sorted(read(database, "SELECT team, pairs, paid FROM paid_now")) == [("blue", 1, 20), ("red", 2, 20)]
