"""Records of topics that cross many to a row are those that cross one by one; and jobs go on either way."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession
from pyspark.sql.functions import lit

import strandline as sl
from strandline.connectors.kafka import Kafka, topic_blocks
from strandline.ports.raw_records import PACKED
from strandline.services.service import Service
from strandline.spark.job import Job
from strandline.spark.patches import topic_blocks as patch
from strandline.spark.patches.switch import is_on
from strandline.spark.patches.topic_blocks import probe_topic_blocks
from strandline.spark.tasks.decode_task import as_crossed
from strandline.spark.tasks.unpack_topic_rows import is_packed, unpacked

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not is_on("topic_blocks"), reason="the patch is switched off"),
]
pytest_plugins = ["strandline.testing.services"]

KNOWN = {
    "sent": "timestamp",
    "how": "timestamp_type",
    "whose": "key",
    "at": "offset",
    "there": "topic",
    "part": "partition",
}
CUT_ABOVE = 100_000
START = 1_714_564_800_000


def alike(spark: SparkSession, source: Kafka, monkeypatch: pytest.MonkeyPatch) -> pl.DataFrame:
    """What a source holds, the same by both ways."""
    found = []
    for packed in (True, False):
        with monkeypatch.context() as patched:
            if not packed:
                patched.setattr(topic_blocks, "is_enabled", lambda _: False)
            frame = source.table(source.extent(spark), spark)
        assert frame is not None
        batches = frame.toArrow().to_batches()
        assert is_packed(batches[0]) is packed
        found.append(as_crossed(batches, {}, source.alone).sort("partition", "offset"))
    ours, theirs = found
    assert sorted(ours.columns) == sorted(theirs.columns)
    assert ours.select(theirs.columns).equals(theirs)
    assert {name: ours.schema[name] for name in theirs.columns} == dict(theirs.schema)
    return ours


def test_records_of_every_kind_are_the_same_in_both(
    spark: SparkSession, kafka: Service, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = new_topic(partitions=3), new_topic(partitions=1)
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": f"by-{first}", "linger.ms": 5})
    producer.init_transactions(30)
    values = [None, b"", b"{", b"x" * 12, b"y" * 13, b"\x00\xff", b"z" * CUT_ABOVE, b"long" * CUT_ABOVE]
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for number, value in enumerate(values * 5):
            key = None if number % 3 == 0 else b"" if number % 3 == 1 else b"key of some length"
            sent = START + number if number % 2 else 0
            topic = second if number % 7 == 0 else first
            partition = 0 if topic == second else number % 2  # the third stays silent
            producer.produce(topic, value, key, partition, timestamp=sent)
        assert producer.flush(30) == 0
        end(30)
    whole = sl.kafka(first, second, servers=kafka.address, value=sl.raw(), metadata=KNOWN, until="latest")
    found = alike(spark, whole, monkeypatch)
    assert len(found) == 2 * 5 * len(values)  # what was taken back is not there
    assert found["offset"].n_unique() < found.group_by("partition").agg(pl.col("offset").max() + 1)["offset"].sum()
    short = sl.json("n long", largest=CUT_ABOVE)
    cut = alike(spark, sl.kafka(first, servers=kafka.address, value=short, until="latest"), monkeypatch)
    assert set(cut["@size"].drop_nulls()) == {4 * CUT_ABOVE}
    assert max(cut["value"].bin.size().drop_nulls()) == CUT_ABOVE


def test_many_records_and_long_ones_fill_rows_and_none_is_lost(
    spark: SparkSession, kafka: Service, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.address, "linger.ms": 20, "queue.buffering.max.messages": 500_000})
    for number in range(50_000):
        producer.produce(topic, b"%d" % number, partition=0)
    for number in range(20):
        producer.produce(topic, b"%d" % number * 200_000, partition=1)
        producer.poll(0)
    assert producer.flush(60) == 0
    source = sl.kafka(topic, servers=kafka.address, value=sl.raw(), until="latest")
    found = alike(spark, source, monkeypatch)
    assert found["value"][:50_000].to_list() == [b"%d" % number for number in range(50_000)]
    assert found["value"][50_000:].bin.size().to_list() == [200_000] * 10 + [400_000] * 10
    frame = source.table(source.extent(spark), spark)
    assert frame is not None
    batches = frame.withColumn("@clock", lit("noon")).toArrow().to_batches()
    assert sum(each.num_rows for each in batches) < 30
    assert as_crossed(batches, {})["@clock"].to_list() == ["noon"] * found.height


def test_a_task_reads_many_partitions_and_finds_in_each_what_spark_finds(
    spark: SparkSession, kafka: Service, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where records were taken back, where a partition is empty, and where one is much longer than the others."""
    topic, partitions = new_topic(partitions=40), 40
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": f"by-{topic}", "linger.ms": 5})
    producer.init_transactions(30)
    for end in (producer.commit_transaction, producer.abort_transaction, producer.commit_transaction):
        producer.begin_transaction()
        for number in range(5_000):
            producer.produce(topic, b"%d" % number, b"key", 7 if number % 2 else number % (partitions - 1))
        assert producer.flush(30) == 0
        end(30)
    source = sl.kafka(topic, servers=kafka.address, value=sl.raw(), metadata=KNOWN, until="latest")
    found = alike(spark, source, monkeypatch)
    assert found.height == 10_000
    assert found["partition"].n_unique() == partitions - 1
    frame = source.table(source.extent(spark), spark)
    assert frame is not None
    assert frame.rdd.getNumPartitions() <= 2 * spark.sparkContext.defaultParallelism


def test_records_deleted_from_one_of_many_partitions_are_reported_as_by_spark(
    spark: SparkSession, kafka: Service, new_topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = new_topic(partitions=40)
    producer = Producer({"bootstrap.servers": kafka.address})
    for number in range(4_000):
        producer.produce(topic, b"%d" % number, partition=number % 40)
    assert producer.flush(30) == 0
    strict = sl.kafka(topic, servers=kafka.address, value=sl.raw(), until="latest")
    extent = strict.extent(spark)
    admin = AdminClient({"bootstrap.servers": kafka.address})
    for future in admin.delete_records([TopicPartition(topic, 3, 60)]).values():
        future.result(30)
    lossy = sl.kafka(topic, servers=kafka.address, value=sl.raw(), until="latest", on_lost="continue")
    tables = strict.table(extent, spark), lossy.table(extent, spark)
    assert tables[0] is not None
    assert tables[1] is not None
    with pytest.raises(Py4JJavaError, match="may have been lost"):
        tables[0].toArrow()
    rows = as_crossed(tables[1].toArrow().to_batches(), {}, lossy.alone)
    assert rows.height == 4_000 - 60
    assert rows.filter(pl.col("partition") == f"{topic}-3")["offset"].to_list() == [*range(60, 100)]


def test_a_job_over_many_partitions_reads_each_record_once_in_small_batches(
    spark: SparkSession, kafka: Service, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(partitions=40)
    producer = Producer({"bootstrap.servers": kafka.address})
    source = sl.kafka(topic, servers=kafka.address, value=sl.json("n long"), metadata=KNOWN, records_per_batch=1_500)
    totals = (
        sl.read(source).event_time("sent", sl.monotone()).key_by("part").window(sl.tumbling(minutes=1))
        .accumulate(sl.accumulating).aggregate(total=sl.sum("n"), n=sl.count(), newest=sl.max("at"))
        .write(sl.sqlite(tmp_path / "totals.db", table="totals"))
    )  # fmt: skip
    for number in range(4_000):
        producer.produce(topic, json.dumps({"n": number}).encode(), partition=number % 40, timestamp=START + number)
    assert producer.flush(30) == 0
    batches: list[int] = []
    job: Job = totals.run(
        spark,
        checkpoint=tmp_path / "job",
        available_now=True,
        listener=lambda batch: batches.append(batch.output.counts.read),
    )
    assert job.await_end(120)
    assert sum(batches) == 4_000
    assert len([each for each in batches if each]) >= 3
    job = totals.run(spark, checkpoint=tmp_path / "job")
    job.drain()
    assert job.await_end(120)
    with closing(sqlite3.connect(tmp_path / "totals.db")) as connection:
        rows: list[Any] = connection.execute("SELECT part, total, n, newest FROM totals_now").fetchall()
    assert {part: (total, n, last) for part, total, n, last in rows} == {
        part: (sum(range(part, 4_000, 40)), 100, 99) for part in range(40)
    }


@pytest.mark.parametrize("packed_first", [True, False])
def test_a_job_goes_on_the_other_way(
    packed_first: bool,
    spark: SparkSession,
    kafka: Service,
    new_topic: Callable[..., str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    topic = new_topic(partitions=2)
    producer = Producer({"bootstrap.servers": kafka.address})
    source = sl.kafka(topic, servers=kafka.address, value=sl.json("n long"), metadata=KNOWN)
    totals = (
        sl.read(source)
        .where("n % 2 = 0")  # which Spark does, once they are records again
        .event_time("sent", sl.monotone())
        .key_by("how")
        .window(sl.tumbling(minutes=1))
        .accumulate(sl.accumulating)
        .aggregate(total=sl.sum("n"), n=sl.count())
        .write(sl.sqlite(tmp_path / "totals.db", table="totals"))
    )
    for packed in (packed_first, not packed_first):
        for number in range(1_000):
            producer.produce(topic, json.dumps({"n": number}).encode(), partition=number % 2, timestamp=START + number)
        assert producer.flush(30) == 0
        with monkeypatch.context() as patched:
            if not packed:
                patched.setattr(topic_blocks, "is_enabled", lambda _: False)
            job: Job = totals.run(spark, checkpoint=tmp_path / "job", available_now=True)
            assert job.await_end(120)
        assert job.counts.read == 500
    job = totals.run(spark, checkpoint=tmp_path / "job")
    job.drain()
    assert job.await_end(120)
    with closing(sqlite3.connect(tmp_path / "totals.db")) as connection:
        rows: list[Any] = connection.execute("SELECT total, n FROM totals_now").fetchall()
    assert rows == [(2 * sum(range(0, 1_000, 2)), 1_000)]


def test_a_spark_without_the_class_reads_one_by_one(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe_topic_blocks(spark) == ""
    assert topic_blocks.is_enabled(spark)
    monkeypatch.setattr(patch, "SOURCE", "strandline.NoSuchBlocks")
    assert "topic-blocks.jar" in probe_topic_blocks(spark)
    assert not topic_blocks.is_enabled(spark)


def test_a_time_that_no_calendar_has_is_none() -> None:
    cells: dict[str, Any] = {
        "topic": "t",
        "partition": 0,
        "offset": np.array([5, 6], np.int64).tobytes(),
        "value": np.array([-1, 0], np.int32).tobytes(),
        "timestamp:sent": np.array([2**62, START], np.int64).tobytes(),
    }
    found = unpacked([pa.RecordBatch.from_pydict({f"{PACKED}{name}": [cell] for name, cell in cells.items()})])
    assert found["sent"].dt.timestamp("ms").to_list() == [None, START]
    assert found.select("partition", "offset", "value").rows() == [("t-0", 5, None), ("t-0", 6, b"")]
