"""Create missing topics on a broker, with the requested partitions."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from strandline.errors import ServiceError, SetupError

DEFAULT_PARTITIONS: Final = 2

_ANSWER_WITHIN_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic to create."""

    name: str
    partitions: int = DEFAULT_PARTITIONS
    settings: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name or self.partitions < 1:
            raise ServiceError(
                f"a topic needs a name and 1 or more partitions, not {self.name!r} with {self.partitions}"
            )


def topic(written: str) -> Topic:
    """Parse a topic: `scores`, or `scores:4` for four partitions."""
    name, colon, partitions = written.partition(":")
    if colon and not partitions.isdigit():
        raise ServiceError(f"{written!r} is not a topic", hint="write name or name:partitions, like scores:4")
    return Topic(name, int(partitions) if colon else DEFAULT_PARTITIONS)


def create_topics(servers: str, *topics: Topic) -> list[str]:
    """Create the topics that do not exist, and return their names; existing topics stay as they are."""
    try:
        from confluent_kafka import KafkaError, KafkaException  # noqa: PLC0415 - an optional extra
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
                raise ServiceError(f"the topic {name!r} was not created", detail=fault.str()) from error
    return made
