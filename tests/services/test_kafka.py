"""The Kafka broker, through its usual client."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from strandline.errors import ServiceError, SetupError
from strandline.services import kafka as module
from strandline.services.kafka import FROM_SPARK, Kafka, broker_jars, class_path
from strandline.services.processes import birth_of
from strandline.services.service import Place, Service, Standing
from strandline.services.topics import Topic, create_topics, topic

NewTopic = Callable[..., str]


def send(broker: Service, name: str, values: list[str], at: int | None = None) -> None:
    producer = Producer({"bootstrap.servers": broker.address, "linger.ms": 1, "acks": "all"})
    for value in values:
        if at is None:
            producer.produce(name, value.encode(), partition=0)
        else:
            producer.produce(name, value.encode(), partition=0, timestamp=at)
    assert producer.flush(30) == 0


def received(broker: Service, name: str, count: int) -> list[str]:
    """The first records of partition 0, read committed."""
    settings = {"bootstrap.servers": broker.address, "group.id": f"reader of {name}", "enable.auto.commit": "false"}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(name, 0, 0)])
    values: list[str] = []
    give_up = time.monotonic() + 30
    while len(values) < count and time.monotonic() < give_up:
        for message in consumer.consume(count - len(values), timeout=1):
            value = message.value()
            if message.error() is None and value is not None:
                values.append(value.decode())
    consumer.close()
    return values


def test_the_broker_is_pinned_by_content_and_all_of_one_version() -> None:
    jars = broker_jars()
    assert {len(jar.sha256) for jar in jars} == {64}
    assert len({jar.file for jar in jars}) == len(jars)
    assert {jar.version for jar in jars if jar.group == "org.apache.kafka"} == {Kafka().version}
    assert Kafka().version.startswith("4.")


def test_its_class_path_names_each_package_once() -> None:
    files = [Path(path).name for path in class_path().split(os.pathsep)]
    assert len(files) == len(set(files)) == len(broker_jars()) + len(FROM_SPARK)


def test_a_missing_package_in_sparks_wheel_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_spark_jars", lambda: tmp_path)
    with pytest.raises(SetupError, match="Spark's wheel lacks scala-library"):
        class_path()


def test_a_port_without_the_kafka_protocol_is_not_a_broker(registry: Service) -> None:
    assert not Kafka().answers(Place(Path("/"), (registry.port, 1)))


@pytest.mark.parametrize("written", ["", ":3", "a:", "a:b", "a:0", "a:-1"])
def test_an_invalid_topic_is_refused(written: str) -> None:
    with pytest.raises(ServiceError, match="not a topic|needs a name"):
        topic(written)


def test_a_topic_may_be_given_with_or_without_partitions() -> None:
    assert (topic("scores"), topic("scores:4")) == (Topic("scores", 2), Topic("scores", 4))


@pytest.mark.services
def test_sent_records_are_received(kafka: Service, new_topic: NewTopic) -> None:
    name = new_topic(partitions=1)
    values = [f"score {number}" for number in range(1000)]
    send(kafka, name, values)
    assert received(kafka, name, 1000) == values


@pytest.mark.services
def test_a_transaction_is_seen_whole_or_not_at_all(kafka: Service, new_topic: NewTopic) -> None:
    name = new_topic(partitions=1)
    producer = Producer({"bootstrap.servers": kafka.address, "transactional.id": name})
    producer.init_transactions(30)
    for value, end in (("lost", producer.abort_transaction), ("kept", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(name, value.encode(), partition=0)
        end(30)
    assert received(kafka, name, 1) == ["kept"]


@pytest.mark.services
def test_a_restart_keeps_port_and_records_whether_stopped_or_killed(kafka: Service, new_topic: NewTopic) -> None:
    name = new_topic(partitions=1)
    address = kafka.address
    for number, end in enumerate((kafka.stop, kafka.kill), 1):
        send(kafka, name, [f"before {number}"])
        assert end()
        assert kafka.start()
        assert kafka.address == address
    assert received(kafka, name, 2) == ["before 1", "before 2"]


@pytest.mark.services
def test_records_with_any_timestamp_are_accepted(kafka: Service, new_topic: NewTopic) -> None:
    name = new_topic(partitions=1)
    send(kafka, name, ["long ago"], at=1)
    send(kafka, name, ["in a hundred years"], at=4_900_000_000_000)
    assert received(kafka, name, 2) == ["long ago", "in a hundred years"]


@pytest.mark.services
def test_a_topic_is_created_once_and_never_by_a_typo(kafka: Service, new_topic: NewTopic) -> None:
    name = new_topic()
    assert create_topics(kafka.address, Topic(name), Topic(f"{name}-more")) == [f"{name}-more"]
    with pytest.raises(ServiceError, match="was not created"):
        create_topics(kafka.address, Topic("no/topic"))
    # A producer's question about a topic makes it, where the broker is set up so.
    producer = Producer({"bootstrap.servers": kafka.address})
    for _ in range(2):
        assert producer.list_topics(f"{name}-typo", timeout=10).topics[f"{name}-typo"].error is not None


@pytest.mark.services
def test_a_start_of_a_running_broker_does_nothing(kafka: Service) -> None:
    pid = kafka.pid
    assert not kafka.start()
    assert kafka.pid == pid
    assert kafka.ready()


@pytest.mark.services
def test_it_listens_on_loopback_only(kafka: Service) -> None:
    listening = {
        line.split()[1].split(":")[0]
        for table in (Path(f"/proc/{kafka.pid}/net/tcp"), Path(f"/proc/{kafka.pid}/net/tcp6"))
        for line in table.read_text().splitlines()[1:]
        if line.split()[3] == "0A" and int(line.split()[1].split(":")[1], 16) == kafka.port
    }
    assert listening <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert listening


@pytest.mark.services
def test_a_stopped_broker_leaves_no_process_and_no_open_port(kafka: Service) -> None:
    pid = kafka.pid
    assert pid is not None
    assert kafka.stop()
    try:
        assert birth_of(pid) is None
        assert kafka.status().standing is Standing.STOPPED
        with pytest.raises(KafkaException):
            Consumer({"bootstrap.servers": kafka.address, "group.id": "none"}).list_topics(timeout=1)
    finally:
        kafka.start()
