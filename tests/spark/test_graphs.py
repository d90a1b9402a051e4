"""Graphs of steps carried by Spark: files in, native and Python steps, a chain, several sinks, a DataFrame out."""

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.errors import BudgetExceeded, InvalidStep
from strandline.spark.job import Job
from strandline.spark.progress import State

pytestmark = pytest.mark.spark
EPOCH = datetime(2024, 5, 1, 12, tzinfo=UTC)
COLUMNS = "team string, score long, at timestamp"


def write(folder: Path, name: str, *rows: tuple[str | None, int, int]) -> None:
    """A file of rows, each a team, a score and a time in seconds."""
    folder.mkdir(exist_ok=True, parents=True)
    told = [(team, score, EPOCH + timedelta(seconds=at)) for team, score, at in rows]
    kinds: dict[str, Any] = {"team": pl.String, "score": pl.Int64, "at": pl.Datetime("us", "UTC")}
    file, before = folder / f"{name}.parquet", len([*folder.iterdir()])
    pl.DataFrame(told, schema=kinds, orient="row").write_parquet(file)
    # Files are read in the order in which they were written, by the millisecond.
    os.utime(file, (EPOCH.timestamp() + before, EPOCH.timestamp() + before))


def read(database: Path, ask: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(database)) as connection:
        return connection.execute(ask).fetchall()


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    folder = tmp_path / "orders"
    write(folder, "1", ("red", 5, 1), ("blue", 3, 2), ("red", -1, 3), (None, 2, 4))
    write(folder, "2", ("red", 4, 12), ("blue", 100, 13), ("red", 1, 25))
    return folder


def test_files_go_through_native_and_python_steps_a_chain_and_two_sinks(
    spark: SparkSession, orders: Path, tmp_path: Path
) -> None:
    database = tmp_path / "out" / "totals.db"
    totals = (
        sl.read(sl.files(orders, COLUMNS, files_per_batch=1))
        .where("score >= 0")
        .with_columns(points="score * 2")
        .event_time("at", sl.monotone())
        .where(pl.col("points") < 100)
        .key_by("team")
        .window(sl.tumbling(seconds=10))
        .aggregate(total=sl.sum("points"))
    )
    overall = (
        totals.key_by("window_start").window(sl.tumbling(seconds=10)).aggregate(all=sl.sum("total"), teams=sl.count())
    )
    pipeline = sl.together(
        totals.write(sl.sqlite(database, table="totals")), overall.write(sl.sqlite(database, table="overall"))
    )
    job: Job = pipeline.run(spark, checkpoint=tmp_path / "job", available_now=True)
    assert job.await_end(120)
    assert job.status.state is State.STOPPED
    assert job.progress is not None
    assert job.progress.total.read == 6, "six rows came from the files"
    assert job.progress.total.again == 4, "four panes came to the second step"
    assert job.progress.windows == 1
    assert sorted(read(database, "SELECT team, total FROM totals"), key=str) == [
        ("blue", 6),
        ("red", 10),
        ("red", 8),
        (None, 4),
    ]
    assert read(database, 'SELECT "all", teams FROM overall ORDER BY window_start') == [(20, 3), (8, 1)]

    write(orders, "3", ("red", 1, 40))
    again: Job = pipeline.run(spark, checkpoint=tmp_path / "job")
    again.drain()
    assert again.await_end(120)
    assert again.status.state is State.COMPLETE
    assert read(database, "SELECT sum(total) FROM totals") == [(32,)]
    assert read(database, 'SELECT sum("all") FROM overall') == [(32,)]


def test_the_pipeline_as_a_dataframe_has_panes_late_elements_and_dead_letters(
    spark: SparkSession, orders: Path, tmp_path: Path
) -> None:
    write(orders, "3", ("green", 9, 1))
    stream = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1).parquet(str(orders))
    panes = (
        sl.read(sl.frame(stream.where("team is not null"), name="orders"))
        .event_time("at", sl.monotone())
        .key_by("team")
        .window(sl.tumbling(seconds=10))
        .aggregate(total=sl.sum("score"))
    )
    frame = panes.write(sl.discard()).to_dataframe(spark)
    assert frame.isStreaming
    query = (
        frame.writeStream.format("memory")
        .queryName("told")
        .option("checkpointLocation", str(tmp_path / "query"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    assert query.exception() is None
    told = {tuple(row) for row in spark.sql("SELECT kind, team, total, timing, reason FROM told").collect()}
    assert told == {
        ("pane", "red", 4, "on_time", None), ("pane", "blue", 3, "on_time", None), ("pane", "red", 4, "on_time", None),
        ("pane", "blue", 100, "on_time", None), ("late", "green", None, None, "expired"),
    }  # fmt: skip


def test_a_job_whose_input_is_mostly_broken_stops_by_its_budget_and_keeps_the_letters(
    spark: SparkSession, orders: Path, tmp_path: Path
) -> None:
    def fails(frame: pl.DataFrame) -> pl.DataFrame:
        if frame["score"].max() > 2:  # type: ignore[operator]
            raise ValueError("too much")
        return frame

    database = tmp_path / "out" / "some.db"
    pipeline = sl.read(sl.files(orders, COLUMNS)).map(fails, COLUMNS).write(sl.sqlite(database, table="some"))
    job: Job = pipeline.run(
        spark, checkpoint=tmp_path / "job", failure_budget=sl.failure_budget(0.5, over="1h", at_least=5)
    )
    with pytest.raises(BudgetExceeded, match="4 of the last 7 records are dead letters"):
        job.await_end(120)
    assert job.status.state is State.FAILED
    assert read(database, "SELECT count(*) FROM some_dead WHERE detail = 'ValueError: too much'") == [(4,)]
    assert read(database, "SELECT count(*) FROM some") == [(3,)]


def test_a_frame_tells_its_own_types_and_must_be_a_stream(spark: SparkSession, orders: Path) -> None:
    stream = spark.readStream.schema(COLUMNS).parquet(str(orders))
    assert dict(sl.frame(stream).types) == {"team": "string", "score": "bigint", "at": "timestamp"}
    with pytest.raises(InvalidStep, match="not a stream"):
        sl.frame(spark.range(1))
    with pytest.raises(InvalidStep, match="there is no column 'place'"):
        sl.frame(stream, partition="team", offset="place")
