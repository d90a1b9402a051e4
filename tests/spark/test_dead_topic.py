"""Dead letters of a real job in a topic of their own: it goes on, they go back, and are counted once."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

import strandline as sl
from strandline.cli.actions.dlq import sources_of
from strandline.letters.redrive import redrive
from strandline.services.service import Service
from strandline.spark.job import Job

pytestmark = [pytest.mark.spark, pytest.mark.services]
pytest_plugins = ["strandline.testing.services"]

LIMIT = 5


def picky(row: dict[str, int]) -> list[dict[str, int]]:
    """Fails on large numbers until the limit is raised, as code does until it is mended."""
    if row["n"] > LIMIT:
        raise ValueError(f"{row['n']} is too much")
    return [row]


def mended(row: dict[str, int]) -> list[dict[str, int]]:
    return [row]


def test_records_that_failed_go_back_when_the_code_is_mended_and_count_once(
    spark: SparkSession, kafka: Service, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic, dead = new_topic(partitions=2), new_topic()
    producer = Producer({"bootstrap.servers": kafka.address})
    for n in range(10):
        producer.produce(topic, b'{"n": %d, "card": "4111-%d"}' % (n, n), key=b"%d" % n)
    producer.produce(topic, b"broken 4111-x")
    assert producer.flush(30) == 0
    source = sl.kafka(topic, servers=kafka.address, value=sl.json("n long, card string"))
    letters = sl.dead_topic(dead, servers=kafka.address, mask=["card"])

    def pipeline(name: str) -> sl.Pipeline:
        rows = sl.read(source).flat_map(picky if name == "first" else mended, "n long")
        return rows.write(sl.sqlite(tmp_path / f"{name}.db", table="numbers"), dead=letters)

    def run(name: str) -> list[int]:
        job: Job = pipeline(name).run(spark, checkpoint=tmp_path / name, available_now=True)
        assert job.await_end(120)
        with closing(sqlite3.connect(tmp_path / f"{name}.db")) as connection:
            assert not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'numbers_dead'").fetchone()
            return sorted(n for (n,) in connection.execute("SELECT n FROM numbers"))

    assert run("first") == [0, 1, 2, 3, 4, 5]
    found = letters.letters().read()
    assert found.group_by("reason").len().sort("reason").rows() == [("function_failed", 4), ("undecodable", 1)]
    assert "4111" not in str(found.to_dicts())
    assert set(found["source"]) == {source.name}
    failed = found.filter(reason="function_failed")["id"]
    report = redrive(letters.letters(), sources_of(pipeline("first").root), failed)
    assert sorted(report.sent) == sorted(failed)
    assert letters.letters().read().filter(state="redriven").height == 4
    assert run("second") == sorted([*range(10), 6, 7, 8, 9])
