"""Everything that can be wrong with a record, from topics of a real broker through Spark to tables and dead letters.

One job reads three topics: scores in JSON, scores in Avro under a registry's ids, and change events. Between the bad
records there are good ones, and each of them counts.
"""

import io
import json
import sqlite3
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import Producer
from fastavro import parse_schema, schemaless_writer
from pyspark.sql import SparkSession

import strandline as sl
from strandline.formats.registry.client import Client, Registry
from strandline.formats.registry.confluent_wire import framed
from strandline.formats.registry.subjects import Kind, Level, Schema
from strandline.services.service import Service
from strandline.spark.job import Job
from strandline.spark.progress import State, Status

pytestmark = [pytest.mark.spark, pytest.mark.services]

NOON: Final = "2024-05-01T12:00:00Z"
LARGE: Final = 20_000_000
GOOD: Final = json.dumps({"team": "red", "score": 1, "at": NOON}).encode()
UNKNOWN: Final = 999_999


def scored(written: str, at: str = NOON) -> bytes:
    return f'{{"team": "red", "score": {written}, "at": "{at}"}}'.encode()


BAD_JSON: Final[Mapping[str, tuple[bytes | None, str, str]]] = {
    "invalid UTF-8": (b'{"team": "\xff\xfe", "score": 1}', "undecodable", "UTF-8"),
    "a field that changed its type": (scored('"many"'), "undecodable", "score"),
    "a key twice": (b'{"team": "red", "score": 1, "score": 2, "at": "2024-05-01T12:00:00Z"}', "undecodable", "score"),
    "a number out of range": (scored("99999999999999999999"), "undecodable", "99999999999999999999"),
    "a time in the year 0": (scored("1", "0000-06-01T00:00:00Z"), "undecodable", "out of the range"),
    "a time in the year 9999": (scored("1", "9999-12-31T23:59:59Z"), "future", "further ahead"),
    "cut off": (GOOD[:-7], "undecodable", "JSON"),
    "no value": (None, "no_event_time", "at is missing"),
}
TOO_LARGE: Final = GOOD.replace(b"red", b"r" * LARGE)


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def avro(*fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Score", "fields": [field("team", "string"), *fields]}


READER: Final = avro(field("score", "long"))
WIDER: Final = avro(field("score", "long"), field("bonus", "int", default=0))
NARROWER: Final = avro(field("score", "int"))
OTHER: Final = avro(field("score", "string"))


class Writers:
    """Writes Avro under the ids of a registry."""

    def __init__(self, client: Client, subject: str) -> None:
        self._client, self._subject = client, subject

    def known(self, schema: dict[str, Any]) -> int:
        return self._client.register(self._subject, Schema(Kind.AVRO, json.dumps(schema)))

    def record(self, schema: dict[str, Any], **row: Any) -> bytes:
        file = io.BytesIO()
        schemaless_writer(file, parse_schema(schema), row)
        return framed(self.known(schema), file.getvalue())


def bad_avro(good: bytes) -> dict[str, tuple[bytes, str, str]]:
    return {
        "cut off": (good[:-2], "undecodable", ""),
        "bytes left over": (good + b"\x00", "undecodable", ""),
        "a wrong first byte": (b"\x01" + good[1:], "undecodable", "the first byte is 1"),
        "too short for an id": (good[:3], "undecodable", "too few for a schema's id"),
        "an id that nobody knows": (framed(UNKNOWN, good[5:]), "unknown_schema", f"no schema {UNKNOWN}"),
        "a text that is none": (good[:6] + b"\xff\xfe\xff" + good[9:], "undecodable", "UTF-8"),
    }


def change(op: str, before: Any = None, after: Any = None) -> bytes:
    return json.dumps({"before": before, "after": after, "op": op, "source": {"ts_ms": 1_714_564_800_000}}).encode()


ANN, BOB = {"id": 1, "name": "Ann"}, {"id": 1, "name": "Bob"}
CHANGES: Final = (
    change("r", after=ANN),  # a row of the first snapshot
    change("u", ANN, BOB),
    change("u", after=ANN),  # a database that does not tell the row before
    change("d", ANN),
    None,  # the tombstone that follows
    change("d"),
    change("t"),
    change("m"),
)


def send(servers: str, topic: str, values: Iterable[bytes | None]) -> int:
    producer = Producer({"bootstrap.servers": servers, "message.max.bytes": 2 * LARGE, "linger.ms": 5})
    sent = 0
    for value in values:
        producer.produce(topic, value, partition=0)
        sent += 1
    assert producer.flush(60) == 0
    return sent


def until(done: Callable[[], bool], job: Job, seconds: float = 120) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert job.status.state is not State.FAILED, job.status.problem
        assert time.monotonic() < end, f"it did not come to pass: {job.status}, {job.counts}"
        time.sleep(0.1)


@dataclass(frozen=True)
class Topics:
    """The three topics, the pipelines that read them, and the file that they write."""

    servers: str
    value: Any
    database: Path
    json: str
    avro: str
    changes: str

    def pipeline(self) -> sl.Pipeline:
        rule = sl.bounded(seconds=5).idle_after(seconds=2).future_bound(days=1, dead_letter=True)
        totals = (
            sl.read(self._read(self.json, sl.json("team string, score long, at timestamp")))
            .event_time("at", rule)
            .key_by("team")
            .window(sl.tumbling(minutes=1))
            .allow_lateness("1h")
            .accumulate(sl.accumulating)
            .aggregate(total=sl.sum("score"), n=sl.count())
        )
        scores = sl.read(self._read(self.avro, self.value))
        changes = sl.read(self._read(self.changes, sl.debezium("id long, name string")))
        return sl.together(
            totals.write(sl.sqlite(self.database, table="totals")),
            scores.write(sl.sqlite(self.database, table="scores")),
            changes.write(sl.sqlite(self.database, table="changes")),
        )

    def _read(self, topic: str, value: Any) -> Any:
        return sl.kafka(topic, servers=self.servers, value=value)


class Played:
    """What the job was given, how it was on the way, and what it left."""

    def __init__(self, topics: Topics, writers: Writers) -> None:
        self._topics = topics
        self.good = writers.record(READER, team="red", score=1)
        self.bad = bad_avro(self.good)
        self.reader, self.other = writers.known(READER), 0
        self.waiting: Status | None = None
        self.read_while_waiting = self.read_before_waiting = 0
        self.end: Status | None = None

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self._topics.database)) as connection:
            return connection.execute(query).fetchall()

    def dead(self, table: str) -> list[tuple[Any, ...]]:
        return self.rows(f"SELECT source_offset, reason, detail, raw, masked FROM {table}_dead ORDER BY 1")

    def play(self, topics: Topics, writers: Writers, registry: Service, job: Job) -> None:
        servers, good = topics.servers, self.good
        read = send(servers, topics.json, (each for bad, _, _ in BAD_JSON.values() for each in (GOOD, bad)))
        until(lambda: job.counts.read == read, job)
        # What comes in a batch after a time in the year 9999 must not be late for it.
        read += send(servers, topics.json, [GOOD, TOO_LARGE])
        read += send(servers, topics.avro, (each for bad, _, _ in self.bad.values() for each in (good, bad)))
        read += send(servers, topics.avro, [None, good])
        read += send(servers, topics.changes, CHANGES) + 1  # an update that tells both rows is read as two
        until(lambda: job.counts.read == read, job)
        # Writers move on while the job runs: to a schema that the reader's can read, and to one that it cannot.
        records = [writers.record(WIDER, team="blue", score=5, bonus=3), writers.record(OTHER, team="blue", score="5")]
        read += send(servers, topics.avro, [*records, good])
        until(lambda: job.counts.read == read, job)
        # A new schema, and nobody to ask for it.
        late, self.other = writers.record(NARROWER, team="jade", score=7), writers.known(OTHER)
        registry.stop()
        sent = send(servers, topics.avro, [good, late, good])
        until(lambda: job.status.state is State.WAITING, job)
        self.waiting = job.status
        self.read_before_waiting, self.read_while_waiting = read, job.counts.read
        registry.start()
        until(lambda: job.counts.read == read + sent, job)
        job.drain()
        assert job.await_end(120)
        self.end = job.status


@pytest.fixture(scope="module")
def played(
    spark: SparkSession,
    kafka: Service,
    registry: Service,
    new_topic: Callable[..., str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Played:
    folder = tmp_path_factory.mktemp("bad")
    subject, ours = "bad-input-value", Registry(registry.address, attempts=1)
    writers = Writers(ours.client(), subject)
    writers.known(READER)
    ours.client().set_level(Level.NONE, subject)
    large = new_topic(partitions=1, max_message_bytes=str(2 * LARGE))
    value = sl.avro(registry=ours, subject=subject)
    others = new_topic(partitions=1), new_topic(partitions=1)
    topics = Topics(kafka.address, value, folder / "found.db", large, *others)
    found = Played(topics, writers)
    with topics.pipeline().run(spark, checkpoint=folder / "job") as job:
        found.play(topics, writers, registry, job)
    return found


def test_every_good_record_counts(played: Played) -> None:
    assert played.rows("SELECT team, total, n FROM totals_now") == [("red", len(BAD_JSON) + 1, len(BAD_JSON) + 1)]
    scores = "SELECT team, score, count(*) FROM scores WHERE team = 'red' GROUP BY 1, 2"
    assert played.rows(scores) == [("red", 1, len(played.bad) + 4)]


def test_every_bad_json_is_a_dead_letter_with_its_reason_its_place_and_its_bytes(played: Played) -> None:
    letters = [letter for letter in played.dead("totals") if letter[1] != "too_large"]
    for letter, (number, (bad, reason, told)) in zip(letters, enumerate(BAD_JSON.values()), strict=True):
        assert (letter[0], letter[1], letter[3]) == (2 * number + 1, reason, bad)
        assert told in letter[2]


def test_of_a_record_that_is_too_large_its_size_its_place_and_its_beginning_are_told(played: Played) -> None:
    (letter,) = [letter for letter in played.dead("totals") if letter[1] == "too_large"]
    assert letter[0] == 2 * len(BAD_JSON) + 1
    assert letter[2].startswith(
        f"a record of {len(TOO_LARGE)} bytes, more than are read; its first 65536 are kept here"
    )
    assert letter[3:] == (TOO_LARGE[:65_536], "cut")


def test_every_bad_avro_is_a_dead_letter_with_its_reason_its_place_and_its_bytes(played: Played) -> None:
    letters = [letter for letter in played.dead("scores") if letter[1] != "incompatible_schema"]
    for letter, (number, (bad, reason, told)) in zip(letters, enumerate(played.bad.values()), strict=True):
        assert (letter[0], letter[1], letter[3]) == (2 * number + 1, reason, bad)
        assert told in letter[2]


def test_a_record_without_a_value_is_an_event_without_values(played: Played) -> None:
    assert played.rows("SELECT count(*) FROM scores WHERE team IS NULL AND score IS NULL") == [(1,)]


def test_a_new_writers_schema_is_resolved_while_the_job_runs(played: Played) -> None:
    assert played.rows("SELECT score FROM scores WHERE team = 'blue'") == [(5,)]


def test_a_schema_that_cannot_be_read_is_a_dead_letter_that_names_both_ids(played: Played) -> None:
    (letter,) = [letter for letter in played.dead("scores") if letter[1] == "incompatible_schema"]
    assert letter[2].startswith(f"schema {played.other} cannot be read with schema {played.reader}: score: ")


def test_a_batch_waits_for_a_registry_that_is_down_says_so_and_goes_on_when_it_is_back(played: Played) -> None:
    assert played.waiting is not None
    assert played.waiting.problem.startswith("the registry at ")
    assert played.read_while_waiting == played.read_before_waiting
    assert played.rows("SELECT score FROM scores WHERE team = 'jade'") == [(7,)]
    assert played.end is not None
    assert played.end.state is State.COMPLETE


def test_change_events_tell_their_rows_and_a_tombstone_a_delete_of_nobody_in_particular(played: Played) -> None:
    assert played.rows("SELECT id, name, change, changed_at IS NOT NULL FROM changes ORDER BY rowid") == [
        (1, "Ann", "insert", 1),
        (1, "Ann", "update_before", 1),
        (1, "Bob", "update_after", 1),
        (1, "Ann", "update_after", 1),
        (1, "Ann", "delete", 1),
        (None, None, "delete", 0),
    ]


def test_change_events_that_tell_no_row_are_dead_letters_that_say_why(played: Played) -> None:
    told = [(place, reason, detail) for place, reason, detail, _, _ in played.dead("changes")]
    assert told == [
        (5, "undecodable", "an envelope of the operation 'd' without the row before it"),
        (6, "undecodable", "the table was truncated, and the event does not list the deleted rows"),
        (7, "undecodable", "a message of the database's log, without a row"),
    ]
