"""Where a contestant's events come from: Parquet, lines of JSON, or a topic in some format; in the same batches."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

EVENTS: Final = "key long, value long, at timestamp"
AVRO: Final = (
    '{"type": "record", "name": "Event", "fields": [{"name": "key", "type": "long"}, {"name": "value", "type": "long"},'
    ' {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}'
)


class Form(StrEnum):
    """How a record's bytes are to be read."""

    JSON = "json"
    AVRO = "avro"
    """Behind five bytes with the id of its schema, as registries have it."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Files of Parquet, some a batch."""

    path: str


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of a broker, so many records a batch."""

    name: str
    servers: str
    form: Form
    per_batch: int
    registry: str


@dataclass(frozen=True, slots=True)
class Lines:
    """Files of JSON, a record a line with its time in milliseconds, one a batch."""

    lines: str


Feed = Folder | Lines | Topic


def to_json(feed: Feed) -> dict[str, Any]:
    """A feed as it travels to the process that reads it."""
    return asdict(feed)


def from_json(told: dict[str, Any]) -> Feed:
    """A feed as it was sent."""
    if "lines" in told:
        return Lines(**told)
    return Folder(**told) if "path" in told else Topic(**{**told, "form": Form(told["form"])})
