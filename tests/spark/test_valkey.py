"""A whole job into a real Valkey: what it holds is what the same job tells a table, also after a batch came again."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import valkey as client
from pyspark.sql import SparkSession

import strandline as sl
from strandline.services.service import Service
from strandline.spark.checkpoint import Checkpoint
from strandline.spark.deliver import Delivered
from strandline.spark.job import Job

pytestmark = [pytest.mark.spark, pytest.mark.services]

PATIENCE = 120
TEAMS = ("red", "blue", "green:grey")
PREFIX = "a whole job"


@pytest.fixture
def server(valkey: Service) -> Iterator[Any]:
    with closing(client.Valkey.from_url(valkey.address)) as mine:
        yield mine


def pipeline(folder: Path, address: str) -> sl.Pipeline:
    panes = (
        sl.read(sl.files(folder / "in", sl.json("team string, score long, at timestamp"), files_per_batch=1))
        .event_time("at", sl.bounded(seconds=5))
        .key_by("team")
        .window(sl.tumbling(minutes=1))
        .trigger(sl.repeatedly(sl.after_count(1)))
        .accumulate(sl.retracting)
        .allow_lateness(hours=1)
        .aggregate(total=sl.sum("score"))
    )
    return sl.together(
        panes.write(sl.valkey(address, prefix=PREFIX)), panes.write(sl.sqlite(folder / "told.db", table="totals"))
    )


def feed(folder: Path, number: int) -> None:
    """An event of each team in the same minute, and of the first in another; and a line that is none."""
    rows = [{"team": team, "score": 10 * number + at, "at": f"2024-05-01T12:00:0{number}Z"}
            for at, team in enumerate(TEAMS)]  # fmt: skip
    rows.append({"team": TEAMS[0], "score": 1, "at": f"2024-05-01T12:0{number}:30Z"})
    path = folder / "in" / f"{number}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows) + "no event\n")
    os.utime(path, (1_700_000_000 + number, 1_700_000_000 + number))


def run(folder: Path, address: str, spark: SparkSession) -> list[Delivered]:
    told: list[Delivered] = []
    job: Job = pipeline(folder, address).run(
        spark, checkpoint=folder / "job", available_now=True, key_groups=2, listener=told.append
    )
    with job:
        assert job.await_end(PATIENCE)
    return told


def held(server: Any) -> dict[tuple[str, str], tuple[int, int]]:
    """By team and window, the total and the number of its pane."""
    rows = [json.loads(server.get(key)) for key in server.scan_iter(f"{PREFIX}:*")]
    return {
        (row["team"], row["window_start"].replace("T", " ").removesuffix("Z")): (row["total"], row["pane_index"])
        for row in rows
    }


def in_the_table(folder: Path) -> dict[tuple[str, str], tuple[int, int]]:
    ask = "SELECT team, window_start, total, pane_index FROM totals_now"
    with closing(sqlite3.connect(folder / "told.db")) as connection:
        return {(team, start): (total, index) for team, start, total, index in connection.execute(ask)}


def test_a_job_goes_on_in_valkey_after_a_batch_came_again(
    spark: SparkSession, valkey: Service, server: Any, tmp_path: Path
) -> None:
    for number in (0, 1):
        feed(tmp_path, number)
    first = run(tmp_path, valkey.address, spark)
    assert [each.repeated for each in first] == [False] * len(first)
    # As if it had been killed when both sinks had the last batch, and Spark did not know.
    home = Checkpoint(tmp_path / "job")
    last = home.newest()
    (home.spark / "commits" / f"{last}").unlink()
    (home.spark / "commits" / f".{last}.crc").unlink(missing_ok=True)
    feed(tmp_path, 2)
    again = run(tmp_path, valkey.address, spark)
    assert [each.batch for each in again if each.repeated] == [last]

    assert in_the_table(tmp_path) == held(server)
    assert held(server)["blue", "2024-05-01 12:00:00.000"] == (0 + 1 + 10 + 1 + 20 + 1, 2)
    assert server.xlen(f"{PREFIX}.dead") == 3
