"""Sample topics: the last records of every partition, with the broker's timestamps as arrival times."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import polars as pl

from strandline.advise.file_sample import ddl_of
from strandline.advise.sample import DECODED, Columns, Origin, SampledSource, left_out, sample_of
from strandline.advise.topic_access import Access, CodeValue, call, security_of, value_of
from strandline.connectors.kafka.clients import reader, records_from
from strandline.connectors.kafka.security import Security
from strandline.connectors.kafka.source import FIELDS, Kafka, kafka
from strandline.errors import InvalidStep
from strandline.execution.row_decoding import Arrived, of_records
from strandline.formats.json.codec import json as json_records
from strandline.kernel.blocks.block import PARTITION
from strandline.kernel.blocks.column_types import to_polars
from strandline.ports.raw_records import RECORD

KEY, SENT = "record_key", "@sent"
_SENT: Final = "sent by strandline"
"""Name of the timestamp column beside a user's columns, until the records are decoded."""
_LOG_APPEND_TIME: Final = 2
"""The client's code for a timestamp set by the broker; other timestamps are set by the producer."""
_CREATE_TIME_NOTE: Final = (
    "the topic keeps the producers' timestamps (CreateTime): the time to reach the broker is not included in them"
)


@dataclass(frozen=True, slots=True)
class Tail:
    """The last records of topics undecoded, the names of all partitions, and the kind of their timestamps."""

    records: pl.DataFrame
    known: tuple[str, ...]
    appended: bool

    @property
    def arrival(self) -> str:
        return "the broker's timestamps" if self.appended else "the timestamps that producers gave their records"

    @property
    def notes(self) -> tuple[str, ...]:
        return () if self.appended else (_CREATE_TIME_NOTE,)


def sample_of_topic(topic: str, access: Access, columns: Columns, most: int) -> SampledSource:
    """Sample a topic with the format and credentials in `access`."""
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
    chosen = Columns(columns.time, keys, columns.arrival or SENT, PARTITION)
    notes = (*tail.notes, *left_out(arrived, "records"))
    arrival = tail.arrival if columns.arrival is None else f"the column {columns.arrival!r}"
    origin = Origin(f"the topic {topic}", source.code, arrival, notes, DECODED)
    return SampledSource(sample_of(rows, chosen, origin), tail.known)


def tail_of(source: Kafka, most: int) -> Tail:
    """Read the last records, the same number from each partition."""
    # The tail is read wherever a job would start, so start positions and lost records are ignored.
    relaxed = replace(source, goes_on_after_loss=True, starting=source.starting if source.ends else "earliest")
    extent: Mapping[str, Mapping[str, tuple[int, int]]] = relaxed.extent(None)  # type: ignore[arg-type]
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
            appended = appended or record.timestamp()[0] == _LOG_APPEND_TIME
            rows.append(_row(record, source, known[record.topic(), str(record.partition())]))
    if not rows:
        raise InvalidStep(f"there is no record in {source.name}", hint="sample it once there is data")
    return Tail(pl.DataFrame(rows, schema=_shape(source), orient="row"), tuple(known.values()), appended)


def decoded(source: Kafka, tail: Tail) -> Arrived:
    """Decode records with the source's own format; records that cannot be decoded are reported separately."""
    arrived = of_records(tail.records, source.value)
    if arrived.rows.is_empty():
        raise InvalidStep(
            f"none of the last {arrived.read} records of {source.name} can be decoded as {type(source.value).__name__}",
            detail="; ".join(left_out(arrived, "records")),
            hint="check the format, its schema and its registry",
        )
    return replace(arrived, rows=arrived.rows.rename({_SENT: SENT}))


def _of_objects(topic: str, access: Access, security: CodeValue | None, columns: Columns, most: int) -> SampledSource:
    """Sample JSON objects whose columns are not known in advance."""
    credentials = Security() if security is None else security.value
    value = json_records("_ string")
    undecoded = kafka(topic, servers=access.servers, value=value, metadata={KEY: "key"}, security=credentials)
    tail = tail_of(undecoded, most)
    taken = tail.records.with_columns(_text(pl.col(KEY)))
    rows = [_object(*each) for each in taken.select("value", KEY, _SENT, "partition").iter_rows()]
    whole = [row for row in rows if row is not None]
    if not whole:
        raise InvalidStep(
            f"no record of the last {len(rows)} of {topic} is a JSON object",
            hint="give their format: --format avro, protobuf or csv, with --schema or --registry",
        )
    frame = pl.DataFrame(whole, infer_schema_length=None, strict=False)
    keyed = (KEY,) if frame[KEY].is_not_null().any() else ()
    chosen = Columns(columns.time, columns.keys or keyed, columns.arrival or SENT, PARTITION)
    notes = tail.notes
    if len(whole) < len(rows):
        notes += (f"{len(rows) - len(whole)} of {len(rows)} records are not JSON objects and were left out",)
    by_key = chosen.keys == (KEY,)
    format_ = call(json_records, ddl_of(frame.drop(KEY) if by_key else frame, chosen))
    metadata = {KEY: "key"} if by_key else None
    source = call(kafka, topic, servers=access.servers, value=format_, metadata=metadata, security=security)
    arrival = tail.arrival if columns.arrival is None else f"the column {columns.arrival!r}"
    origin = Origin(f"the topic {topic}", source.code, arrival, notes)
    return SampledSource(sample_of(frame, chosen, origin), tail.known)


def _named(source: Kafka, topic: str, number: str) -> str:
    """Return a partition's name: its number, with the topic if there are several."""
    return number if len(source.topics) == 1 and not source.is_pattern else f"{topic}-{number}"


def _shape(source: Kafka) -> dict[str, Any]:
    own = {"partition": pl.String, "offset": pl.Int64, "mark": pl.Int32, "value": pl.Binary, _SENT: pl.Int64}
    return {**own, **{name: to_polars(FIELDS[field]) for name, field in source.metadata}}


def _row(record: Any, source: Kafka, partition: str) -> tuple[Any, ...]:
    place = (partition, record.offset(), RECORD, record.value(), record.timestamp()[1])
    return (*place, *(_field(record, field) for _, field in source.metadata))


def _field(record: Any, field: str) -> Any:
    """Return a metadata field of a record, as Spark's Kafka source returns it."""
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
