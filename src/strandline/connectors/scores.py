"""Generate a seeded stream of team scores with disorder, a silent partition, late events and broken records.

Each event is a function of the seed, its partition and its number, so any range can be read again. The first batch only
announces the partitions. Then the stream starts, and events are emitted on a schedule. Spark's offset log stores the
start time with the positions.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from strandline.errors import InvalidStep
from strandline.model.arguments import checked
from strandline.model.ddl import parse
from strandline.ports.raw_records import ANNOUNCED, ENDED, RAW_COLUMNS, RAW_SCHEMA, RECORD
from strandline.ports.register_data_source import registered

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from strandline.formats.json.codec import Json

TEAMS: Final = ("amber", "blue", "coral", "jade", "red")
_COLUMNS: Final = "team string, user string, score long, at timestamp"
_CHUNK: Final = 1024
_FORMAT: Final = "strandline_scores"
_ORIGIN: Final = "origin"
_UNKNOWN, _ANNOUNCED = 0, 1


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of five teams over four partitions, the last of which is silent for the middle third of the stream."""

    seed: int = 7
    events: int = 15_000
    rate: int = 500
    width: int = 4
    tardy: float = 0.02
    """The share of events that are five to twelve seconds late: they cause corrections."""
    stragglers: float = 0.01
    """The share of events that are one to two minutes late: they are dropped as late."""
    poison: float = 0.005
    """The share of records that are broken."""

    def __post_init__(self) -> None:
        if self.events < self.width:
            raise InvalidStep(f"{self.events} events do not fill {self.width} partitions", hint="use more events")
        if self.rate < 1:
            raise InvalidStep(f"the rate is {self.rate} events a second", hint="use 1 or more")

    @property
    def name(self) -> str:
        return f"scores(seed={self.seed}, events={self.events}, rate={self.rate})"

    @property
    def partitions(self) -> tuple[str, ...]:
        return tuple(str(number) for number in range(self.width))

    @property
    def types(self) -> dict[str, str]:
        return parse(_COLUMNS)

    @property
    def decoder(self) -> "Json":
        from strandline.formats.json.codec import Json  # noqa: PLC0415 - loads Polars, which readers of offsets do without

        return Json(_COLUMNS)

    def stream(self, spark: "SparkSession") -> "DataFrame":
        records_range = json.dumps(
            [self.seed, self.events, self.rate, self.width, self.tardy, self.stragglers, self.poison]
        )
        return spark.readStream.format(registered(spark, ScoresDataSource)).option("scores", records_range).load()


@checked
def scores(*, seed: int = 7, events: int = 15_000, rate: int = 500) -> Scores:
    """Generate a demo stream of team scores."""
    return Scores(seed, events, rate)


def schedule(settings: Scores, partition: int) -> npt.NDArray[np.int64]:
    """When each event of a partition is emitted, in milliseconds after the start of the stream."""
    count = settings.events // settings.width + (partition < settings.events % settings.width)
    length = settings.events * 1000 / settings.rate
    steps = np.arange(count) * (length / max(count, 1))
    if partition == settings.width - 1:
        # The same events in two thirds of the time: the middle third is silent.
        steps = steps * (2 / 3)
        steps = np.where(steps < length / 3, steps, steps + length / 3)
    return steps.astype(np.int64)


def records(settings: Scores, partition: int, start: int, end: int, origin: int) -> list[bytes]:
    """The records [start, end) of a partition of a stream that started at `origin`."""
    emitted = schedule(settings, partition)
    found: list[bytes] = []
    for chunk in range(start // _CHUNK, -(-end // _CHUNK)):
        first = chunk * _CHUNK
        moments = emitted[first : first + _CHUNK] + origin
        found += _chunk(settings, partition, chunk, moments)[max(start - first, 0) : end - first]
    return found


def _chunk(settings: Scores, partition: int, chunk: int, moments: npt.NDArray[np.int64]) -> list[bytes]:
    """Draw a whole chunk, so that a range within it does not depend on where it was cut."""
    draw = np.random.default_rng([settings.seed, partition, chunk])
    team = draw.integers(0, len(TEAMS), _CHUNK)
    user = draw.integers(0, 200, _CHUNK)
    score = draw.integers(1, 10, _CHUNK)
    delay = np.minimum(draw.exponential(600, _CHUNK), 2_500)
    for share, least, most in ((settings.tardy, 5_000, 12_000), (settings.stragglers, 60_000, 120_000)):
        delay = np.where(draw.random(_CHUNK) < share, draw.uniform(least, most, _CHUNK), delay)
    broken = np.where(draw.random(_CHUNK) < settings.poison, draw.integers(0, 5, _CHUNK), -1)
    at = moments - delay.astype(np.int64)[: len(moments)]
    stamps = np.datetime_as_string(at.astype("datetime64[ms]"), unit="ms")
    rows = zip(team, user, score, stamps, broken, strict=False)
    return [_record(TEAMS[t], int(u), int(s), str(a), int(b)) for t, u, s, a, b in rows]


def _record(team: str, user: int, score: int, at: str, broken: int) -> bytes:
    whole = f'{{"team": "{team}", "user": "u{user}", "score": {score}, "at": "{at}Z"}}'
    match broken:
        case 0:
            return whole[:-9].encode()
        case 1:
            return whole.replace(f'"score": {score}', '"score": "many"').encode()
        case 2:
            return whole.replace(f'"at": "{at}Z"', '"at": "half past nine"').encode()
        case 3:
            return b"\xff\xfe" + whole.encode()
        case 4:
            return whole.replace(f', "at": "{at}Z"', "").encode()
        case _:
            return whole.encode()


@dataclass(frozen=True, slots=True)
class Range(InputPartition):
    """The records [start, end) of one partition, and the mark of the last one."""

    partition: int
    start: int
    end: int
    origin: int
    mark: int = RECORD


class ScoresReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads positions of every partition, and the stream's start: 0 before it is announced, 1 until it starts."""

    def __init__(self, settings: Scores) -> None:
        self._scores = settings
        self._schedules = [schedule(settings, number) for number in range(settings.width)]
        self._now = _now

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the clock: only records that are emitted by now are read."""
        now = _now()
        self._now = lambda: now

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        return {_ORIGIN: _UNKNOWN} | {str(number): 0 for number in range(self._scores.width)}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:  # noqa: ARG002, N802 - Spark's name
        if start[_ORIGIN] == _UNKNOWN:
            return start | {_ORIGIN: _ANNOUNCED}
        origin = self._now() if start[_ORIGIN] == _ANNOUNCED else start[_ORIGIN]
        elapsed = self._now() - origin
        emitted = {
            str(number): max(int(np.searchsorted(moments, elapsed, side="right")), start[str(number)])
            for number, moments in enumerate(self._schedules)
        }
        return {_ORIGIN: origin} | emitted

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Range]:
        if start[_ORIGIN] == _UNKNOWN:
            return [Range(number, 0, 0, 0, ANNOUNCED) for number in range(self._scores.width)]
        ranges = []
        for number, moments in enumerate(self._schedules):
            first, last = start[str(number)], end[str(number)]
            if last > first:
                ranges.append(Range(number, first, last, end[_ORIGIN], ENDED if last == len(moments) else RECORD))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        records_range = cast("Range", partition)
        values: list[bytes | None] = [
            *records(
                self._scores, records_range.partition, records_range.start, records_range.end, records_range.origin
            )
        ]
        marks = [RECORD] * len(values)
        if records_range.mark != RECORD:
            values, marks = [*values, None], [*marks, records_range.mark]
        columns = (
            [str(records_range.partition)] * len(values),
            range(records_range.start, records_range.start + len(values)),
            values,
            marks,
        )
        arrays = [pa.array(column, kind) for column, kind in zip(columns, RAW_SCHEMA.types, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=RAW_SCHEMA)


class ScoresDataSource(DataSource):
    """The Spark data source of the stream."""

    @classmethod
    def name(cls) -> str:
        return _FORMAT

    def schema(self) -> str:
        return RAW_COLUMNS

    def streamReader(self, schema: Any) -> ScoresReader:  # noqa: ARG002, N802 - Spark's name
        return ScoresReader(Scores(*json.loads(self.options["scores"])))


def _now() -> int:
    return time.time_ns() // 1_000_000
