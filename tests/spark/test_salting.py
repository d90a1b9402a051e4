"""A hot key carried by Spark, with salt and without: one job, saved and restored midway, two tables, one answer."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.model.aggregates import Aggregate
from strandline.savepoints.restore import restore
from strandline.savepoints.take import create
from strandline.spark.job import Job
from tests.spark.test_graphs import COLUMNS, read, write

pytestmark = pytest.mark.spark


def feed(folder: Path, file: int) -> None:
    rows = [("hot" if each % 5 else f"t{each % 3}", each, 10 * file + each // 75 - each % 7) for each in range(1_500)]
    write(folder, str(file), *rows, ("hot", -file, -60))


def test_answers_of_hot_keys_are_the_same_with_salt_and_after_a_savepoint(spark: SparkSession, tmp_path: Path) -> None:
    feed(tmp_path / "in", 0)
    keyed = (
        sl.read(sl.files(tmp_path / "in", COLUMNS, files_per_batch=1))
        .event_time("at", sl.bounded(seconds=3))
        .key_by("team")
        .window(sl.tumbling(seconds=10))
        .accumulate(sl.retracting)
        .allow_lateness(seconds=30)
    )
    answers: dict[str, Aggregate] = {"all": sl.collect("score"), "text": sl.string_agg("team"), "n": sl.count()}
    database = tmp_path / "out.db"
    pipeline = sl.together(
        keyed.aggregate(**answers).write(sl.sqlite(database, table="plain")),
        keyed.hot_keys(salt=8).aggregate(**answers).write(sl.sqlite(database, table="salted")),
    )
    job: Job = pipeline.run(spark, checkpoint=tmp_path / "job", available_now=True)
    assert job.await_end(240)
    # Elements that wait in many key groups for the end of their window are saved with it, and wait in others then.
    saved = create(spark, tmp_path / "job", tmp_path / "saved")
    assert [step.rows > 0 for step in saved.manifest.steps] == [True, True, True]
    restore(pipeline.root, spark, saved.folder, tmp_path / "restored", key_groups=3)
    feed(tmp_path / "in", 1)
    job = pipeline.run(spark, checkpoint=tmp_path / "restored", available_now=True)
    assert job.await_end(240)
    assert job.counts.read == 1_501
    assert job.counts.missing == 0
    columns = 'team, window_start, timing, pane_index, is_last, retraction, "all", text, n'
    plain, salted = (sorted(read(database, f"SELECT {columns} FROM {table}"), key=str) for table in ("plain", "salted"))
    assert plain == salted
    assert {row[2] for row in plain} == {"on_time", "late"}
    late = [
        sorted(read(database, f"SELECT team, window_start, reason FROM {table}_late")) for table in ("plain", "salted")
    ]
    assert late[0] == late[1]
    assert late[0]
