"""Create and describe a sink's topics, and warn when their replication is weaker than exactly-once needs."""

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
from strandline.model.suggestions import did_you_mean, listed
from strandline.redaction import logger

_log: Final = logger("strandline.kafka")

_LOOK_WITHIN_SECONDS: Final = 2.0
REPLICAS: Final = 3
IN_SYNC: Final = 2

_warned: set[tuple[str, str]] = set()


@dataclass(frozen=True, slots=True)
class Topics:
    """Names of the rows' topic and of the topics beside it."""

    rows: str
    late: str
    dead: str
    ledger: str

    @property
    def beside(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((self.late, self.dead, self.ledger)))


@dataclass(frozen=True, slots=True)
class Found:
    """Settings of a topic on the broker."""

    partitions: int
    replicas: int
    in_sync: int
    largest: int
    """The largest record in bytes, protocol overhead included."""
    policy: str


def prepare_topics(servers: str, security: Security, topics: Topics) -> Mapping[str, Found]:
    """Check that the rows' topic exists, create the topics beside it, and describe them all."""
    from confluent_kafka import KafkaException

    admin = admin_of(servers, security)
    try:
        known = admin.list_topics(timeout=FIRST_ANSWER_WITHIN_SECONDS).topics
    except KafkaException as problem:
        raise SinkUnavailable(f"Kafka at {servers} cannot be reached", detail=problem.args[0].str()) from None
    if topics.rows not in known:
        raise SetupError(
            f"there is no topic {topics.rows}",
            hint="create it with the partitions and the replication that it should have",
        )
    missing = [name for name in topics.beside if name not in known]
    if missing:
        _create_topics(admin, missing, topics, len(known[topics.rows].partitions))
    found = describe_topics(admin, (topics.rows, *topics.beside))
    if "delete" in found[topics.ledger].policy:
        raise SetupError(
            f"the topic {topics.ledger} deletes old records, which a ledger must keep",
            detail=f"cleanup.policy={found[topics.ledger].policy}",
            hint="set cleanup.policy=compact",
        )
    _warn(servers, found)
    return found


def _create_topics(admin: Any, missing: list[str], topics: Topics, partitions: int) -> None:
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
                    f"the topic {name} is missing and could not be created", detail=fault.str(), hint="create it"
                ) from None


def describe_topics(admin: Any, names: tuple[str, ...]) -> dict[str, Found]:
    """Describe existing topics."""
    from confluent_kafka import KafkaException

    api = admin_api()
    try:
        known = _wait_for_topics(admin, names)
        futures = admin.describe_configs([api.ConfigResource(api.ResourceType.TOPIC, name) for name in names])
        settings = {place.name: answer.result(ANSWER_WITHIN_SECONDS) for place, answer in futures.items()}
    except KafkaException as problem:
        raise SinkUnavailable("the broker did not describe its topics", detail=problem.args[0].str()) from None
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


def refuse_missing_topics(servers: str, security: Security, names: Sequence[str]) -> None:
    """Raise if the broker answers and has not these topics. An unreachable broker is reported by the job itself."""
    from confluent_kafka import KafkaException

    try:
        known = admin_of(servers, security).list_topics(timeout=_LOOK_WITHIN_SECONDS).topics
    except KafkaException:
        return
    missing = [name for name in names if name not in known]
    if missing:
        shown = [name for name in known if not name.startswith("__")]
        raise SetupError(
            f"there is no topic {missing[0]} at {servers}",
            detail=f"it has {listed(shown)}" if shown else "it has no topics",
            hint=did_you_mean(missing[0], shown, "check the name, or create the topic"),
        )


def largest_record(servers: str, security: Security, names: Sequence[str]) -> int | None:
    """The largest record of these topics in bytes; None if the broker does not answer."""
    from confluent_kafka import KafkaException

    api, admin = admin_api(), admin_of(servers, security)
    places = [api.ConfigResource(api.ResourceType.TOPIC, name) for name in names]
    try:
        futures = admin.describe_configs(places, request_timeout=FIRST_ANSWER_WITHIN_SECONDS)
        return max(int(answer.result()["max.message.bytes"].value) for answer in futures.values())
    except KafkaException:
        return None


def _wait_for_topics(admin: Any, names: tuple[str, ...]) -> Mapping[str, Any]:
    """List topics with their partitions; wait for a newly created topic to appear."""
    end = time.monotonic() + ANSWER_WITHIN_SECONDS
    while True:
        known: Mapping[str, Any] = admin.list_topics(timeout=ANSWER_WITHIN_SECONDS).topics
        missing = [name for name in names if name not in known or not known[name].partitions]
        if not missing:
            return known
        if time.monotonic() > end:
            raise SinkUnavailable(f"the topic {missing[0]} was created, but the broker does not list it")
        time.sleep(0.02)


def _warn(servers: str, found: Mapping[str, Found]) -> None:
    """Warn once per topic if fewer replicas than REPLICAS and IN_SYNC hold its records."""
    if all(_is_loopback(each) for each in servers.split(",")):
        return
    for name, topic in found.items():
        if (topic.replicas < REPLICAS or topic.in_sync < IN_SYNC) and (servers, name) not in _warned:
            _warned.add((servers, name))
            _log.warning(
                "the topic %s has %s replicas, of which %s must acknowledge a record: a broker failure may lose "
                "committed records; use %s replicas and min.insync.replicas=%s",
                name, topic.replicas, topic.in_sync, REPLICAS, IN_SYNC,
            )  # fmt: skip


def _is_loopback(server: str) -> bool:
    host = server.strip().rpartition(":")[0].strip("[]")
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
