"""Replace a source by a stream without records that keeps its offset.

Spark's offset log has a line for every source of a query. A backfill reads history first and a topic afterwards, under
one checkpoint. So the source that is not read is replaced: the stream reports its start, or repeats its last offset.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from strandline.execution.block_addresses import CARRIER
from strandline.plan.endpoints import Source
from strandline.ports.register_data_source import registered

_FORMAT: Final = "strandline_silence"


@dataclass(frozen=True, slots=True)
class PausedSource:
    """A source that is not read in this phase."""

    of: Source
    begins: Mapping[str, Any] = field(default_factory=dict)
    """The offset at which it will start. Spark does not ask for it where the source has been read before."""

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
        """Return a stream without blocks."""
        reader = spark.readStream.format(registered(spark, PausedDataSource))
        return reader.option("begins", json.dumps(self.begins)).load()


class PausedDataSource(DataSource):
    """The paused stream as a Python data source."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> str:
        return CARRIER

    def streamReader(self, schema: Any) -> "PausedReader":  # noqa: ARG002, N802 - Spark's name
        return PausedReader(json.loads(self.options["begins"]))


class PausedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reports one offset."""

    def __init__(self, begins: dict[str, Any]) -> None:
        self._begins = begins

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Do nothing: the offset never moves."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return self._begins

    def latestOffset(self, start: dict[str, Any], limit: Any) -> dict[str, Any]:  # noqa: ARG002, N802 - Spark's name
        return start

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:  # noqa: ARG002
        return []

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        return iter(())
