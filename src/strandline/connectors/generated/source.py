"""Read a generated stream in Spark; offsets are a position per partition, and the stream's start time."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from strandline.connectors.generated.draw_events import due, records
from strandline.connectors.generated.settings import COLUMNS, POISONS, Knobs, from_option, to_option
from strandline.model.arguments import checked
from strandline.model.ddl import parse
from strandline.model.elements import Length, duration, zoned
from strandline.ports.raw_records import ENDED, RAW_COLUMNS, RAW_SCHEMA, RECORD
from strandline.ports.register_data_source import registered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FORMAT: Final = "strandline_generator"
_ORIGIN: Final = "origin"
_UNKNOWN: Final = 0
_PIECE: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class Generated(Knobs):
    """A generated stream as a source."""

    @property
    def name(self) -> str:
        return f"generator(seed={self.seed})"

    @property
    def definition(self) -> Mapping[str, Any]:
        """The fields that make it the same source to a checkpoint; the batch size is left out."""
        return {name: value for name, value in asdict(self).items() if name != "events_per_batch"}

    @property
    def types(self) -> dict[str, str]:
        return parse(COLUMNS)

    def stream(self, spark: "SparkSession") -> "DataFrame":
        return spark.readStream.format(registered(spark, GeneratedDataSource)).option("knobs", to_option(self)).load()


@checked
def generator(  # noqa: PLR0913 - one setting each
    *,
    seed: int = 0,
    rate: float = 1_000,
    events: int | None = None,
    partitions: int = 4,
    start: datetime | None = None,
    keys: int = 100,
    skew: float = 0,
    mean: float = 10,
    spread: float = 3,
    mean_per_hour: float = 0,
    disorder: float = 0,
    distance: Length = "2s",
    late: float = 0,
    late_by: Length = "1m",
    future: float = 0,
    future_by: Length = "1d",
    duplicates: float = 0,
    poison: float = 0,
    poisons: Sequence[str] = POISONS,
    bursts: tuple[Length, Length, float] | None = None,
    idle: Mapping[int, tuple[Length, Length]] | None = None,
    clock_drift: Mapping[int, float] | None = None,
    format: str = "json",  # noqa: A002 - the parameter name of `files`
    events_per_batch: int | None = None,
) -> Generated:
    """Generate a seeded test stream: `generator(rate=5_000, disorder=0.2, late=0.01, poison=0.001)`.

    Its columns are `id string, key string, value double, at timestamp`. It is unbounded unless `events` is given. It
    begins when it is first read, or at a `start`: what was due since then is available at once. See
    docs/reference/generator.md for every setting.
    """
    return Generated(
        seed, float(rate), events, partitions, None if start is None else zoned(start, "start").ms,
        keys, float(skew), float(mean), float(spread), float(mean_per_hour),
        float(disorder), duration(distance).ms, float(late), duration(late_by).ms,
        float(future), duration(future_by).ms, float(duplicates), float(poison), tuple(poisons),
        None if bursts is None else (duration(bursts[0]).ms, duration(bursts[1]).ms, float(bursts[2])),
        tuple((number, duration(a).ms, duration(b).ms) for number, (a, b) in sorted((idle or {}).items())),
        tuple((number, float(share)) for number, share in sorted((clock_drift or {}).items())),
        format, events_per_batch,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Range(InputPartition):
    """The records [start, end) of one partition, and whether the partition ends there."""

    partition: int
    start: int
    end: int
    origin: int
    ends: bool


class GeneratedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the records that are due by the clock, up to a batch limit."""

    def __init__(self, knobs: Knobs) -> None:
        self._knobs = knobs
        self._now = _now

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the clock: only records that are due by now are read."""
        now = _now()
        self._now = lambda: now

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        origin = _UNKNOWN if self._knobs.start is None else self._knobs.start
        return {_ORIGIN: origin} | dict.fromkeys(self._knobs.partitions, 0)

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: ARG002, N802 - Spark's name
        origin = start[_ORIGIN] if start[_ORIGIN] != _UNKNOWN else self._now()
        most = self._knobs.events_per_batch
        end = {_ORIGIN: origin}
        for number, name in enumerate(self._knobs.partitions):
            reached = max(due(self._knobs, number, self._now() - origin), start[name])
            end[name] = reached if most is None else min(reached, start[name] + most // self._knobs.width)
        return end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Range]:
        ranges = []
        for number, name in enumerate(self._knobs.partitions):
            if end[name] > start[name]:
                ends = end[name] == self._knobs.count(number)
                ranges.append(Range(number, start[name], end[name], end[_ORIGIN], ends))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        records_range = cast("Range", partition)
        for first in range(records_range.start, records_range.end, _PIECE):
            last = min(first + _PIECE, records_range.end)
            values: list[bytes | None] = [
                *records(self._knobs, records_range.partition, first, last, records_range.origin)
            ]
            marks = [RECORD] * len(values)
            if records_range.ends and last == records_range.end:
                values, marks = [*values, None], [*marks, ENDED]
            columns = ([str(records_range.partition)] * len(values), range(first, first + len(values)), values, marks)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, RAW_SCHEMA.types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)


class GeneratedDataSource(DataSource):
    """The Spark data source of the generator."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> str:
        return RAW_COLUMNS

    def streamReader(self, schema: Any) -> GeneratedReader:  # noqa: ARG002, N802 - Spark's name
        return GeneratedReader(from_option(self.options["knobs"]))


def _now() -> int:
    return time.time_ns() // 1_000_000
