"""Joins of tables on Spark: over a restart, through a savepoint, into an upserted table, before a global aggregate."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.plan.pipeline import Elements
from strandline.savepoints.restore import restore
from strandline.savepoints.take import create
from tests.spark.test_graphs import read, write
from tests.spark.test_interval_join import run, side

pytestmark = pytest.mark.spark


def current(folder: Path) -> Elements:
    return side(folder).deduplicate(by="team", keep="last", forever=True)


def result(database: Path, table: str = "joined") -> Counter[tuple[Any, ...]]:
    """The rows of the result, as its changes make it."""
    found: Counter[tuple[Any, ...]] = Counter()
    for is_retraction, *row in read(database, f"SELECT retraction, team, score, score_2, score_3 FROM {table}"):
        found[tuple(row)] += -1 if is_retraction else 1
    assert min(found.values()) >= 0
    return +found


def test_three_tables_are_joined_over_a_restart_and_a_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "joined.db"
    joined = sl.join_tables(
        side(tmp_path / "orders"), current(tmp_path / "payments"), current(tmp_path / "parcels"),
        how="left", forever=True,
    ).on("team")  # fmt: skip
    pipeline = joined.write(sl.sqlite(database, table="joined"))
    write(tmp_path / "orders", "1", ("red", 1, 20), ("blue", 2, 21))
    write(tmp_path / "payments", "1", ("red", 10, 25))
    write(tmp_path / "parcels", "1", ("blue", 20, 26))
    run(pipeline, spark, tmp_path / "job")
    assert result(database) == Counter([("red", 1, 10, None), ("blue", 2, None, 20)])
    write(tmp_path / "orders", "2", ("red", 3, 900), (None, 4, 901))
    write(tmp_path / "payments", "2", ("red", 11, 50), ("green", 12, 51))
    run(pipeline, spark, tmp_path / "job")
    rows = [("red", 1, 11, None), ("red", 3, 11, None), ("blue", 2, None, 20), (None, 4, None, None)]
    assert result(database) == Counter(rows)
    create(spark, tmp_path / "job", tmp_path / "saved")
    restore(pipeline.root, spark, tmp_path / "saved", tmp_path / "again", key_groups=3)
    write(tmp_path / "orders", "3", ("green", 5, 30))
    write(tmp_path / "payments", "3", ("red", 13, 1_000))
    write(tmp_path / "parcels", "3", ("red", 21, 1_001))
    job = run(pipeline, spark, tmp_path / "again")
    rows = [
        ("red", 1, 13, 21),
        ("red", 3, 13, 21),
        ("blue", 2, None, 20),
        (None, 4, None, None),
        ("green", 5, 12, None),
    ]
    assert result(database) == Counter(rows)
    assert job.counts.late == 0


def test_tables_of_last_rows_are_upserted_and_totals_over_them_follow(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "upserted.db"
    joined = (
        current(tmp_path / "orders").join(current(tmp_path / "payments")).on("team").as_tables(how="full", forever=True)
    )
    totals = joined.key_by("score").keep_for_ever().aggregate(n=sl.count(), paid=sl.sum("score_right"))
    pipeline = sl.together(
        joined.write(sl.sqlite(database, table="joined", mode="upsert")),
        totals.write(sl.sqlite(database, table="totals")),
    )
    write(tmp_path / "orders", "1", ("red", 1, 20), ("blue", 1, 21))
    write(tmp_path / "payments", "1", ("red", 10, 25), ("green", 12, 26))
    write(tmp_path / "orders", "2", ("blue", 2, 30))
    write(tmp_path / "payments", "2", ("blue", 5, 31), ("red", 11, 32))
    run(pipeline, spark, tmp_path / "job")
    job = pipeline.run(spark, checkpoint=tmp_path / "job")
    job.drain()
    assert job.await_end(120)
    rows = read(database, "SELECT team, score, score_right FROM joined")
    assert sorted(rows) == [("blue", 2, 5), ("green", None, 12), ("red", 1, 11)]
    now = read(database, "SELECT score, n, paid FROM totals_now WHERE n > 0 ORDER BY score")
    assert now == [(None, 1, 12), (1, 1, 11), (2, 1, 5)]
