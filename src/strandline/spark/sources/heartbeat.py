"""Provide the heartbeat: an input that ticks without data, for processing time, idleness and time to live.

Its offset is the number of ticks, whether the job drains, and whether history has ended. All are in Spark's offset log,
so a repeated batch gets the same. A file beside the checkpoint requests the drain. Another one says when processing
time has something to do; until then the heartbeat ticks rarely, because each tick is a whole batch.
"""

import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from strandline.ports.raw_records import DRAINED, RAW_COLUMNS, SEAM, TICKED
from strandline.ports.register_data_source import registered

if TYPE_CHECKING:
    import pyarrow as pa

_FORMAT: Final = "strandline_heartbeat"
_RARELY: Final = 15
"""Ticks that are left out while nothing is due. Metrics and the watermark's lag are as old as the last tick."""


def heartbeat(
    spark: SparkSession, *, every: float, drain: Path, due: Path | None = None, live: bool = False
) -> DataFrame:
    """Return a stream with a row every so many seconds, or at once when the drain file appears.

    While the file `due` names a later time in milliseconds, it ticks only every 15th time.
    After a backfill the job is `live`: the first row says that history has ended.
    """
    # Spark starts processes only to ask for offsets. They get this module by value, and need not import the package.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]
    reader = spark.readStream.format(registered(spark, HeartbeatSource)).option("every", str(every))
    reader = reader.option("drain", str(drain)).option("due", "" if due is None else str(due))
    return reader.option("live", str(int(live))).load()


class HeartbeatSource(DataSource):
    """The heartbeat as a Python data source."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> str:
        return RAW_COLUMNS

    def streamReader(self, schema: Any) -> "HeartbeatReader":  # noqa: ARG002, N802 - Spark's name
        live = int(self.options.get("live", "0"))
        due = self.options.get("due", "")
        return HeartbeatReader(
            float(self.options["every"]), Path(self.options["drain"]), live, Path(due) if due else None
        )


class HeartbeatReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reports ticks since the epoch, and whether to drain."""

    def __init__(self, every: float, drain: Path, live: int = 0, due: Path | None = None) -> None:
        self._every, self._drain, self._live, self._due = every, drain, live, due
        self._until: int | None = None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the last tick."""
        self._until = self._tick()

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {"tick": self._tick(), "drain": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: ARG002, N802 - Spark's name
        drained = max(start["drain"], int(self._drain.exists()))
        live = {"live": 1} if self._live else {}
        return {"tick": self._next(start["tick"]), "drain": drained, **live}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        seam = (SEAM,) if end.get("live", 0) > start.get("live", 0) else ()
        return [InputPartition((DRAINED if end["drain"] else TICKED, *seam))] if start != end else []

    def read(self, partition: InputPartition) -> Iterator["pa.RecordBatch"]:
        import pyarrow as pa  # noqa: PLC0415 - only where it is read

        from strandline.ports.raw_records import RAW_SCHEMA  # noqa: PLC0415

        rows = [{"partition": None, "offset": 0, "value": None, "mark": mark} for mark in partition.value]
        yield pa.RecordBatch.from_pylist(rows, schema=RAW_SCHEMA)

    def _next(self, last: int) -> int:
        """Return the current tick if it is due, else the last one."""
        tick = max(self._tick(), last)
        if last < tick < last + _RARELY and self._until is None and not self._is_due():
            return last
        return tick

    def _is_due(self) -> bool:
        if self._due is None:
            return True
        try:
            return time.time() * 1000 >= int(self._due.read_text())
        except (OSError, ValueError):
            return True

    def _tick(self) -> int:
        now = int(time.time() // self._every)
        return now if self._until is None else min(now, self._until)
