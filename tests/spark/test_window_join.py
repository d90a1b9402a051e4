"""Window joins on Spark: into tables, over a restart, through a savepoint, with rows that are withdrawn."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.plan.pipeline import Panes
from strandline.savepoints.restore import restore
from strandline.savepoints.take import create
from tests.spark.test_graphs import read, write
from tests.spark.test_interval_join import run, side

pytestmark = pytest.mark.spark


def joined(folder: Path, window: Any, **options: Any) -> Panes:
    return side(folder / "orders").join(side(folder / "payments")).on("team").window(window, **options)


def test_a_row_without_a_partner_is_withdrawn_after_a_restart_when_its_partner_comes_late(
    spark: SparkSession, tmp_path: Path
) -> None:
    database = tmp_path / "joined.db"
    write(tmp_path / "orders", "1", ("red", 1, 20), ("blue", 2, 21))
    write(tmp_path / "payments", "1", ("red", 10, 25), ("red", 11, 95))
    write(tmp_path / "orders", "2", ("red", 3, 96))
    pipeline = joined(tmp_path, sl.tumbling("60s"), how="left", accumulate="retracting", allowed_lateness="200s").write(
        sl.sqlite(database, table="joined", key=["team", "score", "window_start"])
    )
    run(pipeline, spark, tmp_path / "job")
    query = "SELECT team, score, score_right FROM joined"
    assert sorted(read(database, query), key=str) == [("blue", 2, None), ("red", 1, 10)]
    write(tmp_path / "payments", "2", ("blue", 12, 50))
    run(pipeline, spark, tmp_path / "job")
    assert sorted(read(database, query)) == [("blue", 2, 12), ("red", 1, 10)]
    write(tmp_path / "payments", "3", ("red", 13, 1_000))
    write(tmp_path / "orders", "3", ("red", 4, 1_000), ("blue", 5, 22))
    job = run(pipeline, spark, tmp_path / "job")
    assert sorted(read(database, query)) == [("blue", 2, 12), ("blue", 5, 12), ("red", 1, 10), ("red", 3, 11)]
    write(tmp_path / "orders", "4", ("green", 6, 40))
    job = run(pipeline, spark, tmp_path / "job")
    assert job.counts.late == 1
    late = read(database, "SELECT team, score, source, reason, window_start FROM joined_late")
    assert [(each[0], each[1], each[3]) for each in late] == [("green", 6, "expired")]
    assert "orders" in late[0][2]


def test_a_savepoint_keeps_open_sessions_and_what_they_have_emitted(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "kept.db"
    write(tmp_path / "orders", "1", ("red", 1, 20), ("blue", 2, 100))
    write(tmp_path / "payments", "1", ("green", 10, 22), ("blue", 11, 101))
    pipeline = joined(tmp_path, sl.session("10s"), how="full", allowed_lateness="200s").write(
        sl.sqlite(database, table="joined")
    )
    run(pipeline, spark, tmp_path / "job")
    query = "SELECT team, score, score_right, timing FROM joined"
    known = [("green", None, 10, "on_time"), ("red", 1, None, "on_time")]
    assert sorted(read(database, query)) == known
    create(spark, tmp_path / "job", tmp_path / "saved")
    restore(pipeline.root, spark, tmp_path / "saved", tmp_path / "again", key_groups=3)
    write(tmp_path / "orders", "2", ("green", 3, 23), ("green", 4, 300))
    write(tmp_path / "payments", "2", ("green", 12, 300))
    run(pipeline, spark, tmp_path / "again")
    assert sorted(read(database, query), key=str) == [
        ("blue", 2, 11, "on_time"), ("green", 3, 10, "late"), *known,
    ]  # fmt: skip
