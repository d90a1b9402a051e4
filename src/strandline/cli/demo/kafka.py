"""Run the demo over Kafka: start a broker, and send the generator's records by their schedule.

Record n of a partition has offset n, so that a stopped run resumes where the topic ends. A record's timestamp is its
scheduled time, so that the start of the stream can be read from the topic.
"""

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import numpy as np

import strandline as sl
from strandline.connectors.kafka import Kafka
from strandline.connectors.scores import Scores, records, schedule
from strandline.errors import ServiceError
from strandline.services.catalogue import service
from strandline.services.topics import Topic, create_topics
from strandline.spark.job import Job
from strandline.spark.launch.jars import fetch_jars

TOPIC: Final = "scores"
GROUP: Final = "strandline-demo"

_POLL_SECONDS: Final = 0.1
_TIMEOUT_SECONDS: Final = 30


class KafkaLog:
    """A topic of a broker that runs as long as the demo. Its data stay in the run's folder."""

    def __init__(self, scores: Scores, home: Path, say: Callable[[str], None]) -> None:
        self._scores, self._say = scores, say
        self._broker = service("kafka", home, leashed=True)

    def __enter__(self) -> Self:
        fetch_jars(lambda jar: self._say(f"Fetched: {jar}"))
        self._broker.start(say=lambda what: self._say(f"Kafka: {what}"))
        try:
            create_topics(self._broker.address, Topic(TOPIC, self._scores.width))
        except BaseException:
            self._broker.stop()
            raise
        self._say(f"Kafka runs at {self._broker.address}; the topic is {TOPIC!r}, the consumer group {GROUP!r}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._broker.stop()

    @property
    def source(self) -> Kafka:
        return topic_of(self._scores, self._broker.address)

    def await_end(self, job: Job) -> None:
        """Send records by their schedule once the job runs, and drain the job when it has read them all."""
        feed = Feed(self._scores, self._broker.address)
        try:
            while not job.await_end(_POLL_SECONDS):
                last = job.last
                if last is not None and feed.send_due() and last.offsets.get(TOPIC) == feed.ends:
                    job.drain()
        finally:
            feed.close()

    def records(self, job: Job) -> Iterator[bytes]:  # noqa: ARG002 - the topic holds every record
        return every_value(self._broker.address, self._scores.width)


def topic_of(scores: Scores, servers: str) -> Kafka:
    """Return the topic as a source of the pipeline."""
    return sl.kafka(TOPIC, servers=servers, value=scores.decoder, group=GROUP)


class Feed:
    """Sends records by their schedule. An idempotent producer keeps a record's offset equal to its number."""

    def __init__(self, scores: Scores, servers: str) -> None:
        from confluent_kafka import Producer

        self._scores = scores
        self._schedules = [schedule(scores, number) for number in range(scores.width)]
        self._next = _ends(servers, scores.width)
        self._origin = _origin(servers, self._next)
        settings = {"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 3}
        self._producer = Producer(settings)
        self._problem: Any = None

    @property
    def ends(self) -> dict[str, int]:
        """The end offset of each partition once everything is sent."""
        return {str(number): len(moments) for number, moments in enumerate(self._schedules)}

    def send_due(self) -> bool:
        """Send the records that are due by now. Return True once all are sent."""
        now = time.time_ns() // 1_000_000
        if self._origin is None:
            self._origin = now
        for number, moments in enumerate(self._schedules):
            due = int(np.searchsorted(moments, now - self._origin, side="right"))
            self._send(number, self._next[number], due)
            self._next[number] = max(due, self._next[number])
        if self._producer.poll(0) and self._problem is not None:
            raise ServiceError("a record did not reach the topic", detail=str(self._problem))
        return self._next == [len(moments) for moments in self._schedules]

    def _send(self, number: int, start: int, end: int) -> None:
        origin = self._origin or 0
        sent = records(self._scores, number, start, end, origin) if end > start else []
        for at, value in zip(self._schedules[number][start:end], sent, strict=True):
            self._producer.produce(
                TOPIC, value, f"court-{number}", number, timestamp=origin + int(at), on_delivery=self._delivered
            )

    def _delivered(self, problem: Any, _: Any) -> None:
        self._problem = self._problem or problem

    def close(self) -> None:
        """Wait for records in flight."""
        self._producer.flush(_TIMEOUT_SECONDS)


def every_value(servers: str, partitions: int) -> Iterator[bytes]:
    """Read the value of every record with a consumer that shares nothing with the job."""
    ends = _ends(servers, partitions)
    with _Reader(servers) as reader:
        for number, end in enumerate(ends):
            for record in reader.read(number, end):
                yield record.value() or b""


def _ends(servers: str, partitions: int) -> list[int]:
    from confluent_kafka import TopicPartition

    with _Reader(servers) as reader:
        places = [TopicPartition(TOPIC, number) for number in range(partitions)]
        return [reader.consumer.get_watermark_offsets(place, _TIMEOUT_SECONDS)[1] for place in places]


def _origin(servers: str, ends: list[int]) -> int | None:
    """Return when the stream started: the timestamp of any partition's first record; None if there is none yet."""
    first = next((number for number, end in enumerate(ends) if end), None)
    if first is None:
        return None
    with _Reader(servers) as reader:
        return int(next(reader.read(first, 1)).timestamp()[1])


class _Reader:
    """A consumer that joins no group and commits nothing."""

    def __init__(self, servers: str) -> None:
        from confluent_kafka import Consumer

        self.consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": f"{GROUP}-recount", "enable.auto.commit": False}
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.consumer.close()

    def read(self, partition: int, end: int) -> Iterator[Any]:
        """Read the records of a partition before offset `end`."""
        from confluent_kafka import TopicPartition

        self.consumer.assign([TopicPartition(TOPIC, partition, 0)])
        found = 0
        while found < end:
            batch = self.consumer.consume(min(end - found, 1_000), _TIMEOUT_SECONDS)
            if not batch or any(record.error() is not None for record in batch):
                raise ServiceError(f"partition {partition} could not be read to its end", detail=f"{found} of {end}")
            found += len(batch)
            yield from batch
