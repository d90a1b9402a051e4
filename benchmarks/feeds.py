"""Define where a contestant reads events: Parquet, JSON lines or a topic, in the same batches."""

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final

EVENTS: Final = "key long, value long, at timestamp"
AVRO: Final = (
    '{"type": "record", "name": "Event", "fields": [{"name": "key", "type": "long"}, {"name": "value", "type": "long"},'
    ' {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}'
)


class Form(StrEnum):
    """Encoding of a record."""

    JSON = "json"
    AVRO = "avro"
    """With the five-byte Confluent prefix."""


@dataclass(frozen=True, slots=True)
class Folder:
    """Parquet files, a number per batch."""

    path: str


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic with a number of records per batch."""

    name: str
    servers: str
    form: Form
    per_batch: int
    registry: str


@dataclass(frozen=True, slots=True)
class Lines:
    """JSON line files with times in milliseconds, one per batch."""

    lines: str


Feed = Folder | Lines | Topic


def to_json(feed: Feed) -> dict[str, Any]:
    """Serialise a feed for the process that reads it."""
    return asdict(feed)


def from_json(told: dict[str, Any]) -> Feed:
    """Deserialise a feed."""
    if "lines" in told:
        return Lines(**told)
    return Folder(**told) if "path" in told else Topic(**{**told, "form": Form(told["form"])})
