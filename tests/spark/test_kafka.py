"""Topics of a real broker, read by a real Spark: exact totals, whatever is in them and happens to the broker."""

import json
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, OffsetSpec  # type: ignore[attr-defined]
from pyspark.sql import SparkSession

import strandline as sl
from strandline.checkpoint.job_folder import Checkpoint
from strandline.connectors.kafka import Kafka, Security
from strandline.connectors.kafka.lag import Moment, Verdict, lag
from strandline.services.service import Service
from strandline.spark.job import Job

pytestmark = pytest.mark.spark
pytest_plugins = ["strandline.testing.services"]

MANY, CAMPAIGN = 200_000, 1_000_000
START: Final = 1_714_564_800_000
VALUE: Final = sl.json("team string, score long, at timestamp")
POISON: Final[tuple[bytes | None, ...]] = (
    b"", b"{", b"null", b"[1, 2]", b"\xff\xfe\x00", b'{"team": "red", "score": "many", "at": "2024-05-01T12:00:00Z"}',
    b'{"team": "red", "score": 99999999999999999999, "at": "2024-05-01T12:00:00Z"}', b'{"team": "red", "score": 1}',
    b'{"team": "red", "score": 1, "at": "yesterday"}', b'{"team": {"a": 1}, "score": 1, "at": "2024-05-01T12:00:00Z"}',
)  # fmt: skip


def record(team: str, score: int, ms: int) -> bytes:
    at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ms / 1000)) + f".{ms % 1000:03}Z"
    return json.dumps({"team": team, "score": score, "at": at}).encode()


def send(servers: str, topic: str, values: Iterable[bytes | None], partitions: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    # The broker tells of new partitions a moment after it has made them.
    until(lambda: len(producer.list_topics(topic, 10).topics[topic].partitions) >= partitions)
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % partitions)
        if number % 10_000 == 0:
            producer.poll(0)
    assert producer.flush(60) == 0


def totals(source: Kafka, database: Path) -> sl.Pipeline:
    panes = (
        sl.read(source)
        .event_time("at", sl.bounded(seconds=5).idle_after(seconds=2))
        .key_by("team")
        .window(sl.tumbling(minutes=1))
        .allow_lateness("1h")
        .accumulate(sl.accumulating)
        .aggregate(total=sl.sum("score"), n=sl.count())
    )
    return panes.write(sl.sqlite(database, table="totals"))


def now(database: Path) -> dict[str, tuple[int, int]]:
    with closing(sqlite3.connect(database)) as connection:
        ask = "SELECT team, sum(total), sum(n) FROM totals_now GROUP BY team"
        return {team: (total, n) for team, total, n in connection.execute(ask)}


def count(database: Path, table: str) -> int:
    with closing(sqlite3.connect(database)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def until(done: Callable[[], bool], seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not come to pass"
        time.sleep(0.2)


class Poisoned:
    """Records of which each hundredth is broken, in turn in one of ten ways, and what they come to."""

    def __init__(self, many: int) -> None:
        self._many = many
        self.plays, self.scores, self.poison = Counter[str](), Counter[str](), 0

    def __iter__(self) -> Iterator[bytes | None]:
        chance = random.Random(5)
        for number in range(self._many):
            if number % 100 == 99:
                self.poison += 1
                yield POISON[self.poison % len(POISON)]
                continue
            team, score = chance.choice(("red", "blue", "jade")), chance.randrange(10)
            self.plays[team] += 1
            self.scores[team] += score
            yield record(team, score, START + number * 3 - chance.randrange(4_000))


def group_lag(servers: str, group: str, topic: str) -> dict[int, int]:
    """By partition, as the broker's admin interface tells it to every tool."""
    admin = AdminClient({"bootstrap.servers": servers})
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(30)
    committed = {place.partition: place.offset for place in asked.topic_partitions if place.topic == topic}
    latest = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    ends = admin.list_offsets({TopicPartition(topic, number): latest for number in committed})
    return {place.partition: end.result(30).offset - committed[place.partition] for place, end in ends.items()}


@pytest.mark.parametrize("many", [MANY, pytest.param(CAMPAIGN, marks=pytest.mark.campaign)])
def test_totals_and_dead_letters_are_exact_and_the_group_ends_without_lag(
    many: int, spark: SparkSession, kafka: Service, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(partitions=4)
    records = Poisoned(many)
    send(kafka.address, topic, records, partitions=3)  # the fourth stays silent
    source = sl.kafka(topic, servers=kafka.address, value=VALUE, records_per_batch=MANY // 3, group=f"group-{topic}")
    database = tmp_path / "totals.db"
    job: Job = totals(source, database).run(spark, checkpoint=tmp_path / "job")
    until(lambda: job.counts.read >= many, seconds=600)
    job.drain()
    assert job.await_end(120)
    assert now(database) == {team: (records.scores[team], plays) for team, plays in records.plays.items()}
    assert job.counts.dead == count(database, "totals_dead") == records.poison == many // 100
    assert group_lag(kafka.address, f"group-{topic}", topic) == dict.fromkeys(range(4), 0)
    history = [Moment(clock, at) for clock, at in Checkpoint(tmp_path / "job").history(0, 10)]
    behind = lag(kafka.address, Security(), history, time.time_ns() // 1_000_000)
    assert {(each.partition, each.records, each.verdict) for each in behind} == {
        (f"{topic}-{number}", 0, Verdict.OK) for number in range(4)
    }
    send(kafka.address, topic, [record("red", 1, START)], partitions=1)
    # An hour on: far longer than any batch of this job took, however slow the machine.
    (first, *_) = lag(kafka.address, Security(), history, time.time_ns() // 1_000_000 + 3_600_000)
    assert (first.records, first.verdict) == (1, Verdict.STOPPED)
    assert first.seconds is not None
    assert 3_600 <= first.seconds < 3_900


def test_a_broker_that_dies_and_comes_back_costs_nothing_and_new_partitions_are_read(
    spark: SparkSession, kafka: Service, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(partitions=2)
    send(kafka.address, topic, [record("red", 1, START + number) for number in range(2_000)], partitions=2)
    database = tmp_path / "totals.db"
    source = sl.kafka(topic, servers=kafka.address, value=VALUE)
    job: Job = totals(source, database).run(spark, checkpoint=tmp_path / "job")
    try:
        until(lambda: job.counts.read == 2_000)
        kafka.kill()
        time.sleep(2)
        kafka.start()
        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(30)
        send(kafka.address, topic, [record("blue", 1, START + number) for number in range(2_000)], partitions=4)
        until(lambda: job.counts.read == 4_000)
        job.drain()
        assert job.await_end(120)
    finally:
        job.stop()
    assert now(database) == {"red": (2_000, 2_000), "blue": (2_000, 2_000)}


def test_what_kafka_knows_of_a_record_is_a_column_and_a_time(
    spark: SparkSession, kafka: Service, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(partitions=1)
    producer = Producer({"bootstrap.servers": kafka.address})
    for number in range(3):
        producer.produce(
            topic, record("red", number, 0), key=f"k{number}", timestamp=START + number, headers={"a": b"b"}
        )
    assert producer.flush(30) == 0
    source = sl.kafka(
        topic, servers=kafka.address, value=VALUE, metadata={"sent": "timestamp", "whose": "key", "place": "offset"}
    )
    told = (
        sl.read(source)
        .with_columns(who="cast(whose as string)")
        .event_time("sent", sl.monotone())
        .select("who", "place", "sent", "score")
        .write(sl.sqlite(tmp_path / "told.db", table="told"))
    )
    job: Job = told.run(spark, checkpoint=tmp_path / "job", available_now=True)
    assert job.await_end(120)
    with closing(sqlite3.connect(tmp_path / "told.db")) as connection:
        rows: list[Any] = connection.execute("SELECT who, place, score FROM told ORDER BY place").fetchall()
    assert rows == [("k0", 0, 0), ("k1", 1, 1), ("k2", 2, 2)]
