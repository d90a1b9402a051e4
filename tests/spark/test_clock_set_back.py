"""A machine's clock that is set back while a job runs, and between its runs."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.checkpoint.job_folder import Checkpoint

pytestmark = pytest.mark.spark

HOUR = 3_600_000


def pipeline(folder: Path) -> Any:
    """Elements in processing time: one whose time is behind the watermark is late."""
    return (
        sl.read(sl.files(folder / "in", sl.json("team string, score long"), files_per_batch=1))
        .processing_time()
        .key_by("team")
        .window(sl.tumbling(seconds=1))
        .aggregate(n=sl.count())
        .write(sl.sqlite(folder / "totals.db", table="totals"))
    )


def arrive(folder: Path, number: int) -> None:
    (folder / "in").mkdir(exist_ok=True)
    draft = folder / f"{number}.draft"
    draft.write_text('{"team": "red", "score": 1}\n' * 10)
    draft.rename(folder / "in" / f"{number}.json")


def rows(database: Path, table: str) -> int:
    with closing(sqlite3.connect(database)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [table]).fetchone():
            return 0
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_elements_after_a_clock_was_set_back_are_not_late(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two batches run with a clock that is an hour ahead, which is then corrected."""
    stamp = Checkpoint._stamp
    ahead = 2
    monkeypatch.setattr(Checkpoint, "_stamp", lambda home, batch: stamp(home, batch) + (HOUR if batch < ahead else 0))
    home, clocks = Checkpoint(tmp_path / "job"), list[int]()
    for number in range(4):
        arrive(tmp_path, number)
        with pipeline(tmp_path).run(spark, checkpoint=home.folder, available_now=True) as job:
            assert job.await_end(120)
            assert job.counts.read == 10
            assert (job.counts.late, job.counts.dead) == (0, 0)
            assert job.last is not None
            clocks.append(home.clock(job.last.batch))
    assert clocks == sorted(clocks)
    assert rows(tmp_path / "totals.db", "totals_late") == 0
    assert rows(tmp_path / "totals.db", "totals_dead") == 0
