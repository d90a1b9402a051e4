"""A generated stream as Spark reads it: positions of every partition, and the moment the stream began."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from strandline.connectors.generated.draw_events import due, records
from strandline.connectors.generated.settings import COLUMNS, POISONS, Knobs, from_text, to_text
from strandline.model.ddl import parse
from strandline.model.elements import Length, Timestamp, duration
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
        """What makes it the same source to a checkpoint: not how much of it is read at a time."""
        return {name: value for name, value in asdict(self).items() if name != "events_per_batch"}

    @property
    def types(self) -> dict[str, str]:
        return parse(COLUMNS)

    def stream(self, spark: "SparkSession") -> "DataFrame":
        return spark.readStream.format(registered(spark, GeneratedDataSource)).option("knobs", to_text(self)).load()


def generator(  # noqa: PLR0913 - one knob each
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
    format: str = "json",  # noqa: A002 - the word of `files`
    events_per_batch: int | None = None,
) -> Generated:
    """A seeded stream to try a pipeline on: `generator(rate=5_000, disorder=0.2, late=0.01, poison=0.001)`.

    Its columns are `id string, key string, value double, at timestamp`. It goes on for ever, or for so many `events`;
    it begins when it is first read, or at a `start`: what was due since then is there at once. Every knob is told in
    docs/reference/generator.md.
    """
    return Generated(
        seed, float(rate), events, partitions, None if start is None else Timestamp.from_datetime(start).ms,
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
    """The records [start, end) of one partition, and whether it ends there."""

    partition: int
    start: int
    end: int
    origin: int
    ends: bool


class GeneratedReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What is due by the clock, at most so much of it at a time."""

    def __init__(self, ask: Knobs) -> None:
        self._ask = ask
        self._now = _now

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """What is due by now is all there is."""
        now = _now()
        self._now = lambda: now

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        origin = _UNKNOWN if self._ask.start is None else self._ask.start
        return {_ORIGIN: origin} | dict.fromkeys(self._ask.partitions, 0)

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: ARG002, N802 - Spark's name
        origin = start[_ORIGIN] if start[_ORIGIN] != _UNKNOWN else self._now()
        most = self._ask.events_per_batch
        end = {_ORIGIN: origin}
        for number, name in enumerate(self._ask.partitions):
            reached = max(due(self._ask, number, self._now() - origin), start[name])
            end[name] = reached if most is None else min(reached, start[name] + most // self._ask.width)
        return end

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Range]:
        ranges = []
        for number, name in enumerate(self._ask.partitions):
            if end[name] > start[name]:
                ends = end[name] == self._ask.count(number)
                ranges.append(Range(number, start[name], end[name], end[_ORIGIN], ends))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        asked = cast("Range", partition)
        for first in range(asked.start, asked.end, _PIECE):
            last = min(first + _PIECE, asked.end)
            values: list[bytes | None] = [*records(self._ask, asked.partition, first, last, asked.origin)]
            marks = [RECORD] * len(values)
            if asked.ends and last == asked.end:
                values, marks = [*values, None], [*marks, ENDED]
            columns = ([str(asked.partition)] * len(values), range(first, first + len(values)), values, marks)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, RAW_SCHEMA.types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)


class GeneratedDataSource(DataSource):
    """The generator as Spark finds it."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> str:
        return RAW_COLUMNS

    def streamReader(self, schema: Any) -> GeneratedReader:  # noqa: ARG002, N802 - Spark's name
        return GeneratedReader(from_text(self.options["knobs"]))


def _now() -> int:
    return time.time_ns() // 1_000_000
