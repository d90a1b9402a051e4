"""Values of a schema registry: schemas with ids, subjects, versions, and compatibility levels."""

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The schema language."""

    AVRO = "AVRO"
    PROTOBUF = "PROTOBUF"
    JSON = "JSON"


class Level(StrEnum):
    """Compatibility that a new schema must keep: backward, forward, or both."""

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
    """A reference to another schema, by the name that this one uses for it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema's text and its references."""

    kind: Kind
    text: str
    references: tuple[Reference, ...] = ()


@dataclass(frozen=True, slots=True)
class Version:
    """A schema as a version of a subject."""

    subject: str
    version: int
    id: int
    schema: Schema


class Naming(StrEnum):
    """Naming strategy for the subject of a topic's records: by topic, by record, or by both."""

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
