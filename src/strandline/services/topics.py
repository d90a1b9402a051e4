"""Topics of a broker: made when they are missing, with the partitions asked for."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from strandline.errors import ServiceError, SetupError

USUAL_PARTITIONS: Final = 2

_ANSWER_WITHIN_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it should be."""

    name: str
    partitions: int = USUAL_PARTITIONS
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name or self.partitions < 1:
            raise ServiceError(f"no topic is called {self.name!r} with {self.partitions} partitions")


def topic(written: str) -> Topic:
    """A topic as one types it: `scores`, or `scores:4` for four partitions."""
    name, colon, partitions = written.partition(":")
    if colon and not partitions.isdigit():
        raise ServiceError(f"{written!r} is no topic", hint="write name or name:partitions, like scores:4")
    return Topic(name, int(partitions) if colon else USUAL_PARTITIONS)


def create_topics(servers: str, *topics: Topic) -> list[str]:
    """Makes the topics that are not there yet and returns their names; one that is there stays as it is."""
    try:
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - an extra
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415
        from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415
    except ImportError as error:
        raise SetupError("confluent-kafka is not installed", hint='pip install "strandline[kafka]"') from error
    if not topics:
        return []
    admin = AdminClient({"bootstrap.servers": servers, "socket.connection.setup.timeout.ms": 5000, "log_level": 3})
    wanted = [NewTopic(each.name, each.partitions, 1, config=dict(each.settings)) for each in topics]
    made = []
    for name, future in admin.create_topics(wanted, operation_timeout=_ANSWER_WITHIN_SECONDS).items():
        try:
            future.result(_ANSWER_WITHIN_SECONDS)
            made.append(name)
        except KafkaException as error:
            fault = error.args[0]
            if fault.code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise ServiceError(f"the topic {name!r} was not made", detail=fault.str()) from error
    return made
