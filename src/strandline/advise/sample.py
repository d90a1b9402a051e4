"""A sample: some rows of a user's data, as when each happened, when it came, where, and whose it is.

Times are milliseconds. Rows of a partition stand in the order in which they came: by their arrival where that is known,
else as they were read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from strandline.errors import InvalidStep
from strandline.formats.time_parsing import instants
from strandline.ports.codecs import DETAIL
from strandline.spark.tasks.row_decoding import Arrived

TIME, ARRIVAL, PARTITION, KEY = "time", "arrival", "partition", "key"
DECODED: Final = "decoded"
"""The format of what a format of records has read: columns have the types that they have in a pipeline."""

_LATEST: Final = 253_402_300_799_999
_UNITS: Final = (("seconds", 1e11, 1e3), ("milliseconds", 1e14, 1.0), ("microseconds", 1e17, 1e-3))
"""Numbers since the epoch below such a size are of such a unit; what is larger are nanoseconds."""


@dataclass(frozen=True, slots=True)
class Times:
    """Times as milliseconds, null where there is none; and the unit they were in, if they were numbers."""

    ms: pl.Series
    unit: str = ""


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of the data say what; None where nothing does."""

    time: str
    keys: tuple[str, ...] = ()
    arrival: str | None = None
    partition: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a sample is from: its name, how a pipeline reads it, what is known of its arrivals."""

    name: str
    source: str
    arrival: str = ""
    """What the arrivals are, in words; empty where there are none."""
    notes: tuple[str, ...] = ()
    format: str = "json"
    pipeline: str = ""
    """The pipeline that reads it already, as it was named; empty where there is none."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows with TIME, ARRIVAL (null where it is not known), PARTITION and KEY, and how they came to be here."""

    rows: pl.DataFrame
    columns: Columns
    origin: Origin
    read: int
    unit: str = ""
    """The unit of its times, if they are numbers since 1970."""
    texts: bool = False
    """Whether its times are texts."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What had to be guessed, or was left out."""
        said = [f"numbers in {self.columns.time!r} are taken for {self.unit} since 1970"] if self.unit else []
        if self.untimed:
            said.append(f"{self.untimed} of {self.read} rows have no time that can be read: they would be dead letters")
        return (*self.origin.notes, *said)

    @property
    def untimed(self) -> int:
        """How many rows had no time that can be read."""
        return self.read - self.rows.height

    @property
    def has_arrivals(self) -> bool:
        return bool(self.rows[ARRIVAL].is_not_null().any())


@dataclass(frozen=True, slots=True)
class Taken:
    """A sample, the partitions that there are, also without a row; and what a pipeline says of it, in milliseconds."""

    sample: Sample
    known: tuple[str, ...] = ()
    window: int | None = None
    delay: int | None = None


def left_out(arrived: Arrived, what: str) -> tuple[str, ...]:
    """What is said of records that could not be read, if there are any."""
    if arrived.dead.is_empty():
        return ()
    told = (
        f"{arrived.dead.height} of {arrived.read} {what} cannot be read and were left out: they would be dead letters"
    )
    return (f"{told}; the first: {arrived.dead[DETAIL][0]}",)


def sample_of(frame: pl.DataFrame, columns: Columns, origin: Origin) -> Sample:
    """The sample in a frame, or the reason why there is none."""
    wanted = [columns.time, *columns.keys, *(each for each in (columns.arrival, columns.partition) if each is not None)]
    for name in wanted:
        if name not in frame.columns:
            raise InvalidStep(
                f"there is no column {name!r} in {origin.name}",
                detail=f"it has {', '.join(frame.columns[:20]) or 'none'}",
            )
    if frame.is_empty():
        raise InvalidStep(f"there is not a row in {origin.name}", hint="give a source that holds some")
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
            f"all {rows.height} rows happened at the same instant",
            detail=f"{columns.time} = {frame[columns.time][0]}",
            hint="name the column that says when each happened, or give a longer sample",
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
    """Times, texts or numbers since 1970, whose unit is guessed by their size."""
    kind = values.dtype
    if kind == pl.Date or isinstance(kind, pl.Datetime):
        stamps = values.cast(pl.Datetime("us", getattr(kind, "time_zone", None)))
        return Times(stamps.dt.timestamp("us") // 1000)
    if kind.is_numeric():
        return _from_numbers(values.cast(pl.Float64, strict=False))
    if kind == pl.String:
        return Times(instants(values).dt.timestamp("us") // 1000)
    raise InvalidStep(f"{name!r} holds no times but {kind}", hint="name a column of timestamps, numbers or texts")


def _from_numbers(values: pl.Series) -> Times:
    middle: Any = values.abs().median()
    if middle is None:
        return Times(values.cast(pl.Int64))
    unit, factor = next(((unit, factor) for unit, below, factor in _UNITS if middle < below), ("nanoseconds", 1e-6))
    told = values * factor
    inside = told.is_finite() & (told.abs() <= _LATEST)
    return Times(pl.select(pl.when(inside).then(told.floor())).to_series().cast(pl.Int64, strict=False), unit)
