"""Backfill, then live, on a real Spark and a real broker: no gap and no repeat at the cut, wherever it is stopped."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import strandline as sl
from strandline.connectors.kafka import Kafka
from strandline.errors import CheckpointMismatch, InvalidStep, SavepointError, SetupError
from strandline.ports.crash_points import VARIABLE
from strandline.savepoints.restore import restore
from strandline.savepoints.take import create
from strandline.services.service import Service
from strandline.spark.job import Job
from tests.spark.test_bounded import COLUMNS, NOON, ask, scores

pytestmark = pytest.mark.spark
Row = dict[str, Any]
CUT = NOON + timedelta(seconds=150)


def send(servers: str, topic: str, rows: Sequence[Row]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for number, row in enumerate(rows):
        producer.produce(topic, json.dumps(row).encode(), partition=number % 2)
    assert producer.flush(60) == 0


def in_files(folder: Path, rows: Sequence[Row], files: int) -> Path:
    folder.mkdir()
    for number in range(files):
        (folder / f"{number}.json").write_text("\n".join(json.dumps(row) for row in rows[number::files]))
    return folder


def totals(source: Kafka, home: Path) -> sl.Pipeline:
    panes = (
        sl.read(source).event_time("at", sl.bounded(seconds=10)).key_by("team").window(sl.tumbling(seconds=20))
        .aggregate(total=sl.sum("score"), many=sl.count())
    )  # fmt: skip
    return panes.write(sl.sqlite(home / "totals.db", table="totals"))


def expected(rows: Sequence[Row], until: datetime | None = None) -> dict[tuple[str, int], tuple[int, int]]:
    """By team and window: the total and how many, of windows that end by then."""
    found: dict[tuple[str, int], tuple[int, int]] = {}
    for row in rows:
        start = int(datetime.fromisoformat(row["at"]).timestamp()) // 20 * 20
        if until is None or start + 20 <= until.timestamp():
            total, many = found.get((row["team"], start), (0, 0))
            found[row["team"], start] = (total + row["score"], many + 1)
    return found


def held(home: Path) -> dict[tuple[str, int], tuple[int, int]]:
    """Every pane, none of which may be there twice."""
    asked = "SELECT team, window_start, total, many FROM totals"
    rows = ask(home / "totals.db", asked)
    found = {
        (team, int(datetime.fromisoformat(f"{start}+00:00").timestamp())): (total, many)
        for team, start, total, many in rows
    }
    assert len(found) == len(rows)
    return found


def read_and_drain(job: Job, many: int) -> None:
    """Lets a live job read so many, and then ends its input."""
    end = time.monotonic() + 240
    while job.counts.read < many and time.monotonic() < end:
        time.sleep(0.05)
    assert job.counts.read == many
    job.drain()
    assert job.await_end(240)


def started(folder: str, topic: str, servers: str, job: str, spark: SparkSession | None = None, **options: Any) -> Job:
    """The job of the test below, as each of its lives starts it."""
    home = Path(folder)
    history = sl.files(home / "in", sl.json(COLUMNS), files_per_batch=1)
    pipeline = totals(sl.kafka(topic, servers=servers, value=sl.json(COLUMNS)), home)
    begun: Job = pipeline.run(spark, checkpoint=home / job, backfill=history, at=CUT, **options)
    return begun


def die_at(point: str, *where: str) -> None:
    """A life in a process of its own, which is killed with all that it started when it comes to this point."""
    code = "import sys; from tests.spark.test_backfill import started; started(*sys.argv[1:]).await_end(240)"
    known = {**os.environ, VARIABLE: point, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", code, *where], env=known, start_new_session=True, capture_output=True, timeout=280,
        check=False,
    )  # fmt: skip
    assert ended.returncode == -signal.SIGKILL, ended.stderr[-2_000:]


def test_history_and_topic_meet_at_a_time_without_gap_or_repeat_wherever_the_job_is_killed_or_moved(
    spark: SparkSession,
    tmp_path: Path,
    kafka: Service,
    new_topic: Callable[..., str],
) -> None:
    rows = scores()
    shuffled = Random(3).sample(rows, len(rows))  # history in no order: nothing of it may be late
    history = sl.files(in_files(tmp_path / "in", shuffled, 2), sl.json(COLUMNS), files_per_batch=1)
    topic = new_topic(partitions=2)
    send(kafka.address, topic, rows[:250])  # it goes back far behind the cut, as history goes beyond it
    where = (str(tmp_path), topic, kafka.address)
    root = totals(sl.kafka(topic, servers=kafka.address, value=sl.json(COLUMNS)), tmp_path).root

    def move(job: str, to: str) -> None:
        saved = create(spark, tmp_path / job, tmp_path / "saved" / job)
        with pytest.raises(SavepointError, match="started with a backfill"):
            restore(root, spark, saved.folder, tmp_path / to)
        restore(root, spark, saved.folder, tmp_path / to, backfill=history, at=CUT)

    die_at("S1:1", *where, "first")
    assert not [row for row in ask(tmp_path / "totals.db", "SELECT name FROM sqlite_master") if row == ("totals",)]
    move("first", "second")
    # It comes to the seam, and dies in one of the first batches of the topic: the sink has it, Spark does not know.
    die_at("C11:2", *where, "second")
    assert '"phase": "live"' in (tmp_path / "second" / "backfill.json").read_text()
    # Nothing of history is needed any more; the job is live, and first closes all windows before the cut.
    for file in (tmp_path / "in").iterdir():
        file.unlink()
    job = started(*where, "second", spark, available_now=True)
    assert job.await_end(240)
    assert job.counts.late == 0
    assert expected(rows, CUT).items() <= held(tmp_path).items() <= expected(rows).items()
    move("second", "third")
    send(kafka.address, topic, rows[250:])
    with started(*where, "third", spark) as job:
        read_and_drain(job, len(rows) - 250)
    assert held(tmp_path) == expected(rows)
    pipeline = totals(sl.kafka(topic, servers=kafka.address, value=sl.json(COLUMNS)), tmp_path)
    with pytest.raises(CheckpointMismatch):
        pipeline.run(spark, checkpoint=tmp_path / "third", backfill=history, at=NOON)


def test_history_and_topic_meet_at_offsets(
    spark: SparkSession, tmp_path: Path, kafka: Service, new_topic: Callable[..., str]
) -> None:
    rows, topic = scores(), new_topic(partitions=2)
    history = sl.files(in_files(tmp_path / "in", rows[:200], 2), sl.json(COLUMNS))
    send(kafka.address, topic, rows)
    source = sl.kafka(topic, servers=kafka.address, value=sl.json(COLUMNS))
    pipeline, cut = totals(source, tmp_path), {topic: {"0": 100, "1": 100}}
    with pipeline.run(spark, checkpoint=tmp_path / "job", backfill=history, then=source, at=cut) as job:
        read_and_drain(job, len(rows))
        assert job.counts.late == 0
    assert held(tmp_path) == expected(rows)
    (tmp_path / "job" / "notes.json").unlink()  # as if it had not ended
    with pytest.raises(CheckpointMismatch, match="another cut"):
        pipeline.run(spark, checkpoint=tmp_path / "job", backfill=history, at={topic: {"0": 100, "1": 99}})
    for options, told in (
        ({"at": CUT}, "belong to a backfill"),
        ({"backfill": history}, "needs a cut"),
        ({"backfill": source, "at": CUT}, "is no history"),
        ({"backfill": history, "then": history, "at": CUT}, "is not read here"),
    ):
        with pytest.raises((InvalidStep, SetupError), match=told):
            pipeline.run(spark, checkpoint=tmp_path / "other", **options)
