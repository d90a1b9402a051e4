"""Ask the broker where the partitions of topics end, with answers within seconds. Without Spark."""

import re
import time
from collections.abc import Mapping
from typing import Any, Final

from strandline.connectors.kafka.clients import admin_api, silent_log
from strandline.connectors.kafka.security import Security
from strandline.errors import SourceUnavailable

ANSWER_WITHIN_SECONDS: Final = 2.0
_METADATA_SECONDS: Final = 30.0
"""How long the list of partitions is used. Spark looks for new ones with every batch, the lag a little later."""
_ABSENT: Final = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "TOPIC_AUTHORIZATION_FAILED")
_REFRESHED: Final = ("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", *_ABSENT)


Offsets = Mapping[str, Mapping[str, int]]
"""Offsets by topic and partition, as Spark writes them."""


def by_partition(offsets: Offsets) -> dict[str, int]:
    """Name each partition as `topic-number`."""
    return {f"{topic}-{number}": at for topic, each in offsets.items() for number, at in each.items()}


class EndOffsets:
    """The end offsets of some topics, from a client that is kept."""

    def __init__(self, servers: str, security: Security, topics: tuple[str, ...], *, is_pattern: bool) -> None:
        self._servers, self._security, self._topics, self._is_pattern = servers, security, topics, is_pattern
        self._client: Any = None
        self._places: list[Any] = []
        self._listed_at = 0.0

    def ends(self) -> dict[str, int]:
        """Return the end of each partition for a read-committed reader."""
        return self._ask(None)

    def ends_at(self, ms: int) -> dict[str, int]:
        """Return the offset of the first record since a time; without one the end."""
        found = self._ask(ms)
        now = self._ask(None) if any(at < 0 for at in found.values()) else {}
        return {name: now.get(name, 0) if at < 0 else at for name, at in found.items()}

    def _ask(self, since: int | None) -> dict[str, int]:
        from confluent_kafka import KafkaException

        try:
            if not self._places or time.monotonic() - self._listed_at > _METADATA_SECONDS:
                self._places = self._list_partitions()
                self._listed_at = time.monotonic()
            return self._list_offsets(since) if self._places else {}
        except KafkaException as problem:
            self._places = []
            raise SourceUnavailable(
                f"Kafka at {self._servers} does not respond", detail=problem.args[0].str(),
                hint="start it, or correct servers=; nothing is skipped",
            ) from None  # fmt: skip

    def _admin(self) -> Any:
        if self._client is None:
            options: dict[str, Any] = {
                "bootstrap.servers": self._servers, "log_level": 0, "reconnect.backoff.max.ms": 500,
                "socket.timeout.ms": int(ANSWER_WITHIN_SECONDS * 1000), **self._security.to_librdkafka(),
            }  # fmt: skip
            self._client = admin_api().AdminClient(options, logger=silent_log)
        return self._client

    def _list_partitions(self) -> list[Any]:
        from confluent_kafka import TopicPartition

        admin = self._admin()
        if self._is_pattern:
            known = admin.list_topics(timeout=ANSWER_WITHIN_SECONDS).topics
            found = {name: topic for name, topic in known.items() if re.fullmatch(self._topics[0], name)}
        else:
            found = {}
            for name in self._topics:
                found |= {name: admin.list_topics(name, timeout=ANSWER_WITHIN_SECONDS).topics[name]}
        return [TopicPartition(name, number) for name, topic in sorted(found.items()) for number in topic.partitions]

    def _list_offsets(self, since: int | None) -> dict[str, int]:
        from confluent_kafka import IsolationLevel, KafkaException

        specs = admin_api().OffsetSpec
        spec = specs.latest() if since is None else specs.for_timestamp(since)
        futures = self._admin().list_offsets(
            dict.fromkeys(self._places, spec),
            isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=ANSWER_WITHIN_SECONDS,
        )  # fmt: skip
        found = {}
        for place, answer in futures.items():
            try:
                found[f"{place.topic}-{place.partition}"] = int(answer.result(ANSWER_WITHIN_SECONDS).offset)
            except KafkaException as problem:
                self._places = []
                if problem.args[0].name() not in _REFRESHED:
                    raise
        return found
