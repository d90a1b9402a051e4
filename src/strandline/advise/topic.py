"""A bounded sample of a topic: the last records of every partition, with the broker's timestamps as arrivals."""

import json
from typing import Any, Final

import polars as pl

from strandline.advise.files import ddl_of
from strandline.advise.sample import Columns, Origin, Sample, sample_of
from strandline.connectors.kafka.clients import ANSWER_WITHIN_SECONDS, partitions, reader, records_from
from strandline.connectors.kafka.security import Security
from strandline.errors import InvalidStep, SinkUnavailable

KEY, SENT, PARTITION = "record_key", "@sent", "@partition"
_APPENDED: Final = 2
"""What the client calls a timestamp that the broker gave; others are the producer's."""
_CREATED: Final = (
    "the topic keeps the producers' timestamps (CreateTime): how long records took to the broker is not in them"
)


def sample_of_topic(topic: str, servers: str, columns: Columns, most: int) -> tuple[Sample, tuple[str, ...]]:
    """The last records, as many of each partition; and the partitions that there are, also without any."""
    with reader(servers, Security()) as consumer:
        known = _partitions(consumer, topic, servers)
        starts, ends = _ends(consumer, topic, known, most)
        rows, appended = [], False
        for record in records_from(consumer, {topic: starts}, {topic: ends}):
            kind, at = record.timestamp()
            appended = appended or kind == _APPENDED
            rows.append(_row(record, at))
    if not rows:
        raise InvalidStep(f"there is not a record in the topic {topic}", hint="sample it once something has come")
    whole = [row for row in rows if row is not None]
    if not whole:
        raise InvalidStep(
            f"no record of the last {len(rows)} of {topic} is a JSON object",
            hint="only JSON can be sampled; write such records to a file with their times, and give that",
        )
    frame = pl.DataFrame(whole, infer_schema_length=None, strict=False)
    keyed = (KEY,) if frame[KEY].is_not_null().any() else ()
    asked = Columns(columns.time, columns.keys or keyed, columns.arrival or SENT, PARTITION)
    whose = "the broker's timestamps" if appended else "the timestamps that producers gave their records"
    notes: tuple[str, ...] = () if appended else (_CREATED,)
    if len(whole) < len(rows):
        notes += (f"{len(rows) - len(whole)} of {len(rows)} records are no JSON objects and were left out",)
    source = _source(topic, servers, frame, asked)
    arrival = whose if columns.arrival is None else f"the column {columns.arrival!r}"
    return sample_of(frame, asked, Origin(f"the topic {topic}", source, arrival, notes)), tuple(known)


def _source(topic: str, servers: str, frame: pl.DataFrame, asked: Columns) -> str:
    """How a pipeline reads the same topic."""
    value = ddl_of(frame.drop(KEY) if asked.keys == (KEY,) else frame, asked)
    metadata = f', metadata={{"{KEY}": "key"}}' if asked.keys == (KEY,) else ""
    return f"sl.kafka({json.dumps(topic)}, servers={json.dumps(servers)}, value=sl.json({json.dumps(value)}){metadata})"


def _partitions(consumer: Any, topic: str, servers: str) -> list[str]:
    try:
        found = partitions(consumer, topic)
    except SinkUnavailable as problem:
        raise InvalidStep(f"no broker answers at {servers}", detail=problem.detail, hint="check --bootstrap") from None
    if not found:
        raise InvalidStep(f"there is no topic {topic} at {servers}", hint="check its name")
    return [str(number) for number in found]


def _ends(consumer: Any, topic: str, known: list[str], most: int) -> tuple[dict[str, int], dict[str, int]]:
    from confluent_kafka import TopicPartition  # noqa: PLC0415 - an extra

    each = max(most // len(known), 1)
    starts, ends = {}, {}
    for name in known:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, int(name)), ANSWER_WITHIN_SECONDS)
        starts[name], ends[name] = max(low, high - each), high
    return starts, ends


def _row(record: Any, at: int) -> dict[str, Any] | None:
    try:
        value = json.loads(record.value() or b"")
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    key = record.key()
    return {
        **{name: each for name, each in value.items() if not isinstance(each, dict | list)},
        KEY: None if key is None else key.decode(errors="replace"),
        SENT: at,
        PARTITION: str(record.partition()),
    }
