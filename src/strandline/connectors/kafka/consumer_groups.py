"""Commit a job's offsets to a consumer group, so that Kafka's own tools show the job's lag."""

from collections.abc import Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

from strandline.connectors.kafka.security import Security
from strandline.errors import SourceUnavailable
from strandline.redaction import logger

_LOG: Final = logger("strandline.kafka")
_ANSWER_WITHIN_SECONDS: Final = 10
_AWAY: Final = ("_TRANSPORT", "_ALL_BROKERS_DOWN", "_TIMED_OUT", "_RESOLVE")

Offsets = Mapping[str, Mapping[str, int]]


@cache
def is_installed() -> bool:
    """Whether the Python client is installed: `pip install strandline[kafka]`."""
    return find_spec("confluent_kafka") is not None


def commit(servers: str, security: Security, group: str, offsets: Offsets) -> bool:
    """Commit a group's offsets. They serve display only: a failure is logged and does not stop the job."""
    from confluent_kafka import KafkaException, TopicPartition

    places = [TopicPartition(topic, int(number), at) for topic, each in offsets.items() for number, at in each.items()]
    try:
        _consumer(servers, security, group).commit(offsets=places, asynchronous=False)
    except (KafkaException, OSError) as problem:
        _LOG.warning("the offsets of group %s were not committed: %s", group, problem)
        return False
    return True


def deleted_records(servers: str, security: Security, offsets: Offsets) -> dict[str, int]:
    """Count, for each partition that begins after its offset, the records that were deleted between the two.

    Raise SourceUnavailable if the broker does not answer.
    """
    from confluent_kafka import KafkaException, TopicPartition

    consumer = _consumer(servers, security, "strandline-looks")
    found: dict[str, int] = {}
    for topic, each in offsets.items():
        for number, at in each.items():
            try:
                first, _ = consumer.get_watermark_offsets(TopicPartition(topic, int(number)), _ANSWER_WITHIN_SECONDS)
            except KafkaException as problem:
                if problem.args[0].name() in _AWAY:
                    raise SourceUnavailable(
                        f"Kafka at {servers} does not respond", detail=problem.args[0].str(),
                        hint="start it, or correct servers=; nothing is skipped",
                    ) from None  # fmt: skip
                _LOG.warning("the first offset of %s-%s is not known: %s", topic, number, problem)
                continue
            if first > at:
                found[f"{topic}-{number}"] = first - at
    return found


@cache
def _consumer(servers: str, security: Security, group: str) -> Any:
    """Create a consumer that never subscribes: a group without members accepts offsets from any client."""
    from confluent_kafka import Consumer

    return Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": group,
            "enable.auto.commit": False,
            "socket.timeout.ms": _ANSWER_WITHIN_SECONDS * 1000,
            "log_level": 0,  # otherwise an unreachable broker is reported twenty times a second
            **security.to_librdkafka(),
        }
    )
