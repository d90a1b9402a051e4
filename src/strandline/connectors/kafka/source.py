"""Topics as a source, read by Spark's own connector; each partition of a topic has a watermark of its own."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from strandline.connectors.kafka import consumer_groups, redrive, topic_blocks
from strandline.connectors.kafka.security import Security
from strandline.connectors.kafka.topic_admin import longest_of
from strandline.connectors.kafka.topic_extent import Slice, slice_of
from strandline.errors import InvalidStep, LostRecords
from strandline.kernel.blocks.binary_views import LONGEST
from strandline.letters.store import Marks, Redrive
from strandline.model.elements import Timestamp
from strandline.ports.codecs import Decoder
from strandline.ports.raw_records import PARTITION_CODE, RAW_SCHEMA, RECORD, SIZE

if TYPE_CHECKING:
    import polars as pl
    from pyspark.sql import DataFrame, SparkSession

Offsets = Mapping[str, Mapping[str, int]]
"""By topic and partition, as Spark writes them."""

FIELDS: Final = {
    "key": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "long",
    "timestamp": "timestamp",
    "timestamp_type": "int",
    "headers": "array<struct<key:string,value:binary>>",
}
"""What can be read of a record besides its value. A timestamp's type is 0 if the producer gave it, 1 if the broker."""

RECORDS_PER_BATCH: Final = 1_000_000
"""A batch is in memory as a whole, so one that has years to read takes them in parts."""

RECORDS_PER_TASK: Final = 500_000
"""Of a slice that is read all at once: a task has its records in memory as a whole."""

KEPT_OF_TOO_LARGE: Final = 65_536
"""So many bytes of a record that is too long to be read; a few of twenty megabytes in a batch would fill the memory."""

_AT_A_TIME: Final = {
    # Whoever asks for five hundred records, as clients do unless told otherwise, asks two thousand times a batch.
    "kafka.max.poll.records": "20000",
    "kafka.max.partition.fetch.bytes": str(4 * 2**20),
    "kafka.receive.buffer.bytes": str(2**20),
}

CONNECTOR: Final = "org.apache.spark.sql.kafka010.KafkaSourceProvider"


@dataclass(frozen=True, slots=True)
class Kafka:
    """Topics, how their records are read, where to begin, and how much to take at a time."""

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
    """Where a slice ends: as `starting`; None if the source goes on for ever."""

    @property
    def name(self) -> str:
        return f"kafka({', '.join(self.topics)})"

    @property
    def definition(self) -> Mapping[str, Any]:
        """What makes it the same source to a checkpoint: not by which door it is reached, nor how fast it is read."""
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
        """The class that Spark must have, to read it."""
        return CONNECTOR

    @property
    def ends(self) -> bool:
        return self.until is not None

    def extent(self, spark: "SparkSession") -> Slice:  # noqa: ARG002 - the broker is asked, not Spark
        """The offsets between where the slice begins and where it ends."""
        return slice_of(
            self.servers, self.security, self.topics, self.starting, self.until or "latest",
            pattern=self.is_pattern, lossy=self.goes_on_after_loss,
        )  # fmt: skip

    def beginning(self, at: Offsets | None = None) -> dict[str, dict[str, int]]:
        """The offsets it begins at: those given, or those that `starting` means now."""
        asked = self if at is None else replace(self, starting=_start(at))
        found = slice_of(
            self.servers, self.security, self.topics, asked.starting, "latest",
            pattern=self.is_pattern, lossy=self.goes_on_after_loss,
        )  # fmt: skip
        return {topic: {number: first for number, (first, _) in each.items()} for topic, each in found.items()}

    def since(self, at: int | None) -> "Kafka":
        """The same topics read again: from records of a time on, in milliseconds, or from the earliest there are."""
        return replace(self, starting="earliest" if at is None else str(at))

    def within(self, extent: Slice) -> "Kafka":
        """The slice, its ends told as offsets."""
        starts, ends = (
            json.dumps({topic: {number: pair[end] for number, pair in each.items()} for topic, each in extent.items()})
            for end in (0, 1)
        )
        return replace(self, starting=starts, until=ends)

    def refuse_changed(self, extent: Slice, spark: "SparkSession") -> None:
        """A log is only added to; what is deleted from it while it is read, Spark itself tells of."""

    def table(self, extent: Slice, spark: "SparkSession") -> "DataFrame | None":
        """The records of a slice; Spark divides long partitions among tasks."""
        if not any(end > begin for each in extent.values() for begin, end in each.values()):
            return None
        mine = self.within(extent)
        kept = ("startingOffsets", "maxOffsetsPerTrigger", "subscribe", "subscribePattern")
        options = {name: value for name, value in mine._options().items() if name not in kept}  # noqa: SLF001 - its own
        options |= {
            "assign": json.dumps({topic: [int(number) for number in each] for topic, each in extent.items()}),
            "startingOffsets": mine.starting,
            "endingOffsets": mine.until or "latest",
            "maxRecordsPerPartition": str(RECORDS_PER_TASK),
        }
        return self._read(spark.read, options, spark)

    def stream(self, spark: "SparkSession") -> "DataFrame":
        return self._read(spark.readStream, self._options(), spark, _before(self.until) if self._ends_within else None)

    def _read(
        self, reader: Any, options: Mapping[str, str], spark: "SparkSession", only: str | None = None
    ) -> "DataFrame":
        packed = only is None and not self._has_headers and topic_blocks.is_enabled(spark)
        asked = topic_blocks.options(self._known, self._largest, KEPT_OF_TOO_LARGE) if packed else {}
        for name, value in {**options, **asked}.items():
            reader = reader.option(name, value)
        if packed:
            frame = reader.format(topic_blocks.SOURCE).load()
            return topic_blocks.packed(frame, self._known, cut=self._largest is not None)
        frame = reader.format("kafka").load()
        return self._shaped(frame if only is None else frame.where(only))

    @property
    def crosses_packed(self) -> bool:
        """Whether its records need not cross each in a row of its own: Spark has nothing to do with each of them."""
        return not self._ends_within and not self._has_headers

    @property
    def _has_headers(self) -> bool:
        return any(field == "headers" for field, _ in self._known)

    @property
    def _ends_within(self) -> bool:
        """Whether it ends at offsets, and not just now: then Spark reads on, and what comes after is left out."""
        return self.until is not None and self.until.startswith("{")

    @property
    def _known(self) -> tuple[tuple[str, str], ...]:
        """What Spark calls the columns that are known without decoding, and what we do."""
        return tuple(("timestampType" if field == "timestamp_type" else field, name) for name, field in self.metadata)

    @property
    def _largest(self) -> int | None:
        """Records that are longer are not read; None where every one is kept whole."""
        largest = getattr(self.value, "largest", None)
        return None if largest is None or largest < KEPT_OF_TOO_LARGE else min(largest, LONGEST)

    def _shaped(self, frame: "DataFrame") -> "DataFrame":
        extra = [f"{field} as `{name}`" for field, name in self._known]
        named = "concat(topic, '-', partition) as partition"
        place = named if self.alone is None else f"cast(partition as long) as `{PARTITION_CODE}`"
        return frame.selectExpr(place, "offset", f"{RECORD} as mark", *self._value(), *extra)

    @property
    def alone(self) -> str | None:
        """The topic, if there is no other: its partitions cross to Python as numbers."""
        return None if self.is_pattern or len(self.topics) > 1 else self.topics[0]

    def longest(self) -> int | None:
        """The bytes that a record may have, as its topics have it; None where nobody tells."""
        if self.is_pattern or not consumer_groups.is_installed():
            return None
        return longest_of(self.servers, self.security, self.topics)

    def _value(self) -> list[str]:
        """Records as they are; of those that are longer than the format reads, the beginning and the size."""
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
            **_AT_A_TIME,
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
        """The partitions that Spark knows of, quiet ones too: each holds the watermark back until it is heard."""
        return tuple(f"{topic}-{number}" for topic, each in offsets.items() for number in each)

    def refuse_lost(self, offsets: Offsets) -> None:
        """Before a job goes on: whether what it would read next is still there."""
        if self.goes_on_after_loss or not consumer_groups.is_installed():
            return
        gone = consumer_groups.gone(self.servers, self.security, offsets)
        if gone:
            told = ", ".join(f"{many} of {partition}" for partition, many in gone.items())
            raise LostRecords(
                f"{sum(gone.values())} records were deleted before this job read them",
                detail=f"{told}: the topic keeps records for a shorter time than the job stood still",
                hint="kafka(…, on_lost='continue') goes on without them; else restore the topic",
            )

    def why_not(self, letters: "pl.DataFrame") -> dict[str, str]:
        """Which dead letters cannot go back to their topics, and why."""
        return redrive.why_not(self.servers, self.security, letters)

    def standing(self, letters: "pl.DataFrame") -> Offsets:
        """Where the topics of these letters end."""
        return redrive.standing(self.servers, self.security, letters)

    def take_back(self, letters: "pl.DataFrame", redriven: Redrive, marks: Marks | None) -> tuple[str, ...]:
        """Sends the records of dead letters again, all or none."""
        before = redriven.before.get(self.name, {})
        return redrive.take_back(self.servers, self.security, letters, redriven, before, marks)

    def delivered(self, job: str, offsets: Offsets) -> None:
        """After a batch: the group by which Kafka's own tools see how far the job is. Recovery does not use it."""
        if consumer_groups.is_installed():
            consumer_groups.commit(self.servers, self.security, self.group or job, offsets)


def kafka(  # noqa: PLR0913 - one option of Kafka each
    *topics: str,
    servers: str,
    value: Decoder,
    starting: str | datetime | Offsets = "earliest",
    until: str | datetime | Offsets | None = None,
    pattern: bool = False,
    metadata: Mapping[str, str] | None = None,
    records_per_batch: int | None = RECORDS_PER_BATCH,
    group: str | None = None,
    on_lost: str = "stop",
    security: Security | None = None,
) -> Kafka:
    """Records of topics: `kafka("scores", servers="localhost:9092", value=json("team string, at timestamp"))`.

    It starts with the earliest records, the latest, those from a time on, or from offsets, as in
    `{"scores": {"0": 17}}`; a job that has run before goes on where it was. With `until` it is a slice that ends: with
    the latest as of now, before a time, or before offsets. `metadata` makes columns of what Kafka knows of a record:
    `{"sent": "timestamp"}`. A batch takes at most `records_per_batch`; all there are if None.
    After each batch the offsets are committed to a consumer `group`, for other tools to see. Records that are deleted
    before they are read stop the job, unless `on_lost="continue"`.
    """
    if not topics or (pattern and len(topics) > 1):
        raise InvalidStep("kafka wants one topic or more, or one pattern", hint='write kafka("scores", …)')
    for name, field in (metadata or {}).items():
        if field not in FIELDS:
            raise InvalidStep(f"a record has no {field!r} for {name!r}", hint=f"it has {', '.join(FIELDS)}")
        if name in value.types:
            raise InvalidStep(f"the column {name!r} is in the value already", hint="give the metadata another name")
        if name in RAW_SCHEMA.names:
            raise InvalidStep(
                f"the name {name!r} is taken: a record has its place under it", hint="give the metadata another name"
            )
    if on_lost not in ("stop", "continue"):
        raise InvalidStep(f"there is no on_lost {on_lost!r}", hint="choose stop or continue")
    if records_per_batch is not None and records_per_batch < 1:
        raise InvalidStep(f"{records_per_batch} records a batch are none", hint="take one or more, or leave it out")
    return Kafka(
        topics, servers, value, _start(starting), pattern, tuple((metadata or {}).items()), records_per_batch, group,
        on_lost == "continue", security or Security(), None if until is None else _start(until),
    )  # fmt: skip


def _before(until: str | None) -> str:
    """Which records are in a slice; partitions that were added since are not."""
    told = [
        f"when topic = '{topic}' and partition = {number} then offset < {at}"
        for topic, each in json.loads(until or "{}").items()
        for number, at in each.items()
    ]
    return f"case {' '.join(told)} else false end"


def _start(given: str | datetime | Offsets) -> str:
    if isinstance(given, datetime):
        return str(Timestamp.from_datetime(given).ms)
    if isinstance(given, Mapping):
        return json.dumps({topic: {str(number): at for number, at in each.items()} for topic, each in given.items()})
    if given not in ("earliest", "latest"):
        raise InvalidStep(f"starting at {given!r}", hint="choose earliest, latest, a datetime, or offsets by partition")
    return given
