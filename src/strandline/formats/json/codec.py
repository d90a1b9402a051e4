"""Decode and encode JSON records in whole batches; invalid records become dead letters one by one."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import polars as pl
import pyarrow as pa

from strandline.errors import InvalidStep, SinkError
from strandline.formats.epoch_times import (
    Times,
    epoch_hint,
    from_epoch,
    number_type,
    refuse_bad_times,
    times_of,
    to_epoch,
)
from strandline.formats.json.parse_objects import read_objects
from strandline.formats.registry.client import Registry
from strandline.formats.registry.confluent_wire import HEAD, by_schema, schema_of
from strandline.formats.registry.subjects import Kind
from strandline.formats.schema import ddl_of, parse_ddl, types_of
from strandline.formats.time_parsing import days, instants, out_of_range
from strandline.formats.undecodable_records import (
    LARGEST,
    DecodeProblem,
    Places,
    check_sizes,
    refuse_bad_limit,
    to_decoded,
)
from strandline.model.arguments import checked
from strandline.ports.codecs import RAW, Decoded, Masked
from strandline.ports.dead_letter_masking import mask_json

_NUMBER_FOR_TEXT: Final = "JSON parse error: Column(/{}) changed from string to number in row 0"
_OUT_OF_RANGE: Final = "a number or a time out of the range of its type"


@dataclass(frozen=True, slots=True)
class Json:
    """JSON format: one object per record, with columns as DDL. Other fields are ignored."""

    ddl: str
    registry: Registry | None = None
    """Registry for records that carry the id of a JSON Schema. The columns are those of the DDL regardless."""
    largest: int = LARGEST
    times: Times = ()
    """Columns of timestamps that are numbers since 1970, with their units."""

    def __post_init__(self) -> None:
        refuse_bad_limit(self.largest)
        schema = parse_ddl(self.ddl)
        for field in schema:
            _refuse_unreadable(field.type, field.name, top=True)
        refuse_bad_times(self.times, schema)

    @property
    def definition(self) -> Mapping[str, Any]:
        """The fields that checkpoints store. Without times they are those of earlier versions."""
        known = {"ddl": self.ddl, "registry": self.registry, "largest": self.largest}
        return known | ({"times": self.times} if self.times else {})

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(parse_ddl(self.ddl).names)

    @property
    def types(self) -> Mapping[str, str]:
        """Each column's type in DDL."""
        return types_of(parse_ddl(self.ddl))

    def decode(self, raw: pl.DataFrame) -> Decoded:
        """Decode records that are JSON objects of this shape; report the parser's error for the others."""
        schema = parse_ddl(self.ddl)
        checked = check_sizes(raw, self.largest)
        problems = dict(checked.problems)
        places, values = self._strip_ids(checked.full, raw[RAW][checked.full], problems)
        good, found, wrong = read_objects(values, self._as_written(schema))
        rows = self._parse_times(found, schema)
        out = out_of_range(rows, schema)
        hints = self._hints(schema)
        by_error = {why: DecodeProblem(why + hints.get(why, "")) for why in wrong.values()}
        problems |= {int(places[at]): by_error[why] for at, why in wrong.items()}
        problems |= {int(places[good[at]]): DecodeProblem(_OUT_OF_RANGE) for at in out.arg_true()}
        if out.any():
            rows, good = rows.filter(~out), good[~out.to_numpy()]
        return to_decoded(raw, places[good], rows, checked.empty, problems)

    def _as_written(self, schema: pa.Schema) -> pa.Schema:
        """Declare times as texts or numbers; they are converted afterwards."""
        units = dict(self.times)
        texts = [pa.field(f.name, pa.string() if pa.types.is_temporal(f.type) else f.type) for f in schema]
        return pa.schema([pa.field(f.name, number_type(units[f.name])) if f.name in units else f for f in texts])

    def _parse_times(self, table: pa.Table, schema: pa.Schema) -> pl.DataFrame:
        frame, units = pl.DataFrame(table), dict(self.times)
        times = [f.name for f in schema if pa.types.is_timestamp(f.type) and f.name not in units]
        dates = [field.name for field in schema if pa.types.is_date(field.type)]
        return frame.with_columns(
            *(instants(frame[name]) for name in times),
            *(from_epoch(frame[name], unit) for name, unit in self.times),
            *(days(frame[name]) for name in dates),
        )

    def _hints(self, schema: pa.Schema) -> Mapping[str, str]:
        """For errors of numbers in columns of timestamps: how to declare the numbers."""
        times = [field.name for field in schema if ddl_of(field.type) == "timestamp"]
        return {_NUMBER_FOR_TEXT.format(name): epoch_hint(name) for name in times}

    def _strip_ids(
        self, places: Places, values: pl.Series, problems: dict[int, DecodeProblem]
    ) -> tuple[Places, pl.Series]:
        """Remove the schema ids, and report the records with an invalid id."""
        if self.registry is None:
            return places, values
        groups, wrong = by_schema(values.to_arrow())
        problems |= {int(places[at]): DecodeProblem(why) for at, why in wrong.items()}
        kept = [np.empty(0, np.int64)]
        for number, group in groups.items():
            found = schema_of(self.registry.client(), number, Kind.JSON)
            if isinstance(found, DecodeProblem):
                problems |= dict.fromkeys(places[group].tolist(), found)
            else:
                kept.append(group)
        known = np.sort(np.concatenate(kept))
        return places[known], values[known].bin.slice(HEAD)

    def mask(self, value: bytes, fields: frozenset[str]) -> Masked | None:
        """Mask the values of these fields at any depth; the schema id is kept."""
        head = b"" if self.registry is None else value[:HEAD]
        found = mask_json(value[len(head) :], fields)
        return None if found is None else Masked(head + found.value, found.hidden)

    def encode(self, rows: pl.DataFrame) -> pl.Series:
        """Encode each row as a JSON object; times in ISO 8601, in UTC, or as numbers where declared."""
        schema, units = parse_ddl(self.ddl), dict(self.times)
        texts = [
            to_epoch(f.name, units[f.name]) if f.name in units else pl.col(f.name).pipe(_to_text, f.type)
            for f in schema
        ]
        try:
            found = rows.select(self.columns).select(texts).write_ndjson()
        except pl.exceptions.PolarsError as problem:
            raise SinkError("these rows cannot be written as JSON", detail=str(problem)[:200]) from None
        return pl.Series(found.encode().split(b"\n")[:-1], dtype=pl.Binary)


@checked
def json(
    ddl: str,
    *,
    registry: Registry | None = None,
    largest: int = LARGEST,
    times: Mapping[str, str] | None = None,
) -> Json:
    """Read JSON records with these columns: `json("team string, at timestamp", times={"at": "ms"})`."""
    return Json(ddl, registry, largest, times_of(times))


def _refuse_unreadable(kind: pa.DataType, name: str, *, top: bool = False) -> None:
    if pa.types.is_map(kind) or (pa.types.is_date(kind) and not top):
        raise InvalidStep(
            f"the column {name!r} cannot be read from JSON as {ddl_of(kind)}",
            hint="declare an object's fields: struct<a: long, b: string>; a date must be a top-level column",
        )
    if pa.types.is_timestamp(kind) and kind.tz is None:
        raise InvalidStep(
            f"the column {name!r} cannot be read from JSON as timestamp_ntz",
            detail="a time in JSON has a zone, or is in UTC",
            hint=f"declare it as {name} timestamp; cast it to timestamp_ntz afterwards if a sink needs that",
        )
    if pa.types.is_list(kind):
        _refuse_unreadable(kind.value_type, name)
    if pa.types.is_struct(kind):
        for field in kind:
            _refuse_unreadable(field.type, name)


def _to_text(column: pl.Expr, kind: pa.DataType) -> pl.Expr:
    if pa.types.is_timestamp(kind):
        return column.dt.strftime("%Y-%m-%dT%H:%M:%S%.6fZ")
    if pa.types.is_date(kind):
        return column.dt.strftime("%Y-%m-%d")
    if pa.types.is_decimal(kind):
        return column.cast(pl.String)
    return column
