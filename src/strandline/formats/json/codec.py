"""Decode and encode JSON records in whole batches; invalid records become dead letters one by one."""

import json as stdlib_json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import polars as pl
import pyarrow as pa
from pyarrow import json as arrow_json

from strandline.errors import InvalidStep, SinkError
from strandline.formats.registry.client import Registry
from strandline.formats.registry.confluent_wire import HEAD, by_schema, schema_of
from strandline.formats.registry.subjects import Kind
from strandline.formats.schema import ddl_of, parse_ddl, types_of
from strandline.formats.text import texts_of
from strandline.formats.time_parsing import days, instants, out_of_range
from strandline.formats.undecodable_records import (
    LARGEST,
    DecodeProblem,
    Places,
    check_sizes,
    refuse_bad_limit,
    to_decoded,
)
from strandline.formats.varints import NOT_UTF8
from strandline.model.arguments import checked
from strandline.ports.codecs import RAW, Decoded, Masked
from strandline.ports.dead_letter_masking import mask_json

_SPACE: Final = " \t\r\n"
_BYTE_ORDER_MARK: Final = "\ufeff"
_OUT_OF_RANGE: Final = "a number or a time out of the range of its type"
_NULL_AFTER_OBJECT: Final = re.compile(r"\}[ \t\r\n]*null")


@dataclass(frozen=True, slots=True)
class Json:
    """JSON format: one object per record, with columns as DDL. Other fields are ignored."""

    ddl: str
    registry: Registry | None = None
    """Registry for records that carry the id of a JSON Schema. The columns are those of the DDL regardless."""
    largest: int = LARGEST

    def __post_init__(self) -> None:
        refuse_bad_limit(self.largest)
        for field in parse_ddl(self.ddl):
            _refuse_unreadable(field.type, field.name, top=True)

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
        good, found, wrong = read_objects(values, _as_written(schema))
        rows = _parse_times(found, schema)
        out = out_of_range(rows, schema)
        problems |= {int(places[at]): DecodeProblem(why) for at, why in wrong.items()}
        problems |= {int(places[good[at]]): DecodeProblem(_OUT_OF_RANGE) for at in out.arg_true()}
        if out.any():
            rows, good = rows.filter(~out), good[~out.to_numpy()]
        return to_decoded(raw, places[good], rows, checked.empty, problems)

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
        """Encode each row as a JSON object; times in ISO 8601, in UTC."""
        schema = parse_ddl(self.ddl)
        texts = [pl.col(field.name).pipe(_to_text, field.type) for field in schema]
        try:
            found = rows.select(self.columns).select(texts).write_ndjson()
        except pl.exceptions.PolarsError as problem:
            raise SinkError("these rows cannot be written as JSON", detail=str(problem)[:200]) from None
        return pl.Series(found.encode().split(b"\n")[:-1], dtype=pl.Binary)


@checked
def json(ddl: str, *, registry: Registry | None = None, largest: int = LARGEST) -> Json:
    """Read JSON records with these columns: `json("team string, score long, at timestamp")`."""
    return Json(ddl, registry, largest)


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


def _as_written(schema: pa.Schema) -> pa.Schema:
    """Declare times as strings; they are parsed afterwards, each on its own."""
    return pa.schema([pa.field(f.name, pa.string() if pa.types.is_temporal(f.type) else f.type) for f in schema])


def _parse_times(table: pa.Table, schema: pa.Schema) -> pl.DataFrame:
    frame = pl.DataFrame(table)
    times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    dates = [field.name for field in schema if pa.types.is_date(field.type)]
    return frame.with_columns(
        *(instants(frame[name]) for name in times),
        *(days(frame[name]) for name in dates),
    )


def read_objects(values: pl.Series, schema: pa.Schema) -> tuple[Places, pa.Table, dict[int, str]]:
    """The positions of the decodable records, their columns, and an error for each of the others."""
    lines, closed = _lines(texts_of(values))
    problems = _find_problems(lines, closed)
    places = np.arange(len(lines))
    if problems:
        places = np.delete(places, list(problems))
        lines = lines[places]
    good: list[Places] = [np.empty(0, np.int64)]
    tables: list[pa.Table] = []
    _parse_bisecting(lines, places, schema, good, tables, problems)
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    return np.concatenate(good), table, problems


def _lines(texts: pl.Series) -> tuple[pl.Series, pl.Series]:
    """Trim the text around each object, and check that it opens and closes an object; usually no text needs
    trimming."""
    closed = _closed(texts)
    if closed.all():
        return texts, closed
    lines = texts.str.strip_prefix(_BYTE_ORDER_MARK).str.strip_chars(_SPACE)
    return lines, _closed(lines)


def _closed(texts: pl.Series) -> pl.Series:
    return texts.str.starts_with("{") & texts.str.ends_with("}")


def _find_problems(lines: pl.Series, closed: pl.Series) -> dict[int, str]:
    """Report obvious errors, so that no record's text can run into the next one."""
    found = dict.fromkeys(lines.is_null().arg_true(), NOT_UTF8)
    for place in (~closed).fill_null(value=False).arg_true():
        found[place] = "not a JSON object" if lines[place] else "an empty record"
    # Arrow's parser crashes the process on a null in place of an object; inside a string null is harmless.
    for place in (lines.str.contains("null", literal=True) & closed).fill_null(value=False).arg_true():
        if not _NULL_AFTER_OBJECT.search(lines[place]):
            continue
        try:
            stdlib_json.loads(lines[place])
        except (ValueError, RecursionError) as problem:
            found[place] = str(problem)
    return found


def _parse_bisecting(
    lines: pl.Series,
    places: Places,
    schema: pa.Schema,
    good: list[Places],
    tables: list[pa.Table],
    problems: dict[int, str],
) -> None:
    """Parse all lines at once; on failure parse each half on its own, down to the invalid records."""
    if not len(places):
        return
    try:
        tables.append(_parse(lines, schema))
        good.append(places)
    except (pa.ArrowInvalid, ValueError) as problem:
        if len(places) == 1:
            problems[int(places[0])] = str(problem)
            return
        middle = len(places) // 2
        for half in (slice(0, middle), slice(middle, None)):
            _parse_bisecting(lines[half], places[half], schema, good, tables, problems)


def _parse(lines: pl.Series, schema: pa.Schema) -> pa.Table:
    parsing = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    # A block must hold the longest record, and a single block keeps the parser from starting threads. The text ends
    # with a newline, so that a record of several lines is not cut at its last one.
    joined = pl.concat([lines, pl.Series([""])]).str.join("\n")
    text = joined.to_arrow(compat_level=pl.CompatLevel.oldest()).buffers()[2]
    reading = arrow_json.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1024))
    table = arrow_json.read_json(pa.BufferReader(text), reading, parsing)
    if table.num_rows != len(lines):
        raise ValueError("more than one JSON object in a record")
    return table
