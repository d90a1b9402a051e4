"""Whole jobs into real databases: the three deliveries side by side, and a server that is killed in the middle."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.checkpoint.job_folder import Checkpoint
from strandline.cli.demo.recount import recount
from strandline.connectors.scores import Scores
from strandline.services.service import Service
from strandline.spark.job import Job
from strandline.spark.progress import State

pytestmark = [pytest.mark.spark, pytest.mark.services]
pytest_plugins = ["strandline.testing.services"]

SOURCE = Scores(9, 400, 250)
PATIENCE = 200
"""Seconds a job may take on a machine that is busy with something else."""


def pipeline(folder: Path, server: str, name: str = "") -> sl.Pipeline:
    """The same panes three times: the first sink also has the late elements and the dead letters."""
    panes = (
        sl.read(SOURCE)
        .event_time("at", sl.bounded(seconds=3).idle_after(seconds=4))
        .key_by("team")
        .window(sl.tumbling(seconds=5))
        .trigger(sl.after_watermark(early=sl.every(seconds=1), late=sl.after_count(1)))
        .accumulate(sl.retracting)
        .allow_lateness(seconds=10)
        .aggregate(total=sl.sum("score"))
    )
    return sl.together(
        panes.write(sl.sqlite(folder / "scores.db", table="totals"), delivery="at_most_once"),
        panes.write(sl.postgres(f"{name}answers", dsn=server, mode="upsert")),
        panes.write(sl.postgres(f"{name}history", dsn=server), delivery="at_least_once"),
    )


def until(fact: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not fact():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)


def test_a_database_that_is_killed_is_waited_for_and_every_table_is_right(
    spark: SparkSession, postgres: Service, tmp_path: Path
) -> None:
    job: Job = pipeline(tmp_path, postgres.address).run(spark, checkpoint=tmp_path / "checkpoint")
    with job:
        until(lambda: job.last is not None and job.counts.read > 0)
        postgres.kill()
        until(lambda: job.status.state is State.WAITING)
        waiting = job.status
        assert "PostgreSQL at 127.0.0.1" in waiting.problem
        postgres.start()
        assert job.await_end(PATIENCE)
    origin = int(Checkpoint(tmp_path / "checkpoint").latest_offsets()["origin"])
    assert recount(SOURCE, origin, tmp_path / "scores.db", 5).agrees
    ask = "SELECT team, {}, total FROM {} ORDER BY 1, 2"
    with closing(sqlite3.connect(tmp_path / "scores.db")) as connection:
        expected = connection.execute(ask.format("window_start", "totals_now")).fetchall()
    shown = "to_char(window_start, 'YYYY-MM-DD HH24:MI:SS.MS')"
    with psycopg.connect(postgres.address) as reader:
        assert reader.execute(ask.format(shown, "answers")).fetchall() == expected
        assert reader.execute(ask.format(shown, "history_now")).fetchall() == expected
        batches = reader.execute("SELECT batch FROM strandline_ledger WHERE sink = 'answers'").fetchall()
        assert len(batches) == len({*batches}) > 1


def test_a_job_that_waits_for_its_sink_can_be_stopped(spark: SparkSession, postgres: Service, tmp_path: Path) -> None:
    job: Job = pipeline(tmp_path, postgres.address, "other_").run(spark, checkpoint=tmp_path / "checkpoint")
    until(lambda: job.last is not None)
    postgres.kill()
    try:
        until(lambda: job.status.state is State.WAITING)
        job.stop()
        assert job.status.state is State.STOPPED
    finally:
        postgres.start()
