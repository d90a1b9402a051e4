"""Decode Debezium change events as a changelog: the rows of a table, with the change to each."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.errors import InvalidStep
from strandline.formats.json.parse_objects import read_objects
from strandline.formats.schema import ddl_of, parse_ddl, types_of
from strandline.formats.time_parsing import days, instants, out_of_range
from strandline.formats.undecodable_records import LARGEST, DecodeProblem, check_sizes, dead_letters, refuse_bad_limit
from strandline.model.arguments import checked
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
"""The rows that an operation yields. An update without the earlier row (as some databases send) yields the later
one."""
_ROWLESS: Final[Mapping[str | None, str]] = {
    "t": "the table was truncated, and the event does not list the deleted rows",
    "m": "a message of the database's log, without a row",
}
"""Known operations without a row."""


@dataclass(frozen=True, slots=True)
class Debezium:
    """A table's columns as DDL, then `change` and `changed_at`, the time of the change in the database.

    Envelopes come with or without an enclosing schema. A record without a value is a delete of an unnamed row.
    """

    ddl: str
    times: str = "ms"
    """How times are written: `ms` or `us` since the epoch, or `iso` for text."""
    largest: int = LARGEST

    def __post_init__(self) -> None:
        refuse_bad_limit(self.largest)
        if self.times not in (*_UNITS, "iso"):
            raise InvalidStep(f"unknown times {self.times!r}", hint="choose ms, us or iso")
        for field in parse_ddl(self.ddl):
            if field.name in (CHANGE, CHANGED_AT):
                raise InvalidStep(
                    f"the column {field.name!r} is reserved by the changelog", hint="rename it in the database"
                )
            if pa.types.is_nested(field.type) or pa.types.is_binary(field.type):
                raise InvalidStep(f"the column {field.name!r} cannot be read from an envelope as {ddl_of(field.type)}")

    @property
    def columns(self) -> tuple[str, ...]:
        return (*parse_ddl(self.ddl).names, CHANGE, CHANGED_AT)

    @property
    def types(self) -> Mapping[str, str]:
        """Each column's type in DDL."""
        return {**types_of(parse_ddl(self.ddl)), CHANGE: "string", CHANGED_AT: "timestamp"}

    def decode(self, raw: pl.DataFrame) -> Decoded:
        """Return a row for every image in an event; an event without any becomes a dead letter."""
        checked = check_sizes(raw, self.largest)
        good, table, wrong = read_objects(raw[RAW][checked.full], self._envelope_schema())
        problems = checked.problems | {int(checked.full[at]): DecodeProblem(why) for at, why in wrong.items()}
        events = pl.DataFrame(table).with_columns(pl.Series("@place", checked.full[good], pl.Int64))
        events = _unwrap(events)
        images, bad = self._images(events)
        problems |= {at: DecodeProblem(why) for at, why in bad.items()}
        gone = pl.DataFrame({"@place": checked.empty, CHANGE: [Change.DELETE.value] * len(checked.empty)})
        rows = pl.concat([images, gone], how="diagonal_relaxed").sort("@place", maintain_order=True)
        places = rows["@place"].to_numpy().astype(np.int64)
        return Decoded(
            pl.concat([raw[places], rows.select(self.columns)], how="horizontal"), dead_letters(raw, problems)
        )

    def _envelope_schema(self) -> pa.Schema:
        row = pa.struct([pa.field(each.name, self._written_type(each.type)) for each in parse_ddl(self.ddl)])
        source = pa.struct([("ts_ms", pa.int64())])
        parts = [("before", row), ("after", row), ("op", pa.string()), ("source", source), ("ts_ms", pa.int64())]
        return pa.schema([*parts, ("payload", pa.struct(parts))])

    def _written_type(self, kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind):
            return pa.string() if self.times == "iso" else pa.int64()
        return (pa.string() if self.times == "iso" else pa.int32()) if pa.types.is_date(kind) else kind

    def _images(self, events: pl.DataFrame) -> tuple[pl.DataFrame, dict[int, str]]:
        rows_by_image = [pl.DataFrame(schema={**self._shape(), "@place": pl.Int64})]
        bad: dict[int, str] = {}
        known = pl.col("op").is_in(list(_IMAGES)).fill_null(value=False)
        for place, operation in events.filter(~known).select("@place", "op").iter_rows():
            bad[place] = _ROWLESS.get(operation, f"an envelope with the operation {operation!r}")
        for operation, images in _IMAGES.items():
            matching = events.filter(pl.col("op") == operation)
            needed = images[-1][0]
            for place in matching.filter(pl.col(needed).is_null())["@place"]:
                bad[place] = f"an envelope of the operation {operation!r} without the row {needed} it"
            for image, change in images if matching.height else ():
                present = matching.filter(pl.col(image).is_not_null() & pl.col(needed).is_not_null())
                rows = self._typed(present[image].struct.unnest()).with_columns(
                    pl.lit(change.value).alias(CHANGE), present[CHANGED_AT], present["@place"]
                )
                out = out_of_range(rows, parse_ddl(self.ddl))
                bad |= dict.fromkeys(rows.filter(out)["@place"], "a number or a time out of the range of its type")
                rows_by_image.append(rows)
        return pl.concat(rows_by_image).filter(~pl.col("@place").is_in(list(bad))), bad

    def _typed(self, rows: pl.DataFrame) -> pl.DataFrame:
        found: list[Any] = []
        for field in parse_ddl(self.ddl):
            column = rows[field.name]
            if pa.types.is_timestamp(field.type):
                column = instants(column) if self.times == "iso" else _from_epoch(column, _UNITS[self.times])
            elif pa.types.is_date(field.type):
                column = days(column) if self.times == "iso" else column.cast(pl.Date)
            found.append(column)
        return pl.DataFrame(found)

    def _shape(self) -> Mapping[str, pl.DataType]:
        row = pl.Schema(parse_ddl(self.ddl))
        return {**row, CHANGE: pl.String(), CHANGED_AT: pl.Datetime("us", "UTC")}


@checked
def debezium(ddl: str, *, times: str = "ms", largest: int = LARGEST) -> Debezium:
    """Read change events of a table with these columns: `debezium("id long, name string", times="us")`."""
    return Debezium(ddl, times, largest)


def _unwrap(events: pl.DataFrame) -> pl.DataFrame:
    """Take the fields from the payload, if there is one."""
    parts = ("before", "after", "op", "source", "ts_ms")
    wrapped = pl.col("payload").is_not_null()
    flat = events.with_columns(
        pl.when(wrapped).then(pl.col("payload").struct.field(part)).otherwise(pl.col(part)).alias(part)
        for part in parts
    )
    when = pl.coalesce(pl.col("source").struct.field("ts_ms"), pl.col("ts_ms"))
    return flat.with_columns((when * 1000).cast(pl.Datetime("us", "UTC")).alias(CHANGED_AT))


def _from_epoch(numbers: pl.Series, unit: int) -> pl.Series:
    return (numbers * unit).cast(pl.Datetime("us", "UTC"))
