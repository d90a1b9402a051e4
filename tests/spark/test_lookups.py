"""Lookups on Spark: counted rows, panes, a table that is down, dead letters, pinned answers of a repeated batch."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from pyspark.sql import SparkSession

import strandline as sl
from strandline.errors import SinkError, StrandlineError
from strandline.execution.lookups.pins import FOLDER
from strandline.plan.pipeline import Elements, Pipeline
from strandline.ports.lookups import CheckedLookup
from strandline.spark.job import Job
from strandline.spark.progress import State
from tests.contracts.lookup_tables import users_server
from tests.spark.test_graphs import COLUMNS, read, write

pytestmark = pytest.mark.spark

TOLD_WITHIN_SECONDS = 5.0
PATIENCE = 120


def set_cities(path: Path, *rows: tuple[str, str]) -> CheckedLookup:
    """Replace the rows of a table of teams, and return the lookup in it."""
    with closing(sqlite3.connect(path)) as made, made:
        made.execute("CREATE TABLE IF NOT EXISTS teams (team TEXT PRIMARY KEY, city TEXT)")
        made.execute("DELETE FROM teams")
        made.executemany("INSERT INTO teams VALUES (?, ?)", rows)
    return sl.lookup_sqlite(path, "team string, city string", table="teams")


def elements(folder: Path) -> Elements:
    return sl.read(sl.files(folder, COLUMNS, files_per_batch=1)).event_time("at", sl.bounded(seconds=10))


def run(pipeline: Pipeline, spark: SparkSession, checkpoint: Path) -> Job:
    job: Job = pipeline.run(spark, checkpoint=checkpoint, available_now=True)
    assert job.await_end(PATIENCE)
    assert job.counts.missing == 0
    return job


def until(fact: Callable[[], Any], seconds: float = PATIENCE) -> float:
    begun = time.monotonic()
    while not fact():
        assert time.monotonic() < begun + seconds, "it did not happen in time"
        time.sleep(0.05)
    return time.monotonic() - begun


def test_rows_are_enriched_on_the_way_to_an_output_and_to_a_window_and_unmatched_rows_are_counted(
    spark: SparkSession, tmp_path: Path
) -> None:
    database = tmp_path / "out.db"
    teams = set_cities(tmp_path / "teams.db", ("red", "Rome"), ("blue", "Oslo"))
    write(tmp_path / "in", "1", ("red", 1, 20), ("blue", 2, 21), ("green", 3, 22), (None, 4, 23))
    write(tmp_path / "in", "2", ("red", 5, 24))
    rows = elements(tmp_path / "in")
    totals = (
        rows.enrich(teams, missing="drop")
        .on("team")
        .key_by("city")
        .window(sl.tumbling(seconds=60))
        .aggregate(total=sl.sum("score"))
    )
    pipeline = sl.together(
        rows.enrich(teams).on("team").write(sl.sqlite(database, table="plays")),
        totals.write(sl.sqlite(database, table="totals")),
    )
    job = run(pipeline, spark, tmp_path / "job")
    assert sorted(read(database, "SELECT score, team, city FROM plays")) == [
        (1, "red", "Rome"), (2, "blue", "Oslo"), (3, "green", None), (4, None, None), (5, "red", "Rome"),
    ]  # fmt: skip
    # Two rows on two routes: one drops them, the other pads them.
    assert (job.counts.read, job.counts.filtered, job.counts.unmatched) == (5, 2, 4)
    again: Job = pipeline.run(spark, checkpoint=tmp_path / "job")
    again.drain()
    assert again.await_end(PATIENCE)
    assert sorted(read(database, "SELECT city, total FROM totals_now")) == [("Oslo", 2), ("Rome", 6)]


def test_panes_are_enriched_and_a_failing_function_makes_dead_letters(spark: SparkSession, tmp_path: Path) -> None:
    database = tmp_path / "out.db"
    write(tmp_path / "in", "1", ("red", 1, 20), ("blue", 2, 21), ("red", 3, 22), ("green", 4, 22))

    def colours(keys: pl.DataFrame) -> pl.DataFrame:
        if "blue" in keys["team"]:
            raise ConnectionError("the service of colours is away")
        return keys.filter(pl.col("team") == "red").with_columns(colour=pl.lit("#f00"))

    table = sl.lookup_function(colours, "team string, colour string")
    panes = elements(tmp_path / "in").key_by("team").window(sl.tumbling(seconds=60)).aggregate(total=sl.sum("score"))
    pipeline = (
        panes.enrich(table, on_failure="dead_letter", keys_per_request=1, attempts=1)
        .on("team")
        .write(sl.sqlite(database, table="totals"))
    )
    job = run(pipeline, spark, tmp_path / "job")
    job = pipeline.run(spark, checkpoint=tmp_path / "job")
    job.drain()
    assert job.await_end(PATIENCE)
    letters = read(database, "SELECT reason, detail, step FROM totals_dead")
    # A request after the failed one in the same task is not sent, so green may be among them.
    assert {reason for reason, _, _ in letters} == {"lookup_failed"}
    assert all("service of colours is away" in detail and "lookup_function" in step for _, detail, step in letters)
    written = read(database, "SELECT team, total, colour FROM totals")
    assert ("blue", 2, None) not in written
    assert len(written) + len(letters) == 3
    assert job.counts.unmatched == sum(colour is None for _, _, colour in written)


class Users:
    """A service of users that a test switches off and on."""

    def __init__(self) -> None:
        self.city: str | None = "Rome"
        self.asked: list[int] = []

    def find(self, key: int) -> tuple[int, str | None, float | None, bool | None] | None:
        if self.city is None:
            raise BrokenPipeError  # the connection ends without an answer
        self.asked.append(key)
        return (key, self.city, None, None) if key < 100 else None


@contextmanager
def serving(users: Users) -> Iterator[CheckedLookup]:
    server = users_server(users.find)
    try:
        url = f"http://127.0.0.1:{server.server_port}/users/{{user_id}}"
        yield sl.lookup_http(url, "user_id long, name string")
    finally:
        server.shutdown()
        server.server_close()


def test_a_batch_waits_for_a_table_that_is_down_and_says_so_and_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    database, users = tmp_path / "out.db", Users()
    write(tmp_path / "in", "1", ("red", 1, 20), ("red", 1, 20), ("blue", 200, 21))
    with serving(users) as table:
        pipeline = (
            elements(tmp_path / "in")
            .enrich(table, cache_for="1h")
            .on(score="user_id")
            .write(sl.sqlite(database, table="plays"))
        )
        job: Job = pipeline.run(spark, checkpoint=tmp_path / "job")
        try:
            until(lambda: job.last is not None and job.counts.read == 3)
            assert sorted(users.asked) == [1, 200]
            users.city = None
            write(tmp_path / "in", "2", ("red", 2, 22), ("red", 1, 23))
            assert (
                until(lambda: job.status.state is State.WAITING) < TOLD_WITHIN_SECONDS + 3
            )  # the file is listed first
            assert "lookup_http" in job.problem
            assert "cannot be reached" in job.problem
            assert read(database, "SELECT count(*) FROM plays") == [(3,)]
            users.city = "Oslo"
            until(lambda: job.counts.read == 5)
            assert job.status.state is not State.WAITING
        finally:
            job.stop()
    found = sorted(read(database, "SELECT team, score, name FROM plays"))
    assert found[0] == ("blue", 200, None)
    assert ("red", 2, "Oslo") in found
    assert len(found) == 5


@pytest.mark.parametrize(("pin", "cities"), [(True, {"Rome"}), (False, {"Oslo"})])
def test_a_repeated_batch_gets_the_same_rows_if_answers_are_pinned(
    spark: SparkSession, tmp_path: Path, *, pin: bool, cities: set[str]
) -> None:
    database, got, is_broken = tmp_path / "out.db", list[str](), [True]
    teams = set_cities(tmp_path / "teams.db", ("red", "Rome"))
    write(tmp_path / "in", "1", ("red", 1, 20), ("red", 2, 21))

    def take(rows: pl.DataFrame, part: Any) -> None:
        if is_broken[0]:
            raise SinkError("the second sink is broken")
        if part.part == "panes":
            got.extend(rows["city"])

    enriched = elements(tmp_path / "in").enrich(teams, pin=pin).on("team")
    pipeline = sl.together(
        enriched.write(sl.sqlite(database, table="plays")), enriched.write(sl.call(take), delivery="at_least_once")
    )
    job: Job = pipeline.run(spark, checkpoint=tmp_path / "job", available_now=True)
    with pytest.raises(StrandlineError, match="second sink is broken"):
        job.await_end(PATIENCE)
    # The first sink holds the batch, the second does not. Meanwhile the table changes.
    assert set(read(database, "SELECT city FROM plays")) == {("Rome",)}
    set_cities(tmp_path / "teams.db", ("red", "Oslo"))
    is_broken[0] = False
    run(pipeline, spark, tmp_path / "job")
    assert set(read(database, "SELECT city FROM plays")) == {("Rome",)}
    assert set(got) == cities
    write(tmp_path / "in", "2", ("red", 3, 22))
    run(pipeline, spark, tmp_path / "job")
    assert read(database, "SELECT city FROM plays WHERE score = 3") == [("Oslo",)]
    kept = [each.name for each in (tmp_path / "job" / FOLDER).glob("*")] if pin else []
    assert len(kept) <= 1


PROGRAM = """
import strandline as sl
teams = sl.lookup_sqlite("teams.db", "team string, city string", table="teams")
rows = sl.read(sl.files("in", "team string, score long, at timestamp")).enrich(teams, pin=True).on("team")
pipeline = sl.together(*(rows.write(sl.sqlite(f"{name}.db", table="plays")) for name in ("one", "two")))
pipeline.run(checkpoint="job", available_now=True).await_end()
"""


def test_a_job_that_is_killed_between_two_sinks_gives_both_the_same_rows(tmp_path: Path) -> None:
    def start(**environment: str) -> int:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=tmp_path, env={**os.environ, **environment}, start_new_session=True,
            capture_output=True, check=False, timeout=PATIENCE,
        )  # fmt: skip
        return done.returncode

    set_cities(tmp_path / "teams.db", ("red", "Rome"))
    write(tmp_path / "in", "1", ("red", 1, 20), ("blue", 2, 21))
    assert start(STRANDLINE_CRASH="C9:2") == -signal.SIGKILL
    expected = [("blue", None), ("red", "Rome")]
    assert sorted(read(tmp_path / "one.db", "SELECT team, city FROM plays")) == expected
    set_cities(tmp_path / "teams.db", ("red", "Oslo"), ("blue", "Bern"))
    assert start() == 0
    for name in ("one", "two"):
        assert sorted(read(tmp_path / f"{name}.db", "SELECT team, city FROM plays")) == expected
