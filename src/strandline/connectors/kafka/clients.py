"""Wrap the Kafka client: a transactional producer, a read-committed consumer and an admin client."""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any, Final

from strandline.connectors.kafka import consumer_groups
from strandline.connectors.kafka.security import Security
from strandline.errors import SetupError, SinkError, SinkUnavailable
from strandline.redaction import logger

ANSWER_WITHIN_SECONDS: Final = 30.0
FIRST_ANSWER_WITHIN_SECONDS: Final = 5.0
_LARGEST: Final = 100_000_000
"""The largest record that the client sends, in bytes. The topic's own limit is enforced by the broker."""
_ELECTING: Final = ("LEADER_NOT_AVAILABLE", "NOT_LEADER_FOR_PARTITION")
_FENCED: Final = ("_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
_TRANSIENT: Final = (
    "_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT", "_TRANSPORT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_PURGE_QUEUE",
    "_PURGE_INFLIGHT", "NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "UNKNOWN",  # from a commit that races another producer of the same name; the ledger shows whether it was done
)  # fmt: skip
silent_log: Final = logger("strandline.kafka.client")
"""Logger that silences the client's own messages; every one of them is raised as an error too."""
silent_log.setLevel(logging.CRITICAL + 1)

Ends = Mapping[str, Mapping[str, int]]
"""An offset by topic and partition."""


def require_client() -> None:
    if not consumer_groups.is_installed():
        raise SetupError("confluent-kafka is not installed", hint='pip install "strandline[kafka]"')


class ProducerFenced(SinkError):
    """Raised when another producer with the same transactional id has fenced this one."""


class Writer:
    """Transactional producer that writes each batch in one transaction and fences older producers of the same name."""

    def __init__(
        self, servers: str, security: Security, name: str, options: Mapping[str, str | int] | None = None
    ) -> None:
        require_client()
        from confluent_kafka import KafkaException, Producer

        defaults: dict[str, str | int | bool] = {
            "bootstrap.servers": servers, "transactional.id": name, "acks": "all", "linger.ms": 5,
            "delivery.report.only.error": True, "log_level": 0, "message.max.bytes": _LARGEST,
        }  # fmt: skip
        self._producer = Producer({**defaults, **(options or {}), **security.to_librdkafka()}, logger=silent_log)
        self._name = name
        try:
            # If the client asks for the coordinator before it is connected, it waits half a second before it asks
            # again. The first metadata request goes over the bootstrap connection, the second over a broker's own.
            for within in (FIRST_ANSWER_WITHIN_SECONDS, ANSWER_WITHIN_SECONDS):
                self._producer.list_topics("__transaction_state", within)
            self._producer.init_transactions(ANSWER_WITHIN_SECONDS)
        except KafkaException as problem:
            raise self._to_sink_error(problem) from None

    def write(self, records: Iterable[Mapping[str, Any]], before_commit: Callable[[], None] | None = None) -> None:
        """Write all of these records or none of them. Each is a mapping of `produce` arguments: topic, value, key,
        headers, partition."""
        from confluent_kafka import KafkaException

        refused: list[str] = []
        try:
            self._begin(records, refused)
            if before_commit is not None:
                before_commit()
            self._commit()
        except KafkaException as problem:
            failed = self._to_sink_error(problem, *refused[:1])
            # An unreachable broker is not asked to abort: the next producer of this name aborts what is open.
            if not isinstance(failed, SinkUnavailable | ProducerFenced):
                self._abort()
            raise failed from None

    def _begin(self, records: Iterable[Mapping[str, Any]], refused: list[str]) -> None:
        """Begin a transaction and send records until all are acknowledged or one is refused. Append the reason to
        `refused`."""

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
        """Commit the transaction and retry while the outcome is unknown; the broker knows whether it has committed
        already."""
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

        # If the abort fails too, the broker aborts at the timeout, or the next producer of this name does.
        with suppress(KafkaException):
            self._producer.abort_transaction(ANSWER_WITHIN_SECONDS)

    def _to_sink_error(self, problem: Any, *more: str) -> SinkError:
        fault = problem.args[0]
        if fault.name() in _FENCED:
            return ProducerFenced(
                "another process writes under this producer's transactional id",
                detail=self._name,
                hint="run only one of them",
            )
        detail = "; ".join([fault.str(), *more])
        if is_transient(fault):
            return SinkUnavailable("the broker does not respond", detail=detail)
        return SinkError("the broker rejected a transaction", detail=detail)

    def close(self) -> None:
        from confluent_kafka import KafkaException

        with suppress(KafkaException):
            self._producer.purge()


def is_transient(fault: Any) -> bool:
    """Whether a client error is transient."""
    return bool(fault.retriable()) or fault.name() in _TRANSIENT


@contextmanager
def reader(servers: str, security: Security) -> Iterator[Any]:
    """Yield a read-committed consumer outside any group that reports the end of each partition."""
    require_client()
    from confluent_kafka import Consumer

    consumer = Consumer({
        "bootstrap.servers": servers, "group.id": "strandline-reads", "enable.auto.commit": False,
        "isolation.level": "read_committed", "enable.partition.eof": True, "auto.offset.reset": "earliest",
        # Reads here wait for the end of a partition, which a broker reports only after this time.
        "fetch.wait.max.ms": 20, "reconnect.backoff.max.ms": 1_000, "log_level": 0, **security.to_librdkafka(),
    })  # fmt: skip
    try:
        yield consumer
    finally:
        consumer.close()


def admin_api() -> Any:
    """Return the untyped `confluent_kafka.admin` module."""
    require_client()
    return import_module("confluent_kafka.admin")


def admin_of(servers: str, security: Security) -> Any:
    """Create an admin client."""
    options = {"bootstrap.servers": servers, "log_level": 0, **security.to_librdkafka()}
    return admin_api().AdminClient(options, logger=silent_log)


def partitions(client: Any, topic: str) -> list[int]:
    """List the partitions of a topic; empty if there is no such topic.

    The request names no topic: a broker may create one that it is asked about.
    """
    from confluent_kafka import KafkaException

    try:
        metadata = client.list_topics(timeout=ANSWER_WITHIN_SECONDS).topics.get(topic)
    except KafkaException as problem:
        raise SinkUnavailable("the broker does not respond", detail=problem.args[0].str()) from None
    return [] if metadata is None or metadata.error is not None else sorted(metadata.partitions)


def ends(admin: Any, topics: Iterable[str]) -> dict[str, dict[str, int]]:
    """Return the end offsets of topics, open transactions included; a read-committed consumer does not see those."""
    from confluent_kafka import IsolationLevel, KafkaException, TopicPartition

    names = list(topics)
    places = [TopicPartition(topic, number) for topic in names for number in partitions(admin, topic)]
    found: dict[str, dict[str, int]] = {topic: {} for topic in names}
    if not places:
        return found
    end = time.monotonic() + FIRST_ANSWER_WITHIN_SECONDS
    while True:
        futures = admin.list_offsets(
            dict.fromkeys(places, admin_api().OffsetSpec.latest()),
            isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ANSWER_WITHIN_SECONDS,
        )  # fmt: skip
        try:
            for place, answer in futures.items():
                found[place.topic][str(place.partition)] = answer.result(ANSWER_WITHIN_SECONDS).offset
        except KafkaException as problem:
            fault = problem.args[0]
            # A broker lists a newly created topic a moment before it leads the topic's partitions.
            if fault.name() not in _ELECTING or time.monotonic() > end:
                raise SinkUnavailable("the broker does not respond", detail=fault.str()) from None
            time.sleep(0.02)
        else:
            return found


def records_from(consumer: Any, starts: Ends, until: Ends) -> Iterator[Any]:
    """Yield every committed record between two sets of offsets.

    Open transactions of other producers hide the records behind them. This waits for them to end, and raises an error
    if that takes too long.
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
                    hint="the broker is unreachable, or another transaction is open until its timeout",
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
        elif not is_transient(fault):
            raise SinkError("the broker did not return a record", detail=fault.str())
    consumer.unassign()
