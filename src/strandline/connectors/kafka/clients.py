"""Clients of a broker that write all or nothing, and read what was written so, up to the end."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from strandline.connectors.kafka import groups
from strandline.connectors.kafka.security import Security
from strandline.errors import SetupError, SinkError, SinkUnavailable

ANSWER_WITHIN_SECONDS: Final = 30.0
_FENCED: Final = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
_AWAY: Final = ("_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE")

Ends = Mapping[str, Mapping[str, int]]
"""By topic and partition, an offset."""


def require_client() -> None:
    if not groups.is_installed():
        raise SetupError("confluent-kafka is not installed", hint='pip install "strandline[kafka]"')


class Writer:
    """A producer whose every batch is a transaction. Another of the same name ends what this one has open."""

    def __init__(self, servers: str, security: Security, name: str) -> None:
        require_client()
        from confluent_kafka import KafkaException, Producer

        options = {"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 5, "log_level": 0}
        self._producer = Producer({**options, **security.to_librdkafka()})
        self._name = name
        try:
            self._producer.init_transactions(ANSWER_WITHIN_SECONDS)
        except KafkaException as problem:
            raise self._failed(problem) from None

    def write(self, records: Iterable[Mapping[str, Any]], before_commit: Callable[[], None] | None = None) -> None:
        """All of these records, or none; each as the producer takes it: topic, value, key, headers, partition."""
        from confluent_kafka import KafkaException

        refused: list[str] = []

        def delivered(problem: Any, _: Any) -> None:
            if problem is not None:
                refused.append(str(problem))

        try:
            self._producer.begin_transaction()
            for record in records:
                while True:
                    try:
                        self._producer.produce(**record, on_delivery=delivered)
                        break
                    except BufferError:
                        self._producer.poll(1)
                self._producer.poll(0)
            self._producer.flush(ANSWER_WITHIN_SECONDS)
            if before_commit is not None:
                before_commit()
            self._commit()
        except KafkaException as problem:
            self._abort()
            raise self._failed(problem, *refused[:1]) from None

    def _commit(self) -> None:
        """Asked again while the broker cannot say; it knows then whether it has been done already."""
        from confluent_kafka import KafkaException

        end = time.monotonic() + ANSWER_WITHIN_SECONDS
        while True:
            try:
                self._producer.commit_transaction(ANSWER_WITHIN_SECONDS)
            except KafkaException as problem:
                if not problem.args[0].retriable() or time.monotonic() > end:
                    raise
            else:
                return

    def _abort(self) -> None:
        from confluent_kafka import KafkaException

        # If even that fails, the broker ends it by itself, or the next of this name does.
        with suppress(KafkaException):
            self._producer.abort_transaction(ANSWER_WITHIN_SECONDS)

    def _failed(self, problem: Any, *more: str) -> SinkError:
        fault = problem.args[0]
        if fault.name() in _FENCED:
            return SinkError("another process has taken this over", detail=self._name, hint="let only one run")
        told = "; ".join([fault.str(), *more])
        if fault.retriable() or fault.name() in _AWAY:
            return SinkUnavailable("the broker does not answer", detail=told)
        return SinkError("the broker did not take a transaction", detail=told)

    def close(self) -> None:
        self._producer.flush(ANSWER_WITHIN_SECONDS)


@contextmanager
def reader(servers: str, security: Security) -> Iterator[Any]:
    """A consumer of no group, which sees only what was committed and is told of the end of a partition."""
    require_client()
    from confluent_kafka import Consumer

    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": "strandline-reads", "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest",
        # The end is what is waited for here, and a broker tells of it only after this time.
        "fetch.wait.max.ms": 20, "log_level": 0, **security.to_librdkafka(),
    })  # fmt: skip
    try:
        yield consumer
    finally:
        consumer.close()


def partitions(consumer: Any, topic: str) -> list[int]:
    """The partitions of a topic; none if there is no such topic."""
    from confluent_kafka import KafkaException

    try:
        told = consumer.list_topics(topic, ANSWER_WITHIN_SECONDS).topics[topic]
    except KafkaException as problem:
        raise SinkUnavailable("the broker does not answer", detail=problem.args[0].str()) from None
    return [] if told.error is not None else sorted(told.partitions)


def ends(consumer: Any, topics: Iterable[str]) -> dict[str, dict[str, int]]:
    """Where topics end."""
    from confluent_kafka import TopicPartition

    return {
        topic: {
            str(number): consumer.get_watermark_offsets(TopicPartition(topic, number), ANSWER_WITHIN_SECONDS)[1]
            for number in partitions(consumer, topic)
        }
        for topic in topics
    }


def records_from(consumer: Any, starts: Ends) -> Iterator[Any]:
    """Every committed record from these offsets to where the partitions end now.

    Transactions that others have open hide what is behind them; that is waited for, and refused if it takes too long.
    """
    from confluent_kafka import KafkaError, TopicPartition

    until = {(topic, int(number)): at for topic, each in ends(consumer, starts).items() for number, at in each.items()}
    places = {(topic, int(number)): at for topic, each in starts.items() for number, at in each.items()}
    open_ = {place for place, at in places.items() if until.get(place, 0) > at}
    consumer.assign([TopicPartition(*place, places[place]) for place in sorted(open_)])
    patience = time.monotonic() + 2 * ANSWER_WITHIN_SECONDS
    while open_:
        record = consumer.poll(1)
        if record is None:
            if time.monotonic() > patience:
                raise SinkError(
                    f"{', '.join(sorted({topic for topic, _ in open_}))} cannot be read to the end",
                    hint="another producer has a transaction open; try again when it has ended",
                )
            continue
        place = (record.topic(), record.partition())
        if record.error() is None:
            patience = time.monotonic() + 2 * ANSWER_WITHIN_SECONDS
            yield record
            if record.offset() + 1 >= until[place]:
                open_.discard(place)
        elif record.error().code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - it has no other name
            if record.offset() >= until[place]:
                open_.discard(place)
        else:
            raise SinkError("the broker did not give a record", detail=record.error().str())
    consumer.unassign()
