"""Records in whole batches: JSON objects to columns, and those that are none to dead letters, one by one."""

import io
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
from strandline.formats.letters import LARGEST, Complaint, checked_size, sift, tell
from strandline.formats.registry import Registry
from strandline.formats.schema import ddl_of, parse_ddl, types_of
from strandline.formats.subjects import Kind
from strandline.formats.times import beyond, days, instants
from strandline.formats.wire import HEAD, schema_of, unframed
from strandline.spark.ports import RAW, Decoded

_SPACE: Final = b" \t\r\n"
_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"
_BEYOND: Final = "a number or a time out of the range of its type"
_NULL_AFTER_OBJECT: Final = re.compile(rb"\}[ \t\r\n]*null")


@dataclass(frozen=True, slots=True)
class Json:
    """JSON objects, one a record; the columns as DDL. Fields that are not asked for are passed over."""

    ddl: str
    registry: Registry | None = None
    """Where records come under the id of a JSON Schema. The columns are those of the DDL all the same."""
    largest: int = LARGEST

    def __post_init__(self) -> None:
        checked_size(self.largest)
        for field in parse_ddl(self.ddl):
            _refuse_unreadable(field.type, field.name, top=True)

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(parse_ddl(self.ddl).names)

    @property
    def types(self) -> Mapping[str, str]:
        """Each column's type, as DDL writes it."""
        return types_of(parse_ddl(self.ddl))

    def decode(self, raw: pl.DataFrame) -> Decoded:
        """The records that are JSON objects of this shape, and the others with the parser's complaint."""
        schema = parse_ddl(self.ddl)
        sifted = sift(raw, self.largest)
        values = raw[RAW].to_list()
        lines = {place: values[place] for place in sifted.full.tolist()}
        complaints = sifted.complaints | self._unframe(lines)
        good, found, wrong = read_objects(lines, _as_written(schema))
        rows = _timed(found, schema)
        out = beyond(rows, schema)
        complaints |= {place: Complaint(why) for place, why in wrong.items()}
        complaints |= {good[at]: Complaint(_BEYOND) for at in out.arg_true()}
        if out.any():
            rows, good = rows.filter(~out), [place for place, bad in zip(good, out, strict=True) if not bad]
        return tell(raw, np.array(good, np.int64), rows, sifted.empty, complaints)

    def _unframe(self, lines: dict[int, bytes]) -> dict[int, Complaint]:
        """Takes the ids off, and out of the lines those whose id is wrong."""
        if self.registry is None:
            return {}
        client = self.registry.client()
        known: dict[int, Complaint | None] = {}
        complaints: dict[int, Complaint] = {}
        for place, value in list(lines.items()):
            try:
                number = unframed(value)
            except ValueError as problem:
                complaints[place] = Complaint(str(problem))
                del lines[place]
                continue
            if number not in known:
                found = schema_of(client, number, Kind.JSON)
                known[number] = found if isinstance(found, Complaint) else None
            if (complaint := known[number]) is not None:
                complaints[place] = complaint
                del lines[place]
            else:
                lines[place] = value[HEAD:]
        return complaints

    def encode(self, rows: pl.DataFrame) -> pl.Series:
        """Each row as a JSON object; times in ISO 8601, in UTC."""
        schema = parse_ddl(self.ddl)
        texts = [pl.col(field.name).pipe(_to_text, field.type) for field in schema]
        try:
            found = rows.select(self.columns).select(texts).write_ndjson()
        except pl.exceptions.PolarsError as problem:
            raise SinkError("these rows cannot be written as JSON", detail=str(problem)[:200]) from None
        return pl.Series(found.encode().split(b"\n")[:-1], dtype=pl.Binary)


def json(ddl: str, *, registry: Registry | None = None, largest: int = LARGEST) -> Json:
    """JSON records with these columns: `json("team string, score long, at timestamp")`."""
    return Json(ddl, registry, largest)


def _refuse_unreadable(kind: pa.DataType, name: str, *, top: bool = False) -> None:
    if pa.types.is_map(kind) or (pa.types.is_date(kind) and not top):
        raise InvalidStep(
            f"the column {name!r} cannot be read from JSON as {ddl_of(kind)}",
            hint="name an object's fields: struct<a: long, b: string>; a date stands in a column of its own",
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
    """Times are written as texts; they are read as such and understood afterwards, each on its own."""
    return pa.schema([pa.field(f.name, pa.string() if pa.types.is_temporal(f.type) else f.type) for f in schema])


def _timed(table: pa.Table, schema: pa.Schema) -> pl.DataFrame:
    frame = pl.DataFrame(table)
    times = [field.name for field in schema if pa.types.is_timestamp(field.type)]
    dates = [field.name for field in schema if pa.types.is_date(field.type)]
    return frame.with_columns(
        *(instants(frame[name]) for name in times),
        *(days(frame[name]) for name in dates),
    )


def read_objects(values: Mapping[int, bytes], schema: pa.Schema) -> tuple[list[int], pa.Table, dict[int, str]]:
    """The places of the records that could be read, their columns, and a complaint for each of the others."""
    complaints: dict[int, str] = {}
    lines: dict[int, bytes] = {}
    for place, value in values.items():
        try:
            lines[place] = _checked(value)
        except (ValueError, RecursionError) as problem:
            complaints[place] = str(problem)
    good: list[int] = []
    tables: list[pa.Table] = []
    _halve(list(lines), lines, schema, good, tables, complaints)
    table = pa.concat_tables(tables) if tables else schema.empty_table()
    return good, table, complaints


def _checked(value: bytes) -> bytes:
    """The record without the space around it, if it opens and closes an object: it cannot run into its neighbours."""
    record = value.removeprefix(_BYTE_ORDER_MARK).strip(_SPACE)
    if not record:
        raise ValueError("an empty record")
    record.decode()
    if not (record.startswith(b"{") and record.endswith(b"}")):
        raise ValueError("not a JSON object")
    if b"null" in record and _NULL_AFTER_OBJECT.search(record):
        # Arrow's parser crashes the process on a null that stands where an object should; in a text it is harmless.
        stdlib_json.loads(record)
    return record


def _halve(
    places: list[int],
    lines: dict[int, bytes],
    schema: pa.Schema,
    good: list[int],
    tables: list[pa.Table],
    complaints: dict[int, str],
) -> None:
    """Reads all at once; where that fails, each half on its own, down to the records at fault."""
    if not places:
        return
    try:
        tables.append(_parse([lines[place] for place in places], schema))
        good.extend(places)
    except (pa.ArrowInvalid, ValueError) as problem:
        if len(places) == 1:
            complaints[places[0]] = str(problem)
            return
        middle = len(places) // 2
        for half in (places[:middle], places[middle:]):
            _halve(half, lines, schema, good, tables, complaints)


def _parse(lines: list[bytes], schema: pa.Schema) -> pa.Table:
    parsing = arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore")
    # A block must hold the longest record, and one block keeps the parser from starting threads. It ends with a
    # newline, so that records written over several lines are not cut at their last one.
    text = b"\n".join([*lines, b""])
    reading = arrow_json.ReadOptions(use_threads=False, block_size=max(len(text) + 1, 1024))
    table = arrow_json.read_json(io.BytesIO(text), reading, parsing)
    if table.num_rows != len(lines):
        raise ValueError("more than one JSON object in a record")
    return table
