"""A stream that stands still: in the place of a source that is not read now, at the position where it stands.

Spark's offset log has a line for every source of a query. So that history can be read first and a topic afterwards,
under one checkpoint, the one that is not read is stood in for: it says where it begins, or repeats where it ended.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from strandline.plan.endpoints import Source
from strandline.ports.register_data_source import registered
from strandline.spark.tasks.block_addresses import CARRIER

_FORMAT: Final = "strandline_silence"


@dataclass(frozen=True, slots=True)
class Silent:
    """A source that is not read now."""

    of: Source
    begins: Mapping[str, Any] = field(default_factory=dict)
    """Where it begins, once it is read; not asked where it has been read."""

    @property
    def name(self) -> str:
        return self.of.name

    @property
    def partitions(self) -> tuple[str, ...]:
        return self.of.partitions

    @property
    def types(self) -> Mapping[str, str]:
        return self.of.types

    @property
    def decoder(self) -> object | None:
        return self.of.decoder

    def carried(self, spark: SparkSession) -> DataFrame:
        """No block at all, from a stream that Spark asks for its position."""
        reader = spark.readStream.format(registered(spark, Silence))
        return reader.option("begins", json.dumps(self.begins)).load()


class Silence(DataSource):
    """Such a stream as Spark finds it."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> str:
        return CARRIER

    def streamReader(self, schema: Any) -> "SilenceReader":  # noqa: ARG002, N802 - Spark's name
        return SilenceReader(json.loads(self.options["begins"]))


class SilenceReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One position, for ever."""

    def __init__(self, begins: dict[str, Any]) -> None:
        self._begins = begins

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """It is there already."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._begins

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's name
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        return iter(())
