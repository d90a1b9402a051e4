"""The Python workers of a job: one that prepared a batch may step through it, too."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

import polars as pl
import pytest
from pyspark.sql import SparkSession

import strandline as sl

pytestmark = pytest.mark.spark


def test_workers_that_prepare_and_that_step_are_children_of_one_daemon(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.json").write_text('{"team": "red", "score": 1, "at": "2026-01-01T00:00:00Z"}\n')
    here = sl.UserAggregate("score", int, lambda kept, _: kept, lambda _: os.getppid(), name="here")
    (
        sl.read(sl.files(tmp_path / "in", sl.json("team string, score long, at timestamp")))
        .event_time("at", sl.bounded(seconds=1))
        .map(
            lambda rows: rows.with_columns(by=pl.lit(os.getppid(), pl.Int64)),
            "team string, score long, at timestamp, by long",
        )
        .key_by("team")
        .window(sl.tumbling(seconds=10))
        .trigger(sl.repeatedly(sl.after_count(1)))
        .aggregate(prepared=sl.max("by"), stepped=here)
        .write(sl.sqlite(tmp_path / "out.db", table="pids"))
        .run(spark, checkpoint=tmp_path / "checkpoint", available_now=True)
        .await_end()
    )
    with closing(sqlite3.connect(tmp_path / "out.db")) as found:
        ((prepared, stepped),) = found.execute("SELECT prepared, stepped FROM pids")
    assert prepared == stepped
    assert prepared not in (os.getpid(), os.getppid())
