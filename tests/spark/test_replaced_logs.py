"""Logs that are deleted and made anew under their old names, at a real broker and in real tables."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

import strandline as sl
from strandline.checkpoint.job_folder import Checkpoint
from strandline.checkpoint.log_identities import LOGS, read_identities
from strandline.errors import CheckpointMismatch, LogReplaced, SetupError
from strandline.plan.compile import to_stages
from strandline.services.service import Service
from strandline.services.topics import Topic, create_topics
from strandline.spark.progress import State
from strandline.spark.sources import log_watch
from strandline.spark.sources.log_watch import LogWatch
from tests.spark.test_kafka import START, VALUE, record, send, totals, until

pytestmark = pytest.mark.spark
pytest_plugins = ["strandline.testing.services"]


def make_anew(servers: str, topic: str, records: int) -> None:
    """Delete a topic and create it again with other records."""
    delete(servers, topic)
    until(lambda: bool(create_topics(servers, Topic(topic, 1))), 30)
    fill(servers, topic, records)


def delete(servers: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.delete_topics([topic], operation_timeout=30)[topic].result(30)
    until(lambda: topic not in admin.list_topics(timeout=10).topics, 30)


def fill(servers: str, topic: str, records: int) -> None:
    send(servers, topic, [record("red", 1, START + number) for number in range(records)], 1)


@pytest.fixture
def topic(kafka: Service, new_topic: Callable[..., str]) -> str:
    return new_topic(1)


def watch(home: Checkpoint, source: Any, *, has_read: bool = True) -> LogWatch:
    """Start a job: its folder, and an entry in Spark's log if it has read."""
    pipeline = totals(source, home.folder.parent / "totals.db")
    stages = to_stages(pipeline.root)
    home.claim(pipeline.root, stages)
    found = LogWatch.begun(home, stages)
    if has_read:
        entry = home.spark / "offsets" / "0"
        entry.parent.mkdir(parents=True, exist_ok=True)
        entry.write_text('v1\n{"batchTimestampMs": 1}\n{}\n{"tick": 0}')
    return found


@pytest.mark.services
def test_a_topic_that_was_made_anew_is_refused_at_the_next_start(kafka: Service, topic: str, tmp_path: Path) -> None:
    home, source = Checkpoint(tmp_path / "job"), sl.kafka(topic, servers=kafka.address, value=VALUE)
    watch(home, source)
    known = read_identities(home.folder)
    watch(home, source)
    assert read_identities(home.folder) == known
    assert list(known[0]) == [topic]
    make_anew(kafka.address, topic, 1)
    with pytest.raises(LogReplaced, match=f"{topic} was deleted and made anew") as refused:
        watch(home, source)
    assert known[0][topic] in refused.value.detail
    assert "new checkpoint folder" in refused.value.hint
    # As the hint says: the records are the same, and the identity is that of now.
    (home.folder / LOGS).unlink()
    watch(home, source)
    assert read_identities(home.folder)[0][topic] != known[0][topic]


@pytest.mark.services
def test_a_topic_that_was_made_anew_before_the_first_batch_is_read(kafka: Service, topic: str, tmp_path: Path) -> None:
    home, source = Checkpoint(tmp_path / "job"), sl.kafka(topic, servers=kafka.address, value=VALUE)
    watch(home, source, has_read=False)
    make_anew(kafka.address, topic, 1)
    watch(home, source, has_read=False)


@pytest.mark.services
def test_a_missing_topic_is_refused_before_the_job_starts(
    kafka: Service, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_watch, "_APPEARS_WITHIN_SECONDS", 0.0)
    with pytest.raises(SetupError, match="not-there does not exist"):
        watch(Checkpoint(tmp_path / "one"), sl.kafka("not-there", servers=kafka.address, value=VALUE))
    home, source = Checkpoint(tmp_path / "job"), sl.kafka(topic, servers=kafka.address, value=VALUE)
    watch(home, source)
    delete(kafka.address, topic)
    with pytest.raises(LogReplaced, match=f"{topic} no longer exists"):
        watch(home, source)


@pytest.mark.services
def test_topics_of_a_pattern_may_come_and_go_but_not_change(kafka: Service, topic: str, tmp_path: Path) -> None:
    home = Checkpoint(tmp_path / "job")
    source = sl.kafka(f"{topic}.*", servers=kafka.address, value=VALUE, pattern=True)
    watch(home, source)
    create_topics(kafka.address, Topic(f"{topic}-two", 1))
    until(lambda: len((watch(home, source), read_identities(home.folder))[1][0]) == 2, 30)
    delete(kafka.address, f"{topic}-two")
    watch(home, source)
    make_anew(kafka.address, topic, 1)
    with pytest.raises(LogReplaced, match=f"{topic} was deleted"):
        watch(home, source)


@pytest.mark.services
def test_a_broker_that_does_not_answer_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.connectors.kafka.topic_ids._ANSWER_WITHIN_SECONDS", 0.5)
    home = Checkpoint(tmp_path / "job")
    watch(home, sl.kafka("scores", servers="127.0.0.1:1", value=VALUE))
    assert not (home.folder / LOGS).exists()


@pytest.mark.slow
def test_a_delta_table_that_was_made_anew_is_refused(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    place = str(tmp_path / "orders")
    rows = pl.DataFrame({"team": ["red"], "score": [1], "at": [START]})
    deltalake.write_deltalake(place, rows)
    home = Checkpoint(tmp_path / "job")
    source = sl.delta_table(place, "team string, score long, at timestamp")
    watch(home, source)
    (tmp_path / "orders").rename(tmp_path / "old")
    deltalake.write_deltalake(place, rows)
    with pytest.raises(LogReplaced, match="delta_table.* was deleted and made anew"):
        watch(home, source)


def test_a_damaged_file_of_identities_is_told(tmp_path: Path) -> None:
    (tmp_path / LOGS).write_text('{"version": 2, "sources": {}}')
    with pytest.raises(CheckpointMismatch, match="cannot read .*logs.json"):
        read_identities(tmp_path)


@pytest.mark.services
def test_a_job_stops_when_its_topic_is_made_anew_and_is_refused_afterwards(
    kafka: Service, topic: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new topic is filled past the old offset, so that Spark sees nothing odd."""
    monkeypatch.setattr(log_watch, "CHECK_SECONDS", 0.5)
    fill(kafka.address, topic, 100)
    pipeline = totals(sl.kafka(topic, servers=kafka.address, value=VALUE), tmp_path / "totals.db")
    with pipeline.run(spark, checkpoint=tmp_path / "job", heartbeat_seconds=0.5) as job:
        until(lambda: job.counts.read == 100)
        begun = time.monotonic()
        make_anew(kafka.address, topic, 150)
        with pytest.raises(LogReplaced, match=f"{topic} (was deleted and made anew|no longer exists)"):
            assert not job.await_end(60)
        assert job.status.state is State.FAILED
        assert topic in job.status.problem
        assert time.monotonic() - begun < 60
    with pytest.raises(LogReplaced, match=f"{topic} was deleted and made anew"):
        pipeline.run(spark, checkpoint=tmp_path / "job")


@pytest.mark.services
def test_a_folder_of_before_gets_the_identity_at_its_next_start(
    kafka: Service, topic: str, spark: SparkSession, tmp_path: Path
) -> None:
    fill(kafka.address, topic, 100)
    pipeline = totals(sl.kafka(topic, servers=kafka.address, value=VALUE), tmp_path / "totals.db")
    with pipeline.run(spark, checkpoint=tmp_path / "job", available_now=True) as job:
        assert job.await_end(120)
    known = json.loads((tmp_path / "job" / LOGS).read_text())
    (tmp_path / "job" / LOGS).unlink()
    with pipeline.run(spark, checkpoint=tmp_path / "job", available_now=True) as job:
        assert job.await_end(120)
        assert job.counts.read == 0
    assert json.loads((tmp_path / "job" / LOGS).read_text()) == known
    make_anew(kafka.address, topic, 150)
    with pytest.raises(LogReplaced, match=f"{topic} was deleted and made anew"):
        pipeline.run(spark, checkpoint=tmp_path / "job", available_now=True)
