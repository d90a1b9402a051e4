"""Clients of a broker that write all or nothing, and read what was written so, up to the end."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Final

from strandline.connectors.kafka import consumer_groups
from strandline.connectors.kafka.security import Security
from strandline.errors import SetupError, SinkError, SinkUnavailable

ANSWER_WITHIN_SECONDS: Final = 30.0
FIRST_ANSWER_WITHIN_SECONDS: Final = 5.0
_LARGEST: Final = 100_000_000
"""The bytes of a record that a client sends; how many a topic takes is the broker's to say."""
_ELECTING: Final = ("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION")
_FENCED: Final = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
_AWAY: Final = (
    "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_PURGE_QUEUE",
    "_PURGE_INFLIGHT", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "UNKNOWN",  # said of a commit that another producer of the name comes between: done or not, the ledger tells
)  # fmt: skip
_silent: Final = logging.getLogger("strandline.kafka.client")
"""What a client says of its own accord; all of it comes as an error too."""
_silent.setLevel(logging.CRITICAL + 1)

Ends = Mapping[str, Mapping[str, int]]
"""By topic and partition, an offset."""


def require_client() -> None:
    if not consumer_groups.is_installed():
        raise SetupError("confluent-kafka is not installed", hint='pip install "strandline[kafka]"')


class TakenOver(SinkError):
    """Another producer of the same name has begun: what this one had open is ended, one way or the other."""


class Writer:
    """A producer whose every batch is a transaction. Another of the same name ends what this one has open."""

    def __init__(
        self, servers: str, security: Security, name: str, options: Mapping[str, str | int] | None = None
    ) -> None:
        require_client()
        from confluent_kafka import KafkaException, Producer

        mine: dict[str, str | int | bool] = {
            "bootstrap.servers": servers, "transactional.id": name, "acks": "all", "linger.ms": 5,
            "delivery.report.only.error": True, "log_level": 0, "message.max.bytes": _LARGEST,
        }  # fmt: skip
        self._producer = Producer({**mine, **(options or {}), **security.to_librdkafka()}, logger=_silent)
        self._name = name
        try:
            # Asked for the coordinator before it is connected, the client waits half a second before it asks again. The
            # first answer comes by the connection of the address that was said, the second by that of a broker.
            for within in (FIRST_ANSWER_WITHIN_SECONDS, ANSWER_WITHIN_SECONDS):
                self._producer.list_topics("__transaction_state", within)
            self._producer.init_transactions(ANSWER_WITHIN_SECONDS)
        except KafkaException as problem:
            raise self._failed(problem) from None

    def write(self, records: Iterable[Mapping[str, Any]], before_commit: Callable[[], None] | None = None) -> None:
        """All of these records, or none; each as the producer takes it: topic, value, key, headers, partition."""
        from confluent_kafka import KafkaException

        refused: list[str] = []
        try:
            self._begin(records, refused)
            if before_commit is not None:
                before_commit()
            self._commit()
        except KafkaException as problem:
            failed = self._failed(problem, *refused[:1])
            # One that is out of reach is not waited for again: the next producer of this name ends what is open.
            if not isinstance(failed, SinkUnavailable | TakenOver):
                self._abort()
            raise failed from None

    def _begin(self, records: Iterable[Mapping[str, Any]], refused: list[str]) -> None:
        """Sends records in a transaction, until all are there or one is refused, which is told."""

        def delivered(problem: Any, _: Any) -> None:
            if problem is not None:
                refused.append(str(problem))

        producer = self._producer
        producer.begin_transaction()
        for number, record in enumerate(records):
            while True:
                try:
                    producer.produce(**record, on_delivery=delivered)
                    break
                except BufferError:
                    producer.poll(1)
            if not number % 1_000:
                producer.poll(0)
        end = time.monotonic() + ANSWER_WITHIN_SECONDS
        while len(producer) and not refused and time.monotonic() < end:
            producer.poll(0.02)

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
            return TakenOver("another process has taken this over", detail=self._name, hint="let only one run")
        told = "; ".join([fault.str(), *more])
        if is_away(fault):
            return SinkUnavailable("the broker does not answer", detail=told)
        return SinkError("the broker did not take a transaction", detail=told)

    def close(self) -> None:
        from confluent_kafka import KafkaException

        with suppress(KafkaException):
            self._producer.purge()


def is_away(fault: Any) -> bool:
    """Whether what a client says will pass."""
    return bool(fault.retriable()) or fault.name() in _AWAY


@contextmanager
def reader(servers: str, security: Security) -> Iterator[Any]:
    """A consumer of no group, which sees only what was committed and is told of the end of a partition."""
    require_client()
    from confluent_kafka import Consumer

    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": "strandline-reads", "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest",
        # The end is what is waited for here, and a broker tells of it only after this time.
        "fetch.wait.max.ms": 20, "reconnect.backoff.max.ms": 1_000, "log_level": 0, **security.to_librdkafka(),
    })  # fmt: skip
    try:
        yield consumer
    finally:
        consumer.close()


def admin_api() -> Any:
    """The client's module for looking after topics, whose types are not told."""
    require_client()
    return import_module("confluent_kafka.admin")


def admin_of(servers: str, security: Security) -> Any:
    """A client for looking after topics."""
    options = {"bootstrap.servers": servers, "log_level": 0, **security.to_librdkafka()}
    return admin_api().AdminClient(options, logger=_silent)


def partitions(client: Any, topic: str) -> list[int]:
    """The partitions of a topic; none if there is no such topic."""
    from confluent_kafka import KafkaException

    try:
        told = client.list_topics(topic, ANSWER_WITHIN_SECONDS).topics[topic]
    except KafkaException as problem:
        raise SinkUnavailable("the broker does not answer", detail=problem.args[0].str()) from None
    return [] if told.error is not None else sorted(told.partitions)


def ends(admin: Any, topics: Iterable[str]) -> dict[str, dict[str, int]]:
    """Where topics end, with all that is in transactions still open: a reader of what was committed is not told."""
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

    names = list(topics)
    places = [TopicPartition(topic, number) for topic in names for number in partitions(admin, topic)]
    found: dict[str, dict[str, int]] = {topic: {} for topic in names}
    if not places:
        return found
    end = time.monotonic() + FIRST_ANSWER_WITHIN_SECONDS
    while True:
        asked = admin.list_offsets(
            dict.fromkeys(places, admin_api().OffsetSpec.latest()),
            isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ANSWER_WITHIN_SECONDS,
        )  # fmt: skip
        try:
            for place, told in asked.items():
                found[place.topic][str(place.partition)] = told.result(ANSWER_WITHIN_SECONDS).offset
        except KafkaException as problem:
            fault = problem.args[0]
            # A broker tells of a topic that was made just now a moment before it leads it.
            if fault.name() not in _ELECTING or time.monotonic() > end:
                raise SinkUnavailable("the broker does not answer", detail=fault.str()) from None
            time.sleep(0.02)
        else:
            return found


def records_from(consumer: Any, starts: Ends, until: Ends) -> Iterator[Any]:
    """Every committed record from these offsets to those.

    Transactions that others have open hide what is behind them; that is waited for, and told if it takes too long.
    """
    from confluent_kafka import KafkaError, TopicPartition

    last = {(topic, int(number)): at for topic, each in until.items() for number, at in each.items()}
    places = {(topic, int(number)): at for topic, each in starts.items() for number, at in each.items()}
    open_ = {place for place, at in places.items() if last.get(place, 0) > at}
    consumer.assign([TopicPartition(*place, places[place]) for place in sorted(open_)])
    patience = time.monotonic() + 2 * ANSWER_WITHIN_SECONDS
    while open_:
        record = consumer.poll(1)
        if record is None:
            if time.monotonic() > patience:
                raise SinkUnavailable(
                    f"{', '.join(sorted({topic for topic, _ in open_}))} cannot be read to the end",
                    hint="the broker is away, or another producer has a transaction open; it is ended by its timeout",
                )
            continue
        place = (record.topic(), record.partition())
        fault = record.error()
        if fault is None:
            patience = time.monotonic() + 2 * ANSWER_WITHIN_SECONDS
            if record.offset() < last[place]:
                yield record
            if record.offset() + 1 >= last[place]:
                open_.discard(place)
        elif fault.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - it has no other name
            if record.offset() >= last[place]:
                open_.discard(place)
        elif not is_away(fault):
            raise SinkError("the broker did not give a record", detail=fault.str())
    consumer.unassign()
