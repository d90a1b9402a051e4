"""Deduplication on Spark: into tables, over a restart, through a savepoint, and before a windowed step."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.checkpoint.job_folder import Checkpoint
from strandline.plan.pipeline import Elements, Pipeline
from strandline.plan.upgrade.definitions import read_definition
from strandline.savepoints.restore import restore
from strandline.savepoints.state_reader import read_state
from strandline.savepoints.state_tables import chosen, tables_of
from strandline.savepoints.take import create
from strandline.spark.job import Job
from tests.spark.test_graphs import COLUMNS, read, write

pytestmark = pytest.mark.spark


def elements(folder: Path, **options: Any) -> Elements:
    source = sl.read(sl.files(folder, COLUMNS, files_per_batch=1)).event_time("at", sl.bounded(seconds=10))
    return source.deduplicate(by="team", **options)


def run(pipeline: Pipeline, spark: SparkSession, checkpoint: Path) -> Job:
    job: Job = pipeline.run(spark, checkpoint=checkpoint, available_now=True)
    assert job.await_end(120)
    assert job.counts.missing == 0
    return job


def test_the_first_of_each_key_is_appended_and_late_elements_have_a_table(spark: SparkSession, tmp_path: Path) -> None:
    folder, database = tmp_path / "in", tmp_path / "first.db"
    write(folder, "1", ("red", 1, 20), ("blue", 2, 21), ("red", 3, 25))
    write(folder, "2", ("red", 4, 90), ("blue", 5, 26))
    write(folder, "3", ("red", 6, 30), (None, 7, 91), ("red", 8, 92))
    pipeline = elements(folder, within="30s").write(sl.sqlite(database, table="events"))
    job = run(pipeline, spark, tmp_path / "job")
    assert read(database, "SELECT team, score FROM events ORDER BY score") == [
        ("red", 1), ("blue", 2), ("red", 4), (None, 7),
    ]  # fmt: skip
    assert read(database, "SELECT team, score, reason FROM events_late") == [("red", 6, "expired")]
    assert (job.counts.contributed, job.counts.filtered, job.counts.late) == (4, 3, 1)
    write(folder, "4", ("red", 9, 93), ("green", 10, 94))
    run(pipeline, spark, tmp_path / "job")
    assert read(database, "SELECT team, score FROM events WHERE score > 8") == [("green", 10)]
    state = read_state(spark, Checkpoint(tmp_path / "job"))
    table = tables_of(state)["step_0"]
    assert {"team", "event_time"} <= set(table.columns)
    keys = read_definition(Checkpoint(tmp_path / "job").identity.definition).steps[0]["keys"]
    assert chosen(table, "green", None, keys).height == 1


def test_the_last_of_each_key_keeps_a_table_up_to_date(spark: SparkSession, tmp_path: Path) -> None:
    folder, database = tmp_path / "in", tmp_path / "last.db"
    write(folder, "1", ("red", 1, 20), ("blue", 2, 21), ("red", 3, 25))
    write(folder, "2", ("red", 4, 30), ("blue", 5, 20))
    pipeline = sl.together(
        elements(folder, keep="last", within="30s").write(sl.sqlite(database, table="now", mode="upsert")),
        elements(folder, keep="last", within="30s").write(sl.sqlite(database, table="changes")),
    )
    run(pipeline, spark, tmp_path / "job")
    assert sorted(read(database, "SELECT team, score FROM now")) == [("blue", 2), ("red", 4)]
    assert read(database, "SELECT team, score, retraction FROM changes ORDER BY batch, retraction DESC, score") == [
        ("blue", 2, 0), ("red", 3, 0), ("red", 3, 1), ("red", 4, 0),
    ]  # fmt: skip
    write(folder, "3", ("blue", 6, 40))
    run(pipeline, spark, tmp_path / "job")
    assert sorted(read(database, "SELECT team, score FROM now")) == [("blue", 6), ("red", 4)]


def test_windows_count_each_key_once(spark: SparkSession, tmp_path: Path) -> None:
    folder, database = tmp_path / "in", tmp_path / "windows.db"
    write(folder, "1", ("red", 1, 20), ("blue", 2, 21), ("red", 1, 20))
    write(folder, "2", ("red", 1, 20), ("blue", 7, 130), ("green", 1, 300))
    totals = (
        elements(folder, within="60s")
        .key_by("team")
        .window(sl.tumbling(minutes=1))
        .aggregate(n=sl.count(), total=sl.sum("score"))
    )
    run(totals.write(sl.sqlite(database, table="totals")), spark, tmp_path / "job")
    assert sorted(read(database, "SELECT team, n, total FROM totals")) == [
        ("blue", 1, 2),
        ("blue", 1, 7),
        ("red", 1, 1),
    ]


@pytest.mark.parametrize("keep", ["first", "last"])
def test_a_savepoint_goes_on_with_other_key_groups(spark: SparkSession, tmp_path: Path, keep: str) -> None:
    folder, database = tmp_path / "in", tmp_path / "saved.db"
    write(folder, "1", *((f"team {number}", number, 20) for number in range(50)))
    pipeline = elements(folder, keep=keep, within="10m").write(sl.sqlite(database, table="events"))
    run(pipeline, spark, tmp_path / "job")
    create(spark, tmp_path / "job", tmp_path / "savepoint")
    restore(pipeline.root, spark, tmp_path / "savepoint", tmp_path / "again", key_groups=7)
    write(folder, "2", *((f"team {number}", 100 + number, 25) for number in range(55)))
    job = run(pipeline, spark, tmp_path / "again")
    assert job.counts.missing == 0
    rows = read(database, "SELECT count(*), count(DISTINCT team) FROM events")
    assert rows == [(55, 55)] if keep == "first" else [(50 + 50 + 55, 55)]
