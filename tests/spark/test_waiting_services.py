"""Jobs whose broker, registry or database is away say so within five seconds; their lag is what the broker says."""

import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

import strandline as sl
from strandline.checkpoint.job_folder import Checkpoint
from strandline.errors import JobDrained, RunError, SinkUnavailable
from strandline.formats.registry.subjects import Kind, Schema
from strandline.observe.alarms.alarm_file import Alarms
from strandline.observe.alarms.rules import LagGrowing
from strandline.observe.metrics.history import History, JobState
from strandline.services.service import Service
from strandline.spark.job import Job
from strandline.spark.progress import State

pytestmark = [pytest.mark.spark, pytest.mark.services]
pytest_plugins = ["strandline.testing.services"]

TOLD_WITHIN_SECONDS = 5.0
PATIENCE = 240
VALUE = sl.json("team string, score long, at timestamp")
RECORD = b'{"team": "red", "score": 1, "at": "2024-05-01T12:00:00Z"}'


def until(fact: Callable[[], Any], seconds: float = PATIENCE) -> float:
    """Wait for a fact; return how long it took."""
    begun = time.monotonic()
    while not fact():
        assert time.monotonic() < begun + seconds, "it did not happen in time"
        time.sleep(0.05)
    return time.monotonic() - begun


def send(servers: str, topic: str, values: Iterable[bytes]) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    assert producer.flush(60) == 0


def ends(servers: str, topic: str) -> dict[str, int]:
    """Return where the partitions end, as the broker tells every tool."""
    latest, admin = OffsetSpec.latest(), AdminClient({"bootstrap.servers": servers})  # type: ignore[no-untyped-call]
    asked = admin.list_offsets({TopicPartition(topic, number): latest for number in (0, 1)})
    return {str(place.partition): answer.result(30).offset for place, answer in asked.items()}


def totals(source: Any, database: Path) -> sl.Pipeline:
    panes = (
        sl.read(source)
        .event_time("at", sl.bounded(seconds=5).idle_after(seconds=2))
        .key_by("team")
        .window(sl.tumbling(minutes=1))
        .allow_lateness("1h")
        .accumulate(sl.accumulating)
        .aggregate(total=sl.sum("score"))
    )
    return panes.write(sl.sqlite(database, table="totals"))


def total(database: Path) -> int:
    with closing(sqlite3.connect(database)) as connection:
        return int(connection.execute("SELECT coalesce(sum(total), 0) FROM totals_now").fetchone()[0])


@contextmanager
def away(service: Service) -> Iterator[None]:
    """Kill a service, and start it again."""
    service.kill()
    try:
        yield
    finally:
        service.start()


def told(job: Job, checkpoint: Path, text: str) -> None:
    """The job and its folder say within five seconds what it waits for, since when, and how often it was tried."""
    assert until(lambda: job.status.state is State.WAITING, PATIENCE) < TOLD_WITHIN_SECONDS
    waiting = job.waiting
    assert waiting is not None
    assert text in job.problem
    assert waiting.tries >= 1
    assert abs(time.time() * 1000 - waiting.since) < TOLD_WITHIN_SECONDS * 1000
    with History(checkpoint) as history:
        assert until(lambda: history.job().state is JobState.WAITING) < TOLD_WITHIN_SECONDS
        assert text in history.job().problem
        assert "since" in history.job().problem
        assert [event.kind for event in history.events()][-1] == "waiting"


def no_longer(job: Job, checkpoint: Path) -> None:
    until(lambda: job.waiting is None)
    with History(checkpoint) as history:
        until(lambda: history.job().state is JobState.RUNNING)
        assert history.job().problem == ""


def test_the_lag_is_what_the_broker_says_beside_a_growing_backlog_and_a_drain_says_what_it_left(
    spark: SparkSession, kafka: Service, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, checkpoint = new_topic(partitions=2), tmp_path / "job"
    send(kafka.address, topic, [RECORD] * 1_000)
    time.sleep(1)
    asked = totals(sl.kafka(topic, servers=kafka.address, value=VALUE, records_per_batch=20), tmp_path / "totals.db")
    rules = Alarms(rules=(LagGrowing(batches=3),), notifiers=())
    job: Job = asked.run(spark, checkpoint=checkpoint, every="2 seconds", alarms=rules)
    with History(checkpoint) as history, job:

        def grows() -> bool:
            send(kafka.address, topic, [RECORD] * 200)
            return any(alarm.rule == "lag_growing" and alarm.state == "firing" for alarm in history.alarms())

        until(lambda: job.last is not None)
        until(grows)
        points = history.points()
        assert all(point.lag_records is not None and point.lag_seconds is not None for point in points)
        assert points[0].batch + 1 == points[0].batches, "the first point has the first batch"
        assert points[-1].lag_records > points[0].lag_records > 0  # type: ignore[operator]
        # Nothing is sent any more: the next batches have the broker's own ends.
        at_end = ends(kafka.address, topic)
        last = job.last.batch if job.last is not None else 0
        until(lambda: history.points()[-1].batch >= last + 2)
        point = history.points()[-1]
        read = Checkpoint(checkpoint).offsets(point.batch)
        assert read is not None
        assert point.lag_records == sum(at_end.values()) - sum(read[topic].values()) > 0
        job.drain()
        assert job.await_end(PATIENCE)
        read = Checkpoint(checkpoint).offsets(Checkpoint(checkpoint).committed()[-1])
        assert read is not None
        left = sum(at_end.values()) - sum(read[topic].values())
        assert job.unread == left > 0
        assert job.counts.read == sum(read[topic].values()), "nothing is read after the windows were closed"
        assert job.counts.late == 0
        assert job.status.state is State.COMPLETE
        assert f"{left} records were not read" in job.problem
        until(lambda: history.job().state is JobState.COMPLETE)
        assert f"{left} records were not read" in history.job().problem
    with pytest.raises(JobDrained, match=f"{left} records .* are unread") as refused:
        asked.run(spark, checkpoint=checkpoint)
    assert f"starting={json.dumps(read)}" in refused.value.hint


def test_a_broker_that_goes_away_while_there_is_nothing_to_read_is_told(
    spark: SparkSession, kafka: Service, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, checkpoint = new_topic(partitions=2), tmp_path / "job"
    send(kafka.address, topic, [RECORD] * 10)
    asked = totals(sl.kafka(topic, servers=kafka.address, value=VALUE), tmp_path / "totals.db")
    with asked.run(spark, checkpoint=checkpoint) as job:
        until(lambda: job.counts.read == 10)
        with away(kafka):
            told(job, checkpoint, f"Kafka at {kafka.address} does not respond")
        no_longer(job, checkpoint)
        send(kafka.address, topic, [RECORD] * 10)
        until(lambda: job.counts.read == 20)


def test_a_broker_that_is_away_at_the_start_is_told_and_waited_for_as_long_as_allowed(
    spark: SparkSession, kafka: Service, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, checkpoint = new_topic(partitions=2), tmp_path / "job"
    send(kafka.address, topic, [RECORD] * 10)
    asked = totals(sl.kafka(topic, servers=kafka.address, value=VALUE), tmp_path / "totals.db")
    with away(kafka):
        late: Job = asked.run(spark, checkpoint=tmp_path / "late", start_within="3s")
        with pytest.raises(RunError, match="did not start within 3 s .*Kafka at"):
            late.await_end(PATIENCE)
        assert late.status.state is State.FAILED
        with History(tmp_path / "late") as history:
            until(lambda: history.job().state is JobState.FAILED)
        job: Job = asked.run(spark, checkpoint=checkpoint)
        told(job, checkpoint, f"Kafka at {kafka.address} does not respond")
    with job:
        until(lambda: job.counts.read == 10)
        no_longer(job, checkpoint)


def test_a_database_that_is_away_is_told_at_the_start_and_in_the_middle(
    spark: SparkSession, postgres: Service, tmp_path: Path
) -> None:
    panes = (
        sl.read(sl.scores(seed=3, events=100_000, rate=100))
        .event_time("at", sl.bounded(seconds=1).idle_after(seconds=2))
        .key_by("team")
        .window(sl.tumbling(seconds=1))
        .aggregate(total=sl.sum("score"))
    )
    asked = panes.write(sl.postgres("waited_for", dsn=postgres.address))
    with away(postgres):
        with pytest.raises(SinkUnavailable, match="PostgreSQL at"):
            asked.run(spark, checkpoint=tmp_path / "one")
        with History(tmp_path / "one") as history:
            assert history.job().state is JobState.FAILED
            assert "PostgreSQL at" in history.job().problem
        begun = time.monotonic()
        with pytest.raises(RunError, match=r"did not start within 2 s .*PostgreSQL at .* tries"):
            asked.run(spark, checkpoint=tmp_path / "two", start_within="2s")
        assert 2 <= time.monotonic() - begun < 60
    with asked.run(spark, checkpoint=tmp_path / "job") as job:
        until(lambda: job.counts.contributed > 100)
        with away(postgres):
            told(job, tmp_path / "job", "PostgreSQL at")
            assert job.waiting is not None
            assert (job.waiting.what, job.waiting.next_try is None) == ("postgres('waited_for')", False)
        no_longer(job, tmp_path / "job")


def test_a_registry_that_is_away_is_told(
    spark: SparkSession, kafka: Service, registry: Service, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, checkpoint = new_topic(partitions=2), tmp_path / "job"
    ours = sl.registry(registry.address)
    schema = '{"type": "record", "name": "Score", "fields": [{"name": "team", "type": "string"}]}'
    number = ours.client().register("waited-for-value", Schema(Kind.AVRO, schema))
    value = b"\0" + number.to_bytes(4, "big") + b"\x06red"
    asked = sl.read(sl.kafka(topic, servers=kafka.address, value=sl.avro(schema, registry=ours)))
    with asked.write(sl.sqlite(tmp_path / "teams.db", table="teams")).run(spark, checkpoint=checkpoint) as job:
        until(lambda: job.last is not None)
        with away(registry):
            send(kafka.address, topic, [value])
            until(lambda: job._batch_began is not None and time.monotonic() - job._batch_began > 1)
            told(job, checkpoint, f"the registry at {registry.address} does not respond")
        until(lambda: job.counts.read == 1)
        no_longer(job, checkpoint)
    assert job.counts.dead == 0


def test_a_task_that_fails_and_is_run_again_tells_its_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "one.json").write_text('{"score": "many"}\n')
    sleep = "coalesce(reflect('java.lang.Thread', 'sleep', 2000L), '')"
    slow = f"case when {sleep} <> score then cast(score as int) end > 10"
    asked = sl.read(sl.files(tmp_path / "in", sl.json("score string"), pattern="*.json")).where(slow)
    job: Job = asked.write(sl.sqlite(tmp_path / "o.db", table="t")).run(spark, checkpoint=tmp_path / "job")
    with job:
        until(lambda: job.status.state in (State.WAITING, State.FAILED))
        waiting = job.waiting
        assert waiting is not None
        assert waiting.tries < 4
        assert "CAST_INVALID_INPUT" in job.problem
        until(lambda: job.status.state is State.FAILED)
        assert "CAST_INVALID_INPUT" in job.problem
        assert job.waiting is None
