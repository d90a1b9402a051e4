"""A bounded sample of topics: the last records of every partition, with the broker's timestamps as arrivals."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from strandline.advise.file_sample import ddl_of
from strandline.advise.sample import DECODED, Columns, Origin, Taken, left_out, sample_of
from strandline.advise.topic_access import Access, Said, call, security_of, value_of
from strandline.connectors.kafka.clients import reader, records_from
from strandline.connectors.kafka.security import Security
from strandline.connectors.kafka.source import FIELDS, Kafka, kafka
from strandline.errors import InvalidStep
from strandline.formats.json.codec import json as json_records
from strandline.kernel.blocks.block import PARTITION
from strandline.kernel.blocks.column_types import to_polars
from strandline.ports.raw_records import RECORD
from strandline.spark.tasks.row_decoding import Arrived, of_records

KEY, SENT = "record_key", "@sent"
_SENT: Final = "sent by strandline"
"""As a column beside those of a user, until the records are decoded."""
_APPENDED: Final = 2
"""What the client calls a timestamp that the broker gave; others are the producer's."""
_CREATED: Final = (
    "the topic keeps the producers' timestamps (CreateTime): how long records took to the broker is not in them"
)


@dataclass(frozen=True, slots=True)
class Tail:
    """The last records of topics as they are, all partitions that there are, and what the records' times are."""

    records: pl.DataFrame
    known: tuple[str, ...]
    appended: bool

    @property
    def arrival(self) -> str:
        return "the broker's timestamps" if self.appended else "the timestamps that producers gave their records"

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.appended else (_CREATED,)


def sample_of_topic(topic: str, access: Access, columns: Columns, most: int) -> Taken:
    """A topic that is named by itself, read as `access` says."""
    security, value = security_of(access), value_of(access, topic)
    if value is None:
        return _of_objects(topic, access, security, columns, most)
    metadata = None if columns.keys else {KEY: "key"}
    source = call(kafka, topic, servers=access.servers, value=value, metadata=metadata, security=security)
    tail = tail_of(source.value, most)
    arrived = decoded(source.value, tail)
    rows, keys = arrived.rows, columns.keys
    if not keys and rows[KEY].is_not_null().any():
        rows, keys = rows.with_columns(_text(pl.col(KEY))), (KEY,)
    asked = Columns(columns.time, keys, columns.arrival or SENT, PARTITION)
    notes = (*tail.notes, *left_out(arrived, "records"))
    arrival = tail.arrival if columns.arrival is None else f"the column {columns.arrival!r}"
    origin = Origin(f"the topic {topic}", source.words, arrival, notes, DECODED)
    return Taken(sample_of(rows, asked, origin), tail.known)


def tail_of(source: Kafka, most: int) -> Tail:
    """The last records, as many of each partition."""
    # Where a job would start says nothing of what is there; a slice says what is meant.
    asked = replace(source, goes_on_after_loss=True, starting=source.starting if source.ends else "earliest")
    extent: Mapping[str, Mapping[str, tuple[int, int]]] = asked.extent(None)  # type: ignore[arg-type]
    known = {(topic, number): _named(source, topic, number) for topic, each in extent.items() for number in each}
    each = max(most // max(len(known), 1), 1)
    ends = {topic: {number: end for number, (_, end) in found.items()} for topic, found in extent.items()}
    starts = {
        topic: {number: max(begin, end - each) for number, (begin, end) in found.items()}
        for topic, found in extent.items()
    }
    rows, appended = [], False
    with reader(source.servers, source.security) as consumer:
        for record in records_from(consumer, starts, ends):
            appended = appended or record.timestamp()[0] == _APPENDED
            rows.append(_row(record, source, known[record.topic(), str(record.partition())]))
    if not rows:
        raise InvalidStep(f"there is not a record in {source.name}", hint="sample it once something has come")
    return Tail(pl.DataFrame(rows, schema=_shape(source), orient="row"), tuple(known.values()), appended)


def decoded(source: Kafka, tail: Tail) -> Arrived:
    """Records as the source's own format reads them, those that cannot be read set aside."""
    arrived = of_records(tail.records, source.value)
    if arrived.rows.is_empty():
        raise InvalidStep(
            f"none of the last {arrived.read} records of {source.name} can be read as {type(source.value).__name__}",
            detail="; ".join(left_out(arrived, "records")),
            hint="check the format, its schema and its registry",
        )
    return replace(arrived, rows=arrived.rows.rename({_SENT: SENT}))


def _of_objects(topic: str, access: Access, security: Said | None, columns: Columns, most: int) -> Taken:
    """JSON of which no column is known before."""
    door = Security() if security is None else security.value
    asking = kafka(topic, servers=access.servers, value=json_records("_ string"), metadata={KEY: "key"}, security=door)
    tail = tail_of(asking, most)
    taken = tail.records.with_columns(_text(pl.col(KEY)))
    rows = [_object(*each) for each in taken.select("value", KEY, _SENT, "partition").iter_rows()]
    whole = [row for row in rows if row is not None]
    if not whole:
        raise InvalidStep(
            f"no record of the last {len(rows)} of {topic} is a JSON object",
            hint="say what they are: --format avro, protobuf or csv, with --schema or --registry",
        )
    frame = pl.DataFrame(whole, infer_schema_length=None, strict=False)
    keyed = (KEY,) if frame[KEY].is_not_null().any() else ()
    asked = Columns(columns.time, columns.keys or keyed, columns.arrival or SENT, PARTITION)
    notes = tail.notes
    if len(whole) < len(rows):
        notes += (f"{len(rows) - len(whole)} of {len(rows)} records are no JSON objects and were left out",)
    by_key = asked.keys == (KEY,)
    value = call(json_records, ddl_of(frame.drop(KEY) if by_key else frame, asked))
    metadata = {KEY: "key"} if by_key else None
    source = call(kafka, topic, servers=access.servers, value=value, metadata=metadata, security=security)
    arrival = tail.arrival if columns.arrival is None else f"the column {columns.arrival!r}"
    return Taken(sample_of(frame, asked, Origin(f"the topic {topic}", source.words, arrival, notes)), tail.known)


def _named(source: Kafka, topic: str, number: str) -> str:
    """How a partition is called here: by its number where there is one topic."""
    return number if len(source.topics) == 1 and not source.is_pattern else f"{topic}-{number}"


def _shape(source: Kafka) -> dict[str, Any]:
    own = {"partition": pl.String, "offset": pl.Int64, "mark": pl.Int32, "value": pl.Binary, _SENT: pl.Int64}
    return {**own, **{name: to_polars(FIELDS[field]) for name, field in source.metadata}}


def _row(record: Any, source: Kafka, partition: str) -> tuple[Any, ...]:
    place = (partition, record.offset(), RECORD, record.value(), record.timestamp()[1])
    return (*place, *(_field(record, field) for _, field in source.metadata))


def _field(record: Any, field: str) -> Any:
    """What is known of a record, as Spark tells it."""
    kind, at = record.timestamp()
    match field:
        case "timestamp":
            return at * 1_000
        case "timestamp_type":
            return kind - 1
        case "headers":
            return [{"key": name, "value": value} for name, value in record.headers() or ()] or None
        case _:
            return getattr(record, field)()


def _text(key: pl.Expr) -> pl.Expr:
    return key.map_elements(lambda each: each.decode(errors="replace"), pl.String)


def _object(value: bytes | None, key: str | None, sent: int, partition: str) -> dict[str, Any] | None:
    try:
        found = json.loads(value or b"")
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    plain = {name: each for name, each in found.items() if not isinstance(each, dict | list)}
    return {**plain, KEY: key, SENT: sent, PARTITION: partition}
