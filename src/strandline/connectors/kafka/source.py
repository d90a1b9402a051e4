"""Read topics as a source through Spark's Kafka connector, with a watermark per partition."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from strandline.connectors.kafka import consumer_groups, redrive, topic_blocks
from strandline.connectors.kafka.end_offsets import EndOffsets, Offsets, by_partition
from strandline.connectors.kafka.security import Security, server_list
from strandline.connectors.kafka.topic_admin import largest_record, refuse_missing_topics
from strandline.connectors.kafka.topic_extent import Slice, slice_of
from strandline.connectors.kafka.topic_ids import topic_ids
from strandline.errors import InvalidStep, LostRecords
from strandline.kernel.blocks.binary_views import LONGEST
from strandline.letters.store import Marks, Redrive
from strandline.model.arguments import checked
from strandline.model.elements import zoned
from strandline.ports.codecs import Decoder
from strandline.ports.raw_records import PARTITION_CODE, RAW_SCHEMA, RECORD, SIZE
from strandline.ports.sources import KnownEnds, Position

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

StartPosition = str | datetime | Offsets | Mapping[str, Mapping[int, int]]
"""A place in topics, as a user may give it."""

FIELDS: Final = {
    "key": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "timestamp_type": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""Metadata fields of a record. A timestamp's type is 0 if the producer set it, 1 if the broker did."""

RECORDS_PER_BATCH: Final = 1_000_000
"""Default batch limit. A batch is in memory as a whole, so a backlog of years is read in several batches."""

RECORDS_PER_TASK: Final = 500_000
"""Records per task in a bounded read; a task has its records in memory as a whole."""

KEPT_OF_TOO_LARGE: Final = 65_536
"""Bytes kept of a record that is too large to decode; a few records of twenty megabytes would fill the memory."""

_FETCH_OPTIONS: Final = {
    # The client's default of five hundred records per poll costs two thousand polls a batch.
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(4 * 2**20),
    "kafka.receive.buffer.bytes": str(2**20),
}

CONNECTOR: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


@dataclass(frozen=True, slots=True)
class Kafka:
    """Kafka source: topics, the decoder of their records, where to begin, and how much to read per batch."""

    topics: tuple[str, ...]
    servers: str
    value: Decoder
    starting: str = "earliest"
    """`earliest`, `latest`, or JSON: offsets by topic and partition, or a time in milliseconds."""
    is_pattern: bool = False
    metadata: tuple[tuple[str, str], ...] = ()
    records_per_batch: int | None = None
    group: str | None = None
    goes_on_after_loss: bool = False
    security: Security = Security()
    until: str | None = None
    """Where a bounded read ends, in the form of `starting`; None if the source is unbounded."""

    @property
    def name(self) -> str:
        return f"kafka({', '.join(self.topics)})"

    @property
    def definition(self) -> Mapping[str, Any]:
        """The fields that make it the same source to a checkpoint; connection settings and read speed are left out."""
        bounds = {} if self.until is None else {"starting": self.starting, "until": self.until}
        return {
            "topics": self.topics, "pattern": self.is_pattern, "value": self.value, "metadata": self.metadata, **bounds,
        }  # fmt: skip

    @property
    def partitions(self) -> tuple[str, ...]:
        return ()

    @property
    def types(self) -> dict[str, str]:
        return {**self.value.types, **{name: FIELDS[field] for name, field in self.metadata}}

    @property
    def decoder(self) -> Decoder:
        return self.value

    @property
    def needs(self) -> str:
        """The class that Spark must have to read this source."""
        return CONNECTOR

    @property
    def ends(self) -> bool:
        return self.until is not None

    def extent(self, spark: "SparkSession") -> Slice:  # noqa: ARG002 - asks the broker, not Spark
        """Look up the begin and end offsets of the slice."""
        return slice_of(
            self.servers, self.security, self.topics, self.starting, self.until or "latest",
            pattern=self.is_pattern, lossy=self.goes_on_after_loss,
        )  # fmt: skip

    def beginning(self, at: Offsets | None = None) -> dict[str, dict[str, int]]:
        """Return the offsets to begin at: those given, or those that `starting` means now."""
        source = self if at is None else replace(self, starting=_position(at))
        found = slice_of(
            self.servers, self.security, self.topics, source.starting, "latest",
            pattern=self.is_pattern, lossy=self.goes_on_after_loss,
        )  # fmt: skip
        return {topic: {number: first for number, (first, _) in each.items()} for topic, each in found.items()}

    def since(self, at: int | None) -> "Kafka":
        """Copy this source to read the topics again from a time in milliseconds, or from the earliest record."""
        return replace(self, starting="earliest" if at is None else str(at))

    def within(self, extent: Slice) -> "Kafka":
        """Copy this source with its bounds as offsets."""
        starts, ends = (
            json.dumps({topic: {number: pair[end] for number, pair in each.items()} for topic, each in extent.items()})
            for end in (0, 1)
        )
        return replace(self, starting=starts, until=ends)

    def refuse_changed(self, extent: Slice, spark: "SparkSession") -> None:
        """Do nothing: a log is append-only, and Spark reports records that are deleted during the read."""

    def table(self, extent: Slice, spark: "SparkSession") -> "DataFrame | None":
        """Read the records of a slice as a batch; Spark divides long partitions among tasks."""
        if not any(end > begin for each in extent.values() for begin, end in each.values()):
            return None
        bounded = self.within(extent)
        kept = ("startingOffsets", "maxOffsetsPerTrigger", "subscribe", "subscribePattern")
        options = {name: value for name, value in bounded._options().items() if name not in kept}  # noqa: SLF001 - same class
        options |= {
            "assign": json.dumps({topic: [int(number) for number in each] for topic, each in extent.items()}),
            "startingOffsets": bounded.starting,
            "endingOffsets": bounded.until or "latest",
            "maxRecordsPerPartition": str(RECORDS_PER_TASK),
        }
        return self._read(spark.read, options, spark)

    def stream(self, spark: "SparkSession") -> "DataFrame":
        return self._read(
            spark.readStream, self._options(), spark, _slice_condition(self.until) if self._ends_at_offsets else None
        )

    def _read(
        self, reader: Any, options: Mapping[str, str], spark: "SparkSession", only: str | None = None
    ) -> "DataFrame":
        packed = only is None and not self._has_headers and topic_blocks.is_enabled(spark)
        cores, columns = spark.sparkContext.defaultParallelism, self._metadata_columns
        block_options = topic_blocks.options(columns, self._largest, KEPT_OF_TOO_LARGE, cores) if packed else {}
        for name, value in {**options, **block_options}.items():
            reader = reader.option(name, value)
        if packed:
            frame = reader.format(topic_blocks.SOURCE).load()
            return topic_blocks.packed(frame, columns, cut=self._largest is not None)
        frame = reader.format("kafka").load()
        if frame.isStreaming:
            # Each partition is a task of Spark. Merged ones cost one call of Python.
            frame = frame.coalesce(2 * cores)
        return self._select_columns(frame if only is None else frame.where(only))

    @property
    def crosses_packed(self) -> bool:
        """Whether many records may cross to Python in one row: Spark filters none of them and reads no headers."""
        return not self._ends_at_offsets and not self._has_headers

    @property
    def _has_headers(self) -> bool:
        return any(field == "headers" for field, _ in self._metadata_columns)

    @property
    def _ends_at_offsets(self) -> bool:
        """Whether the source ends at offsets. Spark reads past them, so later records are filtered out."""
        return self.until is not None and self.until.startswith("{")

    @property
    def _metadata_columns(self) -> tuple[tuple[str, str], ...]:
        """The metadata columns, as (Spark's name, our name)."""
        return tuple(("timestampType" if field == "timestamp_type" else field, name) for name, field in self.metadata)

    @property
    def _largest(self) -> int | None:
        """The largest record to decode, in bytes; longer ones are cut. None if every record is kept whole."""
        largest = getattr(self.value, "largest", None)
        return None if largest is None or largest < KEPT_OF_TOO_LARGE else min(largest, LONGEST)

    def _select_columns(self, frame: "DataFrame") -> "DataFrame":
        extra = [f"{field} as `{name}`" for field, name in self._metadata_columns]
        named = "concat(topic, '-', partition) as partition"
        place = named if self.alone is None else f"cast(partition as long) as `{PARTITION_CODE}`"
        return frame.selectExpr(place, "offset", f"{RECORD} as mark", *self._value(), *extra)

    @property
    def alone(self) -> str | None:
        """The topic if there is only one: its partitions cross to Python as numbers."""
        return None if self.is_pattern or len(self.topics) > 1 else self.topics[0]

    def longest(self) -> int | None:
        """The largest record that the topics allow, in bytes; None if unknown."""
        if self.is_pattern or not consumer_groups.is_installed():
            return None
        return largest_record(self.servers, self.security, self.topics)

    def _value(self) -> list[str]:
        """Select the record's value. Of records above the size limit, select the beginning and the size."""
        if self._largest is None:
            return ["value"]
        cut = f"length(value) > {self._largest}"
        kept = f"if({cut}, substring(value, 1, {KEPT_OF_TOO_LARGE}), value) as value"
        return [kept, f"if({cut}, length(value), null) as `{SIZE}`"]

    def _options(self) -> dict[str, str]:
        options = {f"kafka.{name}": value for name, value in self.security.to_java().items()}
        options |= {
            "kafka.bootstrap.servers": self.servers,
            "kafka.isolation.level": "read_committed",
            # Java's consumer lets a broker create a topic that it asks about, with the broker's default settings.
            "kafka.allow.auto.create.topics": "false",
            **_FETCH_OPTIONS,
            "subscribePattern" if self.is_pattern else "subscribe": ",".join(self.topics),
            "failOnDataLoss": str(not self.goes_on_after_loss).lower(),
        }
        if self._has_headers:
            options["includeHeaders"] = "true"
        if self.records_per_batch is not None:
            options["maxOffsetsPerTrigger"] = str(self.records_per_batch)
        if self.starting.isdigit():
            return options | {"startingTimestamp": self.starting, "startingOffsetsByTimestampStrategy": "latest"}
        return options | {"startingOffsets": self.starting}

    def partitions_at(self, offsets: Offsets) -> tuple[str, ...]:
        """List the partitions in Spark's offsets, idle ones too: each holds the watermark back until it has sent a
        record."""
        return tuple(f"{topic}-{number}" for topic, each in offsets.items() for number in each)

    def refuse_missing(self) -> None:
        """Before Spark starts, raise an error if the broker answers and has no such topic."""
        if not self.is_pattern and consumer_groups.is_installed():
            refuse_missing_topics(self.servers, self.security, self.topics)

    def end_reader(self) -> EndOffsets | None:
        """Return a client for the end offsets; None without the Python client."""
        if not consumer_groups.is_installed():
            return None
        return EndOffsets(self.servers, self.security, self.topics, is_pattern=self.is_pattern)

    def positions(self, offsets: Offsets, ends: KnownEnds) -> tuple[Position, ...]:
        """Return the position in each partition whose end is known; a slice ends where it was bounded."""
        limits = by_partition(json.loads(self.until or "{}")) if self._ends_at_offsets else {}
        return tuple(
            Position(
                name, at, max(min(ends.now[name], limits.get(name, ends.now[name])), at), ends.earlier.get(name, ())
            )
            for name, at in by_partition(offsets).items()
            if name in ends.now
        )

    def refuse_lost(self, offsets: Offsets) -> None:
        """Before a job continues, raise an error if the records it would read next are deleted."""
        if self.goes_on_after_loss or not consumer_groups.is_installed():
            return
        gone = consumer_groups.deleted_records(self.servers, self.security, offsets)
        if gone:
            lost = ", ".join(f"{many} of {partition}" for partition, many in gone.items())
            raise LostRecords(
                f"{sum(gone.values())} records were deleted before this job read them",
                detail=f"{lost}: the topic's retention is shorter than the time the job was stopped",
                hint="kafka(…, on_lost='continue') skips them; otherwise restore the topic",
            )

    def identities(self) -> Mapping[str, str | None] | None:
        """Return the id of each topic, None for one that does not exist."""
        if not consumer_groups.is_installed():
            return None
        found = topic_ids(self.servers, self.security, self.topics, pattern=self.is_pattern)
        if found is None or not (self.is_pattern or self.goes_on_after_loss):
            return found
        return {name: each for name, each in found.items() if each is not None}

    def not_redrivable(self, letters: "pl.DataFrame") -> dict[str, str]:
        """Explain which dead letters cannot be redriven to their topics."""
        return redrive.not_redrivable(self.servers, self.security, letters)

    def end_positions(self, letters: "pl.DataFrame") -> Offsets:
        """The end offsets of these letters' topics."""
        return redrive.end_positions(self.servers, self.security, letters)

    def redrive_records(self, letters: "pl.DataFrame", redriven: Redrive, marks: Marks | None) -> tuple[str, ...]:
        """Redrive dead letters: write their records to the topics again, all or none."""
        before = redriven.before.get(self.name, {})
        return redrive.redrive_records(self.servers, self.security, letters, redriven, before, marks)

    def delivered(self, job: str, offsets: Offsets) -> None:
        """After a batch, commit the offsets to a consumer group for Kafka's own tools. Recovery does not use it."""
        if consumer_groups.is_installed():
            consumer_groups.commit(self.servers, self.security, self.group or job, offsets)


@checked
def kafka(  # noqa: PLR0913 - one option of Kafka each
    *topics: str,
    servers: str | Sequence[str],
    value: Decoder,
    starting: StartPosition = "earliest",
    until: StartPosition | None = None,
    pattern: bool = False,
    metadata: Mapping[str, str] | None = None,
    records_per_batch: int | None = RECORDS_PER_BATCH,
    group: str | None = None,
    on_lost: str = "stop",
    security: Security | None = None,
) -> Kafka:
    """Read records of topics: `kafka("scores", servers="localhost:9092", value=json("team string, at timestamp"))`.

    Reading starts at the earliest or latest records, at a time, or at offsets as in `{"scores": {"0": 17}}`; a job that
    has run before continues where it was. With `until` the source is a bounded slice that ends at the latest record as
    of now, before a time, or before offsets. `metadata` makes columns of a record's metadata: `{"sent": "timestamp"}`.
    A batch reads at most `records_per_batch`; no limit if None. After each batch the offsets are committed to a
    consumer `group`, for other tools to see. Records that are deleted before they are read stop the job, unless
    `on_lost="continue"`.
    """
    if not all(topics):
        raise InvalidStep("a topic has no name", hint='write kafka("scores", …)')
    if not topics or (pattern and len(topics) > 1):
        raise InvalidStep("kafka needs one or more topics, or one pattern", hint='write kafka("scores", …)')
    for name, field in (metadata or {}).items():
        if field not in FIELDS:
            raise InvalidStep(f"unknown metadata field {field!r} for {name!r}", hint=f"choose from {', '.join(FIELDS)}")
        if name in value.types:
            raise InvalidStep(f"the column {name!r} is already in the value", hint="give the metadata another name")
        if name in RAW_SCHEMA.names:
            raise InvalidStep(
                f"the column name {name!r} is reserved for the record's position", hint="give the metadata another name"
            )
    if on_lost not in ("stop", "continue"):
        raise InvalidStep(f"unknown on_lost {on_lost!r}", hint="choose stop or continue")
    if records_per_batch is not None and records_per_batch < 1:
        raise InvalidStep(f"records_per_batch is {records_per_batch}", hint="use 1 or more, or leave it out")
    return Kafka(
        topics, server_list(servers), value, _position(starting), pattern, tuple((metadata or {}).items()),
        records_per_batch, group,
        on_lost == "continue", security or Security(), None if until is None else _position(until, "until"),
    )  # fmt: skip


def _slice_condition(until: str | None) -> str:
    """SQL condition for the records in a slice; partitions that were added since are left out."""
    cases = [
        f"when topic = '{topic}' and partition = {number} then offset < {at}"
        for topic, each in json.loads(until or "{}").items()
        for number, at in each.items()
    ]
    return f"case {' '.join(cases)} else false end"


def _position(given: StartPosition, name: str = "starting") -> str:
    if isinstance(given, datetime):
        return str(zoned(given, name).ms)
    if isinstance(given, Mapping):
        return json.dumps({topic: {str(number): at for number, at in each.items()} for topic, each in given.items()})
    if given not in ("earliest", "latest"):
        raise InvalidStep(
            f"cannot start at {given!r}", hint="choose earliest, latest, a datetime, or offsets by partition"
        )
    return given
