"""What a schema registry holds: schemas under ids, subjects and versions, and the levels it keeps them to."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The language a schema is written in."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


class Level(StrEnum):
    """Which data a new schema must get on with: what older ones wrote, what they can read, or both."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def reads_older(self) -> bool:
        return self.value.startswith(("BACKWARD", "FULL"))

    @property
    def is_read_by_older(self) -> bool:
        return self.value.startswith(("FORWARD", "FULL"))

    @property
    def is_transitive(self) -> bool:
        return self.value.endswith("_TRANSITIVE")


@dataclass(frozen=True, slots=True)
class Reference:
    """Another schema that this one uses, by the name it uses for it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as text, and the schemas it uses."""

    kind: Kind
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Version:
    """A schema as a subject holds it."""

    subject: str
    version: int
    id: int
    schema: Schema


class Naming(StrEnum):
    """The subject of a topic's records: by the topic, by the record, or by both."""

    TOPIC = "topic"
    RECORD = "record"
    TOPIC_RECORD = "topic_record"

    def subject(self, topic: str, record: str = "", *, part: str = "value") -> str:
        """`scores-value`, `games.Score` or `scores-games.Score`."""
        match self:
            case Naming.TOPIC:
                return f"{topic}-{part}"
            case Naming.RECORD:
                return record
            case Naming.TOPIC_RECORD:
                return f"{topic}-{record}"
