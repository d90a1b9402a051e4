"""Topics as they are: those of a sink, found or made; what they take; a word where they promise less than we do."""

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

from strandline.connectors.kafka.clients import (
    ANSWER_WITHIN_SECONDS,
    FIRST_ANSWER_WITHIN_SECONDS,
    admin_api,
    admin_of,
)
from strandline.connectors.kafka.security import Security
from strandline.errors import SetupError, SinkError, SinkUnavailable

_log: Final = logging.getLogger("strandline.kafka")

REPLICAS: Final = 3
IN_SYNC: Final = 2

_warned: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True)
class Topics:
    """The topic of the rows and those beside it, by name."""

    rows: str
    late: str
    dead: str
    ledger: str

    @property
    def beside(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.late, self.dead, self.ledger)))


@dataclass(frozen=True, slots=True)
class Found:
    """A topic as it is."""

    partitions: int
    replicas: int
    in_sync: int
    largest: int
    """The bytes that a record may have, with what the protocol adds."""
    policy: str


def made_ready(servers: str, security: Security, topics: Topics) -> Mapping[str, Found]:
    """The topics as they are. That of the rows must be there; those beside it are made."""
    from confluent_kafka import KafkaException

    admin = admin_of(servers, security)
    try:
        known = admin.list_topics(timeout=FIRST_ANSWER_WITHIN_SECONDS).topics
    except KafkaException as problem:
        raise SinkUnavailable(f"Kafka at {servers} is out of reach", detail=problem.args[0].str()) from None
    if topics.rows not in known:
        raise SetupError(
            f"there is no topic {topics.rows}", hint="make it, with the partitions and the replication it should have"
        )
    missing = [name for name in topics.beside if name not in known]
    if missing:
        _make(admin, missing, topics, len(known[topics.rows].partitions))
    found = described(admin, (topics.rows, *topics.beside))
    if "delete" in found[topics.ledger].policy:
        raise SetupError(
            f"the topic {topics.ledger} forgets what is old, and a ledger must not",
            detail=f"cleanup.policy={found[topics.ledger].policy}",
            hint="set cleanup.policy=compact",
        )
    _warn(servers, found)
    return found


def _make(admin: Any, missing: list[str], topics: Topics, partitions: int) -> None:
    from confluent_kafka import KafkaException

    new = admin_api().NewTopic
    compact = {"cleanup.policy": "compact"}
    wanted = [new(each, 1, config=compact) if each == topics.ledger else new(each, partitions) for each in missing]
    for name, done in admin.create_topics(wanted, operation_timeout=ANSWER_WITHIN_SECONDS).items():
        try:
            done.result(ANSWER_WITHIN_SECONDS)
        except KafkaException as problem:
            fault = problem.args[0]
            if fault.name() != "TOPIC_ALREADY_EXISTS":
                raise SinkError(
                    f"the topic {name} is missing and was not made", detail=fault.str(), hint="make it yourself"
                ) from None


def described(admin: Any, names: tuple[str, ...]) -> dict[str, Found]:
    """Topics that are there, as they are."""
    from confluent_kafka import KafkaException

    api = admin_api()
    try:
        known = _listed(admin, names)
        asked = admin.describe_configs([api.ConfigResource(api.ResourceType.TOPIC, name) for name in names])
        settings = {place.name: told.result(ANSWER_WITHIN_SECONDS) for place, told in asked.items()}
    except KafkaException as problem:
        raise SinkUnavailable("the broker does not tell of its topics", detail=problem.args[0].str()) from None
    return {
        name: Found(
            len(known[name].partitions),
            min((len(each.replicas) for each in known[name].partitions.values()), default=0),
            int(settings[name]["min.insync.replicas"].value),
            int(settings[name]["max.message.bytes"].value),
            settings[name]["cleanup.policy"].value,
        )
        for name in names
    }


def longest_of(servers: str, security: Security, names: Sequence[str]) -> int | None:
    """The bytes that a record of these topics may have; None if the broker does not tell."""
    from confluent_kafka import KafkaException

    api, admin = admin_api(), admin_of(servers, security)
    places = [api.ConfigResource(api.ResourceType.TOPIC, name) for name in names]
    try:
        asked = admin.describe_configs(places, request_timeout=FIRST_ANSWER_WITHIN_SECONDS)
        return max(int(told.result()["max.message.bytes"].value) for told in asked.values())
    except KafkaException:
        return None


def _listed(admin: Any, names: tuple[str, ...]) -> Mapping[str, Any]:
    """Topics with their partitions. One that was made just now is known a moment later."""
    end = time.monotonic() + ANSWER_WITHIN_SECONDS
    while True:
        known: Mapping[str, Any] = admin.list_topics(timeout=ANSWER_WITHIN_SECONDS).topics
        missing = [name for name in names if name not in known or not known[name].partitions]
        if not missing:
            return known
        if time.monotonic() > end:
            raise SinkUnavailable(f"the topic {missing[0]} was made, and the broker does not tell of it")
        time.sleep(0.02)


def _warn(servers: str, found: Mapping[str, Found]) -> None:
    """Once a topic: a single broker's disk is all that holds what it has said to hold."""
    if all(_is_loopback(each) for each in servers.split(",")):
        return
    for name, topic in found.items():
        if (topic.replicas < REPLICAS or topic.in_sync < IN_SYNC) and (servers, name) not in _warned:
            _warned.add((servers, name))
            _log.warning(
                "the topic %s has %s replicas, of which %s must have a record: what was committed may be lost with a "
                "broker; have %s and min.insync.replicas=%s", name, topic.replicas, topic.in_sync, REPLICAS, IN_SYNC,
            )  # fmt: skip


def _is_loopback(server: str) -> bool:
    host = server.strip().rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
