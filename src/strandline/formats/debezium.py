"""Debezium's change events as a changelog: the rows of a table, with what became of each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.errors import InvalidStep
from strandline.formats.json.codec import read_objects
from strandline.formats.schema import ddl_of, parse_ddl, types_of
from strandline.formats.time_parsing import beyond, days, instants
from strandline.formats.undecodable_records import LARGEST, Complaint, checked_size, dead_letters, sift
from strandline.model.row_kinds import Change
from strandline.ports.codecs import RAW, Decoded

CHANGE: Final = "change"
CHANGED_AT: Final = "changed_at"
_TIME: Final = pa.timestamp("us", tz="UTC")
_UNITS: Final = {"ms": 1000, "us": 1}
_IMAGES: Final[Mapping[str, tuple[tuple[str, Change], ...]]] = {
    "c": (("after", Change.INSERT),),
    "r": (("after", Change.INSERT),),
    "u": (("before", Change.UPDATE_BEFORE), ("after", Change.UPDATE_AFTER)),
    "d": (("before", Change.DELETE),),
}
"""Which rows an operation tells. An update without the row before it (as some databases send) tells the one after."""
_ROWLESS: Final[Mapping[str | None, str]] = {
    "t": "the table was truncated, which does not tell the rows that went",
    "m": "a message of the database's log, which is about no row",
}
"""Operations that are known and have no row to tell."""


@dataclass(frozen=True, slots=True)
class Debezium:
    """A table's columns as DDL, then `change` and `changed_at`: when the database did it.

    Envelopes come with or without their schema around them. A record without a value deletes a row that is not named.
    """

    ddl: str
    times: str = "ms"
    """How times are written: `ms` or `us` since the epoch, or `iso` for texts."""
    largest: int = LARGEST

    def __post_init__(self) -> None:
        checked_size(self.largest)
        if self.times not in (*_UNITS, "iso"):
            raise InvalidStep(f"times as {self.times!r} are not known", hint="choose ms, us or iso")
        for field in parse_ddl(self.ddl):
            if field.name in (CHANGE, CHANGED_AT):
                raise InvalidStep(f"the column {field.name!r} is the changelog's own", hint="rename it in the database")
            if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
                raise InvalidStep(f"the column {field.name!r} cannot be read from an envelope as {ddl_of(field.type)}")

    @property
    def columns(self) -> tuple[str, ...]:
        return (*parse_ddl(self.ddl).names, CHANGE, CHANGED_AT)

    @property
    def types(self) -> Mapping[str, str]:
        """Each column's type, as DDL writes it."""
        return {**types_of(parse_ddl(self.ddl)), CHANGE: "string", CHANGED_AT: "timestamp"}

    def decode(self, raw: pl.DataFrame) -> Decoded:
        """A row for every image that an event tells; an event that tells none is set aside."""
        sifted = sift(raw, self.largest)
        good, table, wrong = read_objects(raw[RAW][sifted.full], self._written())
        complaints = sifted.complaints | {int(sifted.full[at]): Complaint(why) for at, why in wrong.items()}
        events = pl.DataFrame(table).with_columns(pl.Series("@place", sifted.full[good], pl.Int64))
        events = _unwrapped(events)
        images, bad = self._images(events)
        complaints |= {at: Complaint(why) for at, why in bad.items()}
        gone = pl.DataFrame({"@place": sifted.empty, CHANGE: [Change.DELETE.value] * len(sifted.empty)})
        rows = pl.concat([images, gone], how="diagonal_relaxed").sort("@place", maintain_order=True)
        places = rows["@place"].to_numpy().astype(np.int64)
        return Decoded(
            pl.concat([raw[places], rows.select(self.columns)], how="horizontal"), dead_letters(raw, complaints)
        )

    def _written(self) -> pa.Schema:
        row = pa.struct([pa.field(each.name, self._as_written(each.type)) for each in parse_ddl(self.ddl)])
        source = pa.struct([("ts_ms", pa.int64())])
        parts = [("before", row), ("after", row), ("op", pa.string()), ("source", source), ("ts_ms", pa.int64())]
        return pa.schema([*parts, ("payload", pa.struct(parts))])

    def _as_written(self, kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind):
            return pa.string() if self.times == "iso" else pa.int64()
        return (pa.string() if self.times == "iso" else pa.int32()) if pa.types.is_date(kind) else kind

    def _images(self, events: pl.DataFrame) -> tuple[pl.DataFrame, dict[int, str]]:
        told = [pl.DataFrame(schema={**self._shape(), "@place": pl.Int64})]
        bad: dict[int, str] = {}
        known = pl.col("op").is_in(list(_IMAGES)).fill_null(value=False)
        for place, operation in events.filter(~known).select("@place", "op").iter_rows():
            bad[place] = _ROWLESS.get(operation, f"an envelope with the operation {operation!r}")
        for operation, images in _IMAGES.items():
            mine = events.filter(pl.col("op") == operation)
            needed = images[-1][0]
            for place in mine.filter(pl.col(needed).is_null())["@place"]:
                bad[place] = f"an envelope of the operation {operation!r} without the row {needed} it"
            for image, change in images if mine.height else ():
                there = mine.filter(pl.col(image).is_not_null() & pl.col(needed).is_not_null())
                rows = self._typed(there[image].struct.unnest()).with_columns(
                    pl.lit(change.value).alias(CHANGE), there[CHANGED_AT], there["@place"]
                )
                out = beyond(rows, parse_ddl(self.ddl))
                bad |= dict.fromkeys(rows.filter(out)["@place"], "a number or a time out of the range of its type")
                told.append(rows)
        return pl.concat(told).filter(~pl.col("@place").is_in(list(bad))), bad

    def _typed(self, rows: pl.DataFrame) -> pl.DataFrame:
        found: list[Any] = []
        for field in parse_ddl(self.ddl):
            column = rows[field.name]
            if pa.types.is_timestamp(field.type):
                column = instants(column) if self.times == "iso" else _since(column, _UNITS[self.times])
            elif pa.types.is_date(field.type):
                column = days(column) if self.times == "iso" else column.cast(pl.Date)
            found.append(column)
        return pl.DataFrame(found)

    def _shape(self) -> Mapping[str, pl.DataType]:
        row = pl.Schema(parse_ddl(self.ddl))
        return {**row, CHANGE: pl.String(), CHANGED_AT: pl.Datetime("us", "UTC")}


def debezium(ddl: str, *, times: str = "ms", largest: int = LARGEST) -> Debezium:
    """Change events of a table with these columns: `debezium("id long, name string", times="us")`."""
    return Debezium(ddl, times, largest)


def _unwrapped(events: pl.DataFrame) -> pl.DataFrame:
    """What is in the payload, if there is one."""
    parts = ("before", "after", "op", "source", "ts_ms")
    wrapped = pl.col("payload").is_not_null()
    flat = events.with_columns(
        pl.when(wrapped).then(pl.col("payload").struct.field(part)).otherwise(pl.col(part)).alias(part)
        for part in parts
    )
    when = pl.coalesce(pl.col("source").struct.field("ts_ms"), pl.col("ts_ms"))
    return flat.with_columns((when * 1000).cast(pl.Datetime("us", "UTC")).alias(CHANGED_AT))


def _since(numbers: pl.Series, unit: int) -> pl.Series:
    return (numbers * unit).cast(pl.Datetime("us", "UTC"))
