"""Define a sample: rows of a user's data with event time, arrival time, partition and key.

Times are milliseconds. The rows of a partition are in their order of arrival: by arrival time if that is known, else in
the order in which they were read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from strandline.errors import InvalidStep
from strandline.execution.row_decoding import Arrived
from strandline.formats.time_parsing import instants
from strandline.ports.codecs import DETAIL

TIME, ARRIVAL, PARTITION, KEY = "time", "arrival", "partition", "key"
DECODED: Final = "decoded"
"""Origin format of rows that a record format has decoded: columns have the types that they have in a pipeline."""

_LATEST: Final = 253_402_300_799_999
_UNITS: Final = (("seconds", 1e11, 1e3), ("milliseconds", 1e14, 1.0), ("microseconds", 1e17, 1e-3))
"""Numbers since the epoch below such a size have this unit; larger numbers are nanoseconds."""


@dataclass(frozen=True, slots=True)
class Times:
    """Times as milliseconds (null if there is none), and their unit if they were numbers."""

    ms: pl.Series
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns with the event time, the key, the arrival time and the partition; None if there is none."""

    time: str
    keys: tuple[str, ...] = ()
    arrival: str | None = None
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a sample is from: its name, the code that reads it, what its arrival times are."""

    name: str
    source: str
    arrival: str = ""
    """What the arrival times are, in words; empty if there are none."""
    notes: tuple[str, ...] = ()
    format: str = "json"
    pipeline: str = ""
    """The pipeline that reads it already, as given; empty if there is none."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows with TIME, ARRIVAL (null if unknown), PARTITION and KEY, and their origin."""

    rows: pl.DataFrame
    columns: Columns
    origin: Origin
    read: int
    unit: str = ""
    """The unit of event times that are numbers since 1970."""
    texts: bool = False
    """Whether event times are texts."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Describe what was guessed or left out."""
        notes = [f"numbers in {self.columns.time!r} are read as {self.unit} since 1970"] if self.unit else []
        if self.untimed:
            notes.append(f"{self.untimed} of {self.read} rows have no valid event time: they would be dead letters")
        return (*self.origin.notes, *notes)

    @property
    def untimed(self) -> int:
        """Return the number of rows without a valid event time."""
        return self.read - self.rows.height

    @property
    def has_arrivals(self) -> bool:
        return bool(self.rows[ARRIVAL].is_not_null().any())


@dataclass(frozen=True, slots=True)
class SampledSource:
    """A sample with the names of all partitions, and the pipeline's window and delay in milliseconds."""

    sample: Sample
    known: tuple[str, ...] = ()
    window: int | None = None
    delay: int | None = None


def left_out(arrived: Arrived, what: str) -> tuple[str, ...]:
    """Describe the records that could not be decoded, if there are any."""
    if arrived.dead.is_empty():
        return ()
    count = f"{arrived.dead.height} of {arrived.read} {what}"
    note = f"{count} cannot be decoded and were left out: they would be dead letters"
    return (f"{note}; the first: {arrived.dead[DETAIL][0]}",)


def sample_of(frame: pl.DataFrame, columns: Columns, origin: Origin) -> Sample:
    """Build a sample from a frame, or raise the reason why that is not possible."""
    wanted = [columns.time, *columns.keys, *(each for each in (columns.arrival, columns.partition) if each is not None)]
    for name in wanted:
        if name not in frame.columns:
            raise InvalidStep(
                f"there is no column {name!r} in {origin.name}",
                detail=f"it has {', '.join(frame.columns[:20]) or 'none'}",
            )
    if frame.is_empty():
        raise InvalidStep(f"there is no row in {origin.name}", hint="give a source that holds some")
    times = in_milliseconds(frame[columns.time], columns.time)
    arrivals = pl.Series(ARRIVAL, [None] * frame.height, pl.Int64)
    if columns.arrival is not None:
        arrivals = in_milliseconds(frame[columns.arrival], columns.arrival).ms
    rows = frame.select(
        times.ms.alias(TIME), arrivals.alias(ARRIVAL), _texts(columns.partition).alias(PARTITION), _key(columns.keys)
    ).filter(pl.col(TIME).is_not_null())
    _check(rows, frame, columns)
    if rows[ARRIVAL].is_not_null().any():
        rows = rows.with_columns(pl.col(ARRIVAL).fill_null(strategy="forward")).sort(ARRIVAL, maintain_order=True)
    return Sample(rows, columns, origin, frame.height, times.unit, frame.schema[columns.time] == pl.String)


def _check(rows: pl.DataFrame, frame: pl.DataFrame, columns: Columns) -> None:
    if rows.is_empty():
        first = frame[columns.time][0]
        raise InvalidStep(
            f"no value of {columns.time!r} is a time",
            detail=f"the first is {first!r}",
            hint="name another column with --time; a time is a timestamp, a number since 1970, or a text like "
            "2024-05-01T12:00:00Z",
        )
    if rows[TIME].n_unique() == 1:
        raise InvalidStep(
            f"all {rows.height} rows have the same event time",
            detail=f"{columns.time} = {frame[columns.time][0]}",
            hint="name the event time column, or give a longer sample",
        )


def _texts(name: str | None) -> pl.Expr:
    return pl.lit("") if name is None else pl.col(name).cast(pl.String).fill_null("")


def _key(names: Sequence[str]) -> pl.Expr:
    if not names:
        return pl.lit(None, pl.String).alias(KEY)
    if len(names) == 1:
        return pl.col(names[0]).cast(pl.String, strict=False).alias(KEY)
    return pl.concat_str(
        [pl.col(name).cast(pl.String, strict=False).fill_null("") for name in names], separator=" / "
    ).alias(KEY)


def in_milliseconds(values: pl.Series, name: str) -> Times:
    """Convert timestamps, texts or numbers since 1970 to milliseconds; the unit of numbers is guessed by their size."""
    kind = values.dtype
    if kind == pl.Date or isinstance(kind, pl.Datetime):
        stamps = values.cast(pl.Datetime("us", getattr(kind, "time_zone", None)))
        return Times(stamps.dt.timestamp("us") // 1000)
    if kind.is_numeric():
        return _from_numbers(values.cast(pl.Float64, strict=False))
    if kind == pl.String:
        return Times(instants(values).dt.timestamp("us") // 1000)
    raise InvalidStep(f"{name!r} holds {kind}, not times", hint="name a column of timestamps, numbers or texts")


def _from_numbers(values: pl.Series) -> Times:
    middle: Any = values.abs().median()
    if middle is None:
        return Times(values.cast(pl.Int64))
    unit, factor = next(((unit, factor) for unit, below, factor in _UNITS if middle < below), ("nanoseconds", 1e-6))
    ms = values * factor
    valid = ms.is_finite() & (ms.abs() <= _LATEST)
    return Times(pl.select(pl.when(valid).then(ms.floor())).to_series().cast(pl.Int64, strict=False), unit)
